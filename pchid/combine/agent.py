"""An algorithm of Stable-Baselines3, with or without a hindsight module, as a run directory wants it.

In: the settings of a run. Out: an agent that trains for episodes or steps, is saved and loaded as data, and goes on
exactly from a checkpoint.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save as save_arrays
from stable_baselines3 import DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from pchid.checkpoint import load_checkpoint, load_module_state, numbers, save_checkpoint, write_atomically
from pchid.combine.averaged import AveragedOutputs
from pchid.combine.features import GoalFeatures
from pchid.combine.guidance import Guidance
from pchid.combine.hindsight_ppo import HindsightPPO
from pchid.combine.intrinsic import IntrinsicReward
from pchid.combine.joint import JointTraining
from pchid.combine.module import HindsightModule, SeparateModule
from pchid.combine.noise import EpisodeNoise
from pchid.combine.replay import HindsightReplayBuffer
from pchid.combine.state import load_model_state, model_state
from pchid.combine.student import network_of
from pchid.config import shared_settings
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError
from pchid.methods import Method, parse_method
from pchid.networks.vin import VinExtractor, pass_scores_on
from pchid.saving import FORMAT, describe, read_agent, with_suffix

Array = NDArray[Any]
ALGORITHMS: dict[str, type[BaseAlgorithm]] = {"dqn": DQN, "ppo": PPO, "ddpg": DDPG, "td3": TD3, "sac": SAC}
STRATEGIES: dict[str, type[HindsightModule]] = {
    "joint": JointTraining,
    "average": AveragedOutputs,
    "intrinsic": IntrinsicReward,
    "guide": Guidance,
}


class _EnoughError(Exception):
    """The episodes that were asked for have ended, between two rollouts."""


class _EpisodeCount(BaseCallback):
    """Counts the episodes and ends the training with the last one that is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.episodes = 0
        self.wanted: int | None = None

    @property
    def enough(self) -> bool:
        return self.wanted is not None and self.episodes >= self.wanted

    def _on_rollout_start(self) -> None:
        if self.enough:
            raise _EnoughError  # a callback cannot end the training here otherwise

    def _on_step(self) -> bool:
        self.episodes += int(np.sum(self.locals["dones"]))
        # In the last step of a rollout, what was collected is still to be learned from.
        last = "n_steps" not in self.locals or self.locals["n_steps"] + 1 >= self.locals["n_rollout_steps"]
        return last or not self.enough


class CombinedAgent:
    """What a run needs of an agent: train, act, count, save, and go on."""

    def __init__(self, model: BaseAlgorithm, module: HindsightModule | None, settings: dict[str, Any]) -> None:
        """`settings` is what `make_agent` builds the same agent from."""
        self.model, self.module, self.settings = model, module, settings
        self._count = _EpisodeCount()
        if module is not None:
            module.prepare(model)

    @property
    def episodes(self) -> int:
        """Episodes that have ended."""
        return self._count.episodes

    @property
    def num_timesteps(self) -> int:
        """Environment steps."""
        return self.model.num_timesteps

    @property
    def test_steps(self) -> int:
        """Simulator steps spent inside TEST."""
        return 0 if self.module is None else self.module.test_steps

    @property
    def K(self) -> int | None:
        """The longest piece that is learned from now."""
        return None if self.module is None else self.module.learner.curriculum.K[-1]

    def learn(self, total_timesteps: int, callback: BaseCallback, total_episodes: int | None = None) -> None:
        """Train until so many steps, or episodes, have been made in all."""
        modules = [] if self.module is None else [self.module]
        self._count.wanted = total_episodes
        # The module learns from what has ended before the run looks at the result.
        callbacks = CallbackList([*modules, callback, self._count])
        try:
            self.model.learn(
                total_timesteps - self.model.num_timesteps, callbacks, log_interval=10, reset_num_timesteps=False
            )
        except _EnoughError:
            callbacks.on_training_end()

    def set_logger(self, logger: Any) -> None:
        """Where the algorithm logs to."""
        self.model.set_logger(logger)

    def predict(self, observation: dict[str, Array], deterministic: bool = True) -> tuple[Array, Any]:
        """The action that algorithm and module decide on."""
        return self.model.predict(observation, deterministic=deterministic)

    def diagnostics(self) -> dict[str, Any]:
        """What the module knows of itself, for the metrics of a run."""
        return {"K": None, "loss": None} if self.module is None else self.module.diagnostics()

    def state(self) -> dict[str, Any]:
        """Everything that training depends on, for an exact checkpoint between two rollouts."""
        return {
            "model": model_state(self.model),
            "module": {} if self.module is None else self.module.state(),
            "episodes": self.episodes,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on as if training had never stopped."""
        load_model_state(self.model, state["model"])
        if "states" not in state["model"]["environment"]:
            warnings.warn(
                "these environments cannot be restored, so the run goes on with new episodes and not exactly as it was",
                stacklevel=2,
            )
        if self.module is not None:
            self.module.load_state(state["module"])
        self._count.episodes = state["episodes"]

    def save(self, path: str | Path) -> None:
        """Write what acts of the trained agent to one safetensors file: critics and targets are left out."""
        target = with_suffix(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        header = {
            "format": FORMAT,
            "algorithm": "CombinedAgent",
            "settings": self.settings,
            "trained": self.module is not None and self.module.updates > 0,
            "observation_space": {key: describe(s) for key, s in self.model.observation_space.spaces.items()},  # type: ignore[attr-defined]
            "action_space": describe(self.model.action_space),
            "steps": self.num_timesteps,
            "episodes": self.episodes,
        }
        arrays = {
            f"{part}.{name}": value.detach().cpu().numpy()
            for part, network in self._networks().items()
            for name, value in sorted(network.state_dict().items())
        }
        write_atomically(target, save_arrays(arrays, metadata={"pchid": json.dumps(header, sort_keys=True)}))

    @classmethod
    def load(cls, path: str | Path, env: GoalVecEnv, device: torch.device | str = "cpu") -> CombinedAgent:
        """Read an agent back, to act in environments like those that it was trained in."""
        source = Path(path) if Path(path).exists() else with_suffix(path)
        header, arrays = read_agent(source)
        if header.get("algorithm") != "CombinedAgent":
            raise InputError(
                f"{source} holds a {header.get('algorithm')} agent; load it with {header.get('algorithm')}.load"
            )
        try:
            agent = make_agent(_for_acting(header["settings"], str(device)), env)
            for part, module in agent._networks().items():
                own = {
                    name.removeprefix(f"{part}."): value
                    for name, value in arrays.items()
                    if name.startswith(f"{part}.")
                }
                load_module_state(module, own)
            if agent.module is not None and header["trained"]:
                agent.module.learner.updates = 1
        except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{source} is damaged: its header and arrays do not make an agent ({reason})") from error
        return agent

    def _networks(self) -> dict[str, torch.nn.Module]:
        own = {"policy": network_of(self.model.policy)}
        return {**own, "network": self.module.network} if isinstance(self.module, AveragedOutputs) else own


def _for_acting(config: dict[str, Any], device: str) -> dict[str, Any]:
    """The settings without what only training needs: TEST, HER, buffers."""
    settings = config["sb3_settings"]
    kept = {name: settings[name] for name in ("policy_kwargs", "goal_features") if name in settings}
    if parse_method(config["method"]).base != "ppo":
        kept["buffer_size"] = 1
    method = config["method"].replace("+her", "")
    return {**config, "method": method, "sb3_settings": kept, "test": "none", "test_budget": None, "device": device}


def make_agent(config: dict[str, Any], env: GoalVecEnv) -> CombinedAgent:
    """The agent that the settings of a run describe, in the given environments."""
    method = parse_method(config["method"])
    model = make_model(method, config, env)
    module = make_module(method, config) if method.module is not None else None
    return CombinedAgent(model, module, config)


def make_model(method: Method, config: dict[str, Any], env: GoalVecEnv) -> BaseAlgorithm:
    """The algorithm of Stable-Baselines3, with HER if the method says so."""
    assert method.base is not None
    settings = dict(config["sb3_settings"])
    if not isinstance(settings.get("policy_kwargs", {}), dict):
        raise InputError(f"policy_kwargs is a dictionary of settings, not {settings['policy_kwargs']!r}")
    for name in ("use_sde", "optimize_memory_usage"):
        if settings.get(name):
            raise InputError(f"{name} cannot be resumed exactly, so pchid train does not take it; use the callback")
    kind: Any = HindsightPPO if method.base == "ppo" and method.her else ALGORITHMS.get(method.base) or _tqc()
    if issubclass(kind, OnPolicyAlgorithm):
        settings.pop("n_sampled_goal", None)
        if not method.her:
            settings.pop("her_ratio", None)
    else:
        n_sampled_goal, symmetries = settings.pop("n_sampled_goal", 4), settings.pop("symmetries", False)
        settings.pop("her_ratio", None)
        if symmetries and not method.her:
            raise InputError("symmetries are of the replay buffer that +her brings; leave them out, or add +her")
        if method.her:
            settings["replay_buffer_class"] = HindsightReplayBuffer
            settings["replay_buffer_kwargs"] = {
                "n_sampled_goal": n_sampled_goal,
                "goal_selection_strategy": "future",
                "symmetries": symmetries,
            }
        if method.her:  # nothing can be sampled before the first episode has ended
            horizon = getattr(env.vector, "horizon", None) or 0
            settings["learning_starts"] = max(settings.get("learning_starts", 100), horizon * env.num_envs)
        settings |= _action_noise(settings, env, config["combine"] == "guide" and config["noise"] is not None)
    policy_kwargs = dict(settings.pop("policy_kwargs", {}))
    if settings.pop("goal_features", False):
        policy_kwargs["features_extractor_class"] = GoalFeatures
    if config["policy"] == "VinPolicy":
        given = config["policy_settings"]
        of_network = {name: value for name, value in given.items() if not name.startswith("averaging")}
        policy_kwargs |= {"features_extractor_class": VinExtractor, "features_extractor_kwargs": of_network}
        policy_kwargs |= {"net_arch": []}
    try:
        model: BaseAlgorithm = kind(
            "MultiInputPolicy",
            env,
            policy_kwargs=policy_kwargs,
            seed=config["seed"],
            device=config["device"],
            **settings,
        )
    except TypeError as error:
        raise InputError(f"{kind.__name__} does not take these settings ({', '.join(settings)}): {error}") from None
    except (ValueError, AssertionError) as error:
        raise InputError(
            f"{kind.__name__} cannot be made for '{config['env']}': {str(error).splitlines()[0]}"
        ) from None
    if config["policy"] == "VinPolicy":
        pass_scores_on(model.policy)
    return model


def _action_noise(settings: dict[str, Any], env: GoalVecEnv, by_episode: bool) -> dict[str, Any]:
    """The noise that the settings ask for, which they are relieved of: one scale throughout, or one an episode.

    `by_episode` asks for the latter in any case, so that guidance can set it.
    """
    noise, least = settings.pop("action_noise", 0.0 if by_episode else None), settings.pop("least_action_noise", None)
    persistence = settings.pop("persistence", 0.0)
    if noise is None:
        return {}
    for value in (noise, least, persistence):
        if value is not None and (not isinstance(value, int | float) or not value >= 0):
            raise InputError(f"action_noise is the standard deviation of a Gaussian, not {value!r}")
    shape = env.action_space.shape or ()
    if least is None and not persistence and not by_episode:
        return {"action_noise": NormalActionNoise(np.zeros(shape), np.full(shape, noise))}
    return {"action_noise": EpisodeNoise(int(np.prod(shape)), noise, noise if least is None else least, persistence)}


def make_module(method: Method, config: dict[str, Any]) -> HindsightModule:
    """The hindsight module that goes with it."""
    kind = STRATEGIES[config["combine"]]
    own: dict[str, Any] = {}
    if issubclass(kind, SeparateModule):
        own = {"policy": config["policy"], "policy_kwargs": config["policy_settings"]}
    if "actor_starts" in config:
        own |= {"actor_starts": config["actor_starts"]}
    if kind is Guidance:
        own |= {name: config[name] for name in ("noise", "least_noise", "persistence") if name in config}
    return kind(weight=config["weight"], evolve=method.module == "pehid", **shared_settings(config), **own)


def save_training(directory: str | Path, model: BaseAlgorithm, module: HindsightModule) -> None:
    """Write all that `model.learn(..., callback=module)` needs to go on exactly, as data, to the next checkpoint there.

    Call it between two calls of `learn`, or in a callback at the start of a rollout.
    """
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    found = numbers(path)
    save_checkpoint(path, found[-1] + 1 if found else 1, {"model": model_state(model), "module": module.state()})


def load_training(directory: str | Path, model: BaseAlgorithm, module: HindsightModule) -> None:
    """Put the newest checkpoint into a model and a module made as those before; then learn with
    `reset_num_timesteps=False`."""
    module.prepare(model)
    saved = load_checkpoint(Path(directory), None)
    load_model_state(model, saved["model"])
    module.load_state(saved["module"])


def _tqc() -> type[BaseAlgorithm]:
    try:
        from sb3_contrib import TQC
    except ImportError:
        raise InputError("TQC comes with sb3-contrib; install it with: pip install 'pchid[contrib]'") from None
    kind: type[BaseAlgorithm] = TQC
    return kind
