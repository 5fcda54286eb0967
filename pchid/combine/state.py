"""The training of a Stable-Baselines3 algorithm as data, so that it can stop and go on exactly.

In: an algorithm at the start of a rollout, or a fresh one and what was saved. Out: a tree for `pchid.checkpoint`, or
the algorithm as it was, whose `learn(remaining, reset_num_timesteps=False)` goes on bit for bit (on the CPU).

Any algorithm will do that names its networks and optimisers in `_get_torch_save_params`, as those of
Stable-Baselines3 and sb3-contrib's TQC do. Wrappers of the environments other than `VecNormalize` are taken to have no
memory.
"""

from __future__ import annotations

import copy
import operator
import random
from collections import deque
from typing import Any, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import (
    NormalActionNoise,
    OrnsteinUhlenbeckActionNoise,
    VectorizedActionNoise,
)
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.her import HerReplayBuffer
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from pchid.checkpoint import Tree, load_module_state, load_optimizer_state, optimizer_state
from pchid.combine.noise import EpisodeNoise, noises_of
from pchid.errors import InputError, RunError

Kind = TypeVar("Kind")

COUNTS = ("num_timesteps", "_total_timesteps", "_num_timesteps_at_start", "_episode_num", "_n_updates", "_n_calls")
REMEMBERING = (OrnsteinUhlenbeckActionNoise, EpisodeNoise)
"""Noises that depend on the step before, all of it in `noise_prev`."""
RATES = ("_current_progress_remaining", "exploration_rate")


def model_state(model: BaseAlgorithm) -> Tree:
    """Everything that training depends on, to be taken at `on_rollout_start`, where rollout buffers are empty.

    The arrays are the model's own, not copies: write them before training goes on.
    """
    _check_exactness(model)
    environment: Any = model.env.unwrapped  # type: ignore[union-attr]
    return {
        **_same_outline(model),
        "optimizers": {name: optimizer_state(optimizer) for name, optimizer in _named(model, Optimizer).items()},
        "last": _last(model),
        "recent": _recent(model),
        "replay": _replay(model),
        "environment": environment.state() if hasattr(environment, "load_state") else {},
    }


def _same_outline(model: BaseAlgorithm) -> Tree:
    """The parts that have the same names and shapes in every model of the same kind, trained or fresh."""
    return {
        "algorithm": type(model).__name__,
        "counts": {name: int(getattr(model, name)) for name in COUNTS if hasattr(model, name)},
        "rates": {name: float(getattr(model, name)) for name in RATES if hasattr(model, name)},
        "networks": {name: dict(network.state_dict()) for name, network in _named(model, Module).items()},
        "variables": {name: variable.detach() for name, variable in _named(model, Tensor).items()},
        "noise": {str(slot): noise.noise_prev for slot, noise in enumerate(_remembering_noises(model))},
        "normalisation": _normalisation(model),
        "random": _random(model),
    }


def load_model_state(model: BaseAlgorithm, state: Tree) -> None:
    """Put what `model_state` gave into a fresh model of the same kind, whose environments are set already.

    Environments that cannot be restored start new episodes: training then goes on, but not exactly.
    """
    _check_exactness(model)
    buffer = _replay_buffer(model)
    if buffer is not None and buffer.size():
        raise InputError("a state is loaded into a fresh model, but the replay buffer of this one is in use already")
    _vectorise_noise(model)
    try:
        _check_fit(model, state)
        _load(model, state)
    except RunError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise RunError(f"this is not the state of such a model ({type(error).__name__}: {reason})") from error


def _check_exactness(model: BaseAlgorithm) -> None:
    """Refuse what could not go on exactly."""
    if model.env is None:
        raise InputError("the state of a model includes its environments, and this one has none: call set_env first")
    if model.use_sde:
        raise InputError(
            "a model with use_sde cannot be saved exactly, because it draws its exploration before a rollout starts; "
            "use an action noise instead"
        )
    buffer = _replay_buffer(model)
    if getattr(buffer, "copy_info_dict", False):
        raise InputError("a replay buffer with copy_info_dict=True holds objects, which a checkpoint cannot")
    if getattr(buffer, "optimize_memory_usage", False):
        raise InputError("a replay buffer with optimize_memory_usage=True cannot be saved exactly; leave it out")
    for noise in noises_of(model):
        if not isinstance(noise, (NormalActionNoise, *REMEMBERING)):
            raise InputError(
                f"what {type(noise).__name__} remembers is not known, so it cannot be saved exactly; use "
                "NormalActionNoise, OrnsteinUhlenbeckActionNoise or EpisodeNoise"
            )


def _check_fit(model: BaseAlgorithm, state: Tree) -> None:
    """Compare the names and shapes of the state with the model's, before anything is changed."""
    own = _same_outline(model)
    if state["algorithm"] != own["algorithm"]:
        raise RunError(f"this is the state of a model of {state['algorithm']}, not of {own['algorithm']}")
    for name, part in own.items():
        _compare(name, part, state[name])
    _compare("last", _like_last(model), state["last"])
    _compare("replay", _like_replay(model, state["replay"]), state["replay"])
    optimizers = _named(model, Optimizer)
    _compare("optimizers", {name: {} for name in optimizers}, {name: {} for name in state["optimizers"]})
    for name, optimizer in optimizers.items():
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for index, memory in state["optimizers"][name].items():
            for key, value in memory.items():
                if np.ndim(value):  # counts of steps have no shape
                    _compare(f"optimizers/{name}/{index}/{key}", parameters[int(index)], value)


def _compare(name: str, own: Any, given: Any) -> None:
    """Refuse a part of a state whose names or shapes are not the model's own."""
    needed, held = _outline(name, own), _outline(name, given)
    for path in sorted({*needed, *held}):
        needs, holds = needed.get(path, "nothing"), held.get(path, "nothing")
        if needs != holds:
            raise RunError(
                f"the state does not fit the model: for {path} it holds {holds}, but the model needs {needs}"
            )


def _outline(path: str, value: Any) -> dict[str, str]:
    """What a tree holds at each of its paths: the shape of an array, or the type of another value."""
    if isinstance(value, dict):
        inner = [_outline(f"{path}/{name}", part) for name, part in value.items()]
        return {path: "a dict", **{name: kind for part in inner for name, kind in part.items()}}
    if isinstance(value, (np.ndarray, Tensor)):
        return {path: f"an array of shape {tuple(value.shape)}"}
    return {path: f"a value of type {type(value).__name__}"}


def _load(model: BaseAlgorithm, state: Tree) -> None:
    # The environments come first, since they alone may still refuse; random numbers last, since others may draw some.
    restored = _load_environment(model, state["environment"])
    vars(model).update(state["counts"])
    vars(model).update(state["rates"])
    for name, network in _named(model, Module).items():
        load_module_state(network, state["networks"][name])
    for name, variable in _named(model, Tensor).items():
        variable.data.copy_(torch.as_tensor(state["variables"][name]))
    for name, optimizer in _named(model, Optimizer).items():
        load_optimizer_state(optimizer, copy.deepcopy(state["optimizers"][name]))
    _load_normalisation(model, state["normalisation"])
    _load_recent(model, state["recent"])
    _load_replay(model, state["replay"])
    if restored:
        _load_last(model, state["last"])
        _load_noise(model, state["noise"])
    else:
        _begin_new_episodes(model)
    _load_random(model, state["random"])


def _named(model: BaseAlgorithm, kind: type[Kind]) -> dict[str, Kind]:
    """The networks, the optimisers or the single tensors that the algorithm itself would save."""
    names = [name for names in model._get_torch_save_params() for name in names]
    found = {name: operator.attrgetter(name)(model) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, kind)}


# Where the environments are, and what they showed last.


def _load_environment(model: BaseAlgorithm, state: Tree) -> bool:
    """Put the environments back; returns whether they are where they were."""
    if not state:
        return False
    environment: Any = model.env.unwrapped  # type: ignore[union-attr]
    environment.load_state(state)
    environment._reset_seeds()  # the fresh model gave them a seed for their first reset, which is long past
    return "states" in state


def _last(model: BaseAlgorithm) -> Tree:
    normalize = model.get_vec_normalize_env()
    return {
        "observations": model._last_obs,
        # Not the model's _last_original_obs: PPO and A2C leave it as it was at the first reset.
        "original_observations": None if normalize is None else vars(normalize).get("old_obs"),
        "episode_starts": model._last_episode_starts,
    }


def _like_last(model: BaseAlgorithm) -> Tree:
    """What `_last` looks like once a model like this one has been trained."""
    slots, space = model.n_envs, model.observation_space
    observations: Any = (
        {key: np.empty((slots, *(part.shape or ()))) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Dict)
        else np.empty((slots, *(space.shape or ())))
    )
    original = None if model.get_vec_normalize_env() is None else observations
    return {"observations": observations, "original_observations": original, "episode_starts": np.empty(slots)}


def _load_last(model: BaseAlgorithm, state: Tree) -> None:
    model._last_obs = copy.deepcopy(state["observations"])
    model._last_episode_starts = copy.deepcopy(state["episode_starts"])
    normalize = model.get_vec_normalize_env()
    if normalize is not None:
        normalize.old_obs = copy.deepcopy(state["original_observations"])
        model._last_original_obs = normalize.get_original_obs()


def _begin_new_episodes(model: BaseAlgorithm) -> None:
    """Let `learn` reset the environments, and end the episodes in the replay buffer that they were in."""
    model._last_obs = None
    buffer = _replay_buffer(model)
    if isinstance(buffer, HerReplayBuffer):
        buffer.truncate_last_trajectory()


def _normalisation(model: BaseAlgorithm) -> Tree:
    normalize = model.get_vec_normalize_env()
    if normalize is None:
        return {}
    statistics = {
        name: {"mean": np.asarray(running.mean), "var": np.asarray(running.var), "count": float(running.count)}
        for name, running in _running(normalize).items()
    }
    return {"statistics": statistics, "returns": normalize.returns}


def _load_normalisation(model: BaseAlgorithm, state: Tree) -> None:
    normalize = model.get_vec_normalize_env()
    if normalize is None:
        return
    for name, running in _running(normalize).items():
        saved = state["statistics"][name]
        running.mean, running.var, running.count = np.array(saved["mean"]), np.array(saved["var"]), saved["count"]
    normalize.returns = np.array(state["returns"])


def _running(normalize: Any) -> dict[str, RunningMeanStd]:
    """The statistics of a `VecNormalize`, by what they are of."""
    found = vars(normalize).get("obs_rms", {})  # it has none if it leaves observations alone
    observations = found if isinstance(found, dict) else {"all": found}
    return {"returns": normalize.ret_rms, **{f"observations.{key}": running for key, running in observations.items()}}


# What has been seen: the replay buffer, and the recent episodes that logs show.


def _replay_buffer(model: BaseAlgorithm) -> ReplayBuffer | None:
    return getattr(model, "replay_buffer", None)


def _replay(model: BaseAlgorithm) -> Tree:
    buffer = _replay_buffer(model)
    if buffer is None:
        return {}
    return {"pos": int(buffer.pos), "full": bool(buffer.full), "arrays": _arrays(buffer, buffer.size())}


def _arrays(buffer: ReplayBuffer, rows: int) -> dict[str, NDArray[Any]]:
    """All arrays of numbers in a buffer, not copied; of those over (row, slot) the first rows."""
    found: dict[str, NDArray[Any]] = {}
    for name, value in vars(buffer).items():
        parts = {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
        found |= {path: part for path, part in parts.items() if isinstance(part, np.ndarray) and part.dtype != object}
    over_rows = (buffer.buffer_size, buffer.n_envs)
    return {path: array[:rows] if array.shape[:2] == over_rows else array for path, array in found.items()}


def _like_replay(model: BaseAlgorithm, state: Tree) -> Tree:
    """What `_replay` looks like once the model's buffer holds as much as the state."""
    buffer = _replay_buffer(model)
    if buffer is None:
        return {}
    if not 0 <= state["pos"] < buffer.buffer_size:
        raise RunError(f"the state does not fit the model: its replay buffer has {buffer.buffer_size} rows, too few")
    return {"pos": 0, "full": False, "arrays": _arrays(buffer, buffer.buffer_size if state["full"] else state["pos"])}


def _load_replay(model: BaseAlgorithm, state: Tree) -> None:
    buffer = _replay_buffer(model)
    if buffer is None:
        return
    buffer.pos, buffer.full = state["pos"], state["full"]
    for name, array in _arrays(buffer, buffer.size()).items():
        array[...] = state["arrays"][name]


def _recent(model: BaseAlgorithm) -> Tree:
    episodes, successes = model.ep_info_buffer or (), model.ep_success_buffer or ()
    return {
        "episodes": [{key: float(info[key]) for key in ("r", "l", "t") if key in info} for info in episodes],
        "successes": [float(success) for success in successes],
    }


def _load_recent(model: BaseAlgorithm, state: Tree) -> None:
    model.ep_info_buffer = deque(copy.deepcopy(state["episodes"]), maxlen=model._stats_window_size)
    model.ep_success_buffer = deque(state["successes"], maxlen=model._stats_window_size)


# Action noise.


def _remembering_noises(model: BaseAlgorithm) -> list[Any]:
    return [noise for noise in noises_of(model) if isinstance(noise, REMEMBERING)]


def _vectorise_noise(model: BaseAlgorithm) -> None:
    """One noise for each slot, as `learn` would make them."""
    noise = model.action_noise
    if noise is not None and model.n_envs > 1 and not isinstance(noise, VectorizedActionNoise):
        model.action_noise = VectorizedActionNoise(noise, model.n_envs)


def _load_noise(model: BaseAlgorithm, state: Tree) -> None:
    for slot, noise in enumerate(_remembering_noises(model)):
        noise.noise_prev = np.array(state[str(slot)])
    if state:
        _skip_next_reset(model.action_noise)


def _skip_next_reset(noise: Any) -> None:
    """`learn` resets the noise when it starts, though an episode may be under way: let that pass once."""

    def skip() -> None:
        del noise.reset  # from now on the class's own again

    noise.reset = skip


# Random numbers.


def _generators(model: BaseAlgorithm) -> dict[str, np.random.Generator]:
    """The generators that belong to the model: of random actions and, if it has one, of relabelling."""
    relabel = getattr(model, "relabel_rng", None)
    return {"action_space": model.action_space.np_random, **({} if relabel is None else {"relabel": relabel})}


def _random(model: BaseAlgorithm) -> Tree:
    version, words, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(legacy=False),
        "python": {"version": version, "words": np.array(words, np.uint32), "gauss": [] if gauss is None else [gauss]},
        **{name: generator.bit_generator.state for name, generator in _generators(model).items()},
    }


def _load_random(model: BaseAlgorithm, state: Tree) -> None:
    for name, generator in _generators(model).items():
        generator.bit_generator.state = state[name]
    python = state["python"]
    random.setstate((python["version"], tuple(python["words"].tolist()), next(iter(python["gauss"]), None)))
    np.random.set_state(state["numpy"])
    torch.set_rng_state(torch.tensor(np.asarray(state["torch"])))
