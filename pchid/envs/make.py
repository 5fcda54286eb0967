"""One way to make any goal environment: the domains here, gymnasium-robotics', and users' own.

In: a Gymnasium id and options. Out: a checked vector environment, restorable wherever that is possible.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

import pchid.envs
from pchid.envs.fetch import FETCH_IDS, FetchVectorEnv, RestorableFetch, is_fetch
from pchid.envs.mujoco import RestorableMujoco, is_restorable
from pchid.envs.single import SingleEnvsVectorEnv
from pchid.envs.slots import side_by_side
from pchid.errors import InputError
from pchid.goals import KEYS, check_spaces, check_sparse

PROBE_SLOTS = 1024
"""Slots of a probe over arrays."""
SIMULATOR_SLOTS = 64
"""Slots of a probe over MuJoCo, which takes memory (9 MB) for each; enough that no thread waits for another."""
SINGLE_SLOTS = 16
"""Slots of a probe over single environments, so that the policy need not act for each alone."""


def find_spec(env_id: str) -> gym.envs.registration.EnvSpec:
    """The registered specification of `env_id` (`Name-v0` or `module:Name-v0`), or an error with the nearest names."""
    pchid.envs.register()
    pchid.envs.register_robotics()
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        return gym.spec(name)
    except ImportError as error:
        raise InputError(f"cannot import the module of environment '{env_id}': {error}") from None
    except gym.error.Error:
        raise InputError(f"there is no environment '{env_id}'; {_hint(module, name)}") from None


def _hint(module: str, name: str) -> str:
    """What may have been meant by a name that is not registered."""
    near = " or ".join(difflib.get_close_matches(name, list(gym.registry), n=3, cutoff=0.5))
    if module:
        return f"did you mean {near}?" if near else f"importing {module} did not register it"
    if near:
        return f"did you mean {near}, or one of your own by `module:id`, which imports the module first?"
    return "`module:id` imports the module first"


def make_vector(
    env_id: str,
    num_envs: int = 1,
    autoreset: bool = True,
    render_mode: str | None = None,
    **options: Any,
) -> VectorEnv[Any, Any, Any]:
    """`num_envs` environments as one; with `autoreset=False` they go on past the end, as probes need."""
    spec = find_spec(env_id)
    mode = AutoresetMode.SAME_STEP if autoreset else AutoresetMode.DISABLED
    try:
        if spec.id in FETCH_IDS:
            vector: VectorEnv[Any, Any, Any] = FetchVectorEnv(
                spec.id, num_envs, render_mode=render_mode, autoreset_mode=mode, **options
            )
        elif is_vectorised(spec):
            vector = gym.make_vec(
                env_id,
                num_envs=num_envs,
                vectorization_mode="vector_entry_point",
                autoreset_mode=mode,
                render_mode=render_mode,
                **options,
            )
        else:
            maker = functools.partial(_make_single, env_id, render_mode=render_mode, **options)
            vector = SingleEnvsVectorEnv([maker] * num_envs, spec.max_episode_steps, mode)
    except TypeError as error:  # what an option that does not exist, or of the wrong kind, raises
        if not options:
            raise
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise InputError(f"'{env_id}' cannot be made with these options ({given}): {error}") from None
    check_spaces(vector.single_observation_space, vector.single_action_space)
    return vector


def make_probe(env_id: str, episodes: int | None = None, **options: Any) -> VectorEnv[Any, Any, Any]:
    """A simulator for TEST, evaluation and diagnostics: no autoreset, and no more slots than gain something.

    If `episodes` says how many there will be to play, the slots are as many, or so many that equal waves of them are.
    """
    spec = find_spec(env_id)
    if spec.id in FETCH_IDS:
        return make_vector(env_id, _slots(episodes, SIMULATOR_SLOTS), autoreset=False, **options)
    if is_vectorised(spec):
        return make_vector(env_id, episodes or PROBE_SLOTS, autoreset=False, **options)
    first = make_vector(env_id, 1, autoreset=False, **options)
    assert isinstance(first, SingleEnvsVectorEnv)
    if episodes is None and not first.restorable:
        return first  # of no use to TEST, which says so
    another = functools.partial(_make_single, env_id, None, **options)
    return side_by_side(first, another, _slots(episodes, SINGLE_SLOTS))


def _slots(episodes: int | None, most: int) -> int:
    """So many slots that episodes are played in equal waves of them."""
    return most if episodes is None else -(-episodes // -(-episodes // most))


def as_probe(make: Callable[[], Any], slots: int = SINGLE_SLOTS) -> VectorEnv[Any, Any, Any]:
    """What `make` makes as a simulator: a vector environment is one; single ones become slots of one."""
    first = make()
    if not isinstance(first, gym.Env):
        vector: VectorEnv[Any, Any, Any] = first
        return vector
    if not is_restorable(first):
        slots = 1  # nothing is known of it but that there may be one
    makers = [lambda: restorable(first), *[lambda: restorable(make())] * (slots - 1)]
    return SingleEnvsVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)


def is_vectorised(spec: gym.envs.registration.EnvSpec) -> bool:
    """Whether the environment steps all its slots at once, as we need it, so that more of them cost little."""
    entry = spec.vector_entry_point
    if entry is None:
        return False
    creator = gym.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    return "autoreset_mode" in inspect.signature(creator).parameters


def restorable(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """The environment with saved states, if MuJoCo makes them possible."""
    if not is_restorable(env):
        return env
    return RestorableFetch(env) if is_fetch(env) else RestorableMujoco(env)


def check_reward(env_id: str, **options: Any) -> None:
    """Refuse an environment whose reward is dense, after trying a few goals."""
    vector = make_vector(env_id, num_envs=1, autoreset=False, **options)
    starts = [vector.reset(seed=seed)[0] for seed in range(6)]
    achieved, desired = (np.concatenate([start[key] for start in starts]) for key in KEYS[1:])
    check_sparse(vector, achieved, desired)
    vector.close()


def _make_single(env_id: str, render_mode: str | None, **options: Any) -> gym.Env[Any, Any]:
    if render_mode is not None:
        options["render_mode"] = render_mode
    # The vector environment counts the steps, so that a probe can go past the horizon and a saved state knows its time.
    env: gym.Env[Any, Any] = gym.make(env_id, max_episode_steps=-1, disable_env_checker=True, **options)
    return restorable(env)
