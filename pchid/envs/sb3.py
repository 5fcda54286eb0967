"""The one adapter from a Gymnasium vector environment to Stable-Baselines3's `VecEnv`.

In: a vector environment with same-step autoreset. Out: a `VecEnv` whose infos carry `terminal_observation`,
`TimeLimit.truncated` and `is_success`, as every algorithm of Stable-Baselines3 expects them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from pchid.envs.make import as_probe, make_probe, make_vector, restorable
from pchid.envs.randomness import slot_seeds
from pchid.envs.single import SingleEnvsVectorEnv
from pchid.errors import InputError
from pchid.goals import is_restorable

MakeProbe = Callable[[], VectorEnv[Any, Any, Any]]


class GoalVecEnv(VecEnv):
    """A Gymnasium vector environment as a `VecEnv`; its episodes are seeded by (seed, slot, episode)."""

    def __init__(self, vector: VectorEnv[Any, Any, Any], make_probe: MakeProbe | None = None) -> None:
        """`make_probe` gives a simulator of the same kind without autoreset, for TEST and diagnostics."""
        if vector.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
            raise InputError("GoalVecEnv needs a vector environment with autoreset_mode=AutoresetMode.SAME_STEP")
        self.vector: Any = vector
        self.make_probe = make_probe
        super().__init__(vector.num_envs, vector.single_observation_space, vector.single_action_space)
        self._actions: NDArray[Any] = np.empty(0)

    @classmethod
    def make(cls, env_id: str, num_envs: int = 1, render_mode: str | None = None, **options: Any) -> GoalVecEnv:
        """`num_envs` environments of a Gymnasium id; `options` reach the environment."""
        vector = make_vector(env_id, num_envs, render_mode=render_mode, **options)
        return cls(vector, lambda: make_probe(env_id, **options))

    @classmethod
    def of_single(cls, env: gym.Env[Any, Any]) -> GoalVecEnv:
        """One slot around an environment that exists already; its probe is made from its `spec`."""
        spec = env.unwrapped.spec  # without wrappers: a probe needs the dynamics alone

        def make_probe() -> VectorEnv[Any, Any, Any]:
            assert spec is not None
            return as_probe(lambda: gym.make(spec))

        return cls(SingleEnvsVectorEnv([lambda: restorable(env)]), make_probe if spec is not None else None)

    def state(self) -> dict[str, Any]:
        """Where each slot is, for a checkpoint: its seed, its episode and, if it can be restored, its state."""
        vector = self.vector
        state = {"seeds": vector.seeds, "episode_numbers": vector.episode_numbers}
        return {**state, "states": vector.get_state()} if is_restorable(vector) else state

    def load_state(self, state: dict[str, Any]) -> None:
        """Go back to a checkpoint; an environment that cannot be restored starts its episodes again."""
        self.vector.reset(seed=state["seeds"].tolist(), options={"episode": state["episode_numbers"]})
        if "states" in state:
            self.vector.set_state(state["states"])

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the next reset; every slot gets a stream of episodes of its own."""
        if seed is None:
            return super().seed(None)
        self._seeds = list(slot_seeds(seed, self.num_envs))
        return self._seeds

    def reset(self) -> dict[str, NDArray[Any]]:
        """Start an episode in every slot."""
        observations: dict[str, NDArray[Any]]
        observations, _ = self.vector.reset(seed=None if self._seeds[0] is None else self._seeds)
        self._reset_seeds()
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[dict[str, NDArray[Any]], NDArray[Any], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step all slots; the infos of a finished one describe the episode that ended."""
        observations, rewards, terminated, truncated, infos = self.vector.step(self._actions)
        dones = terminated | truncated
        success = np.array(infos.get("is_success", np.zeros(self.num_envs)), np.float64)
        final = infos.get("final_info", {})
        if "is_success" in final:
            success[dones] = np.asarray(final["is_success"], np.float64)[dones]
        slot_infos: list[dict[str, Any]] = [
            {"is_success": bool(reached), "TimeLimit.truncated": bool(cut and not ended)}
            for reached, cut, ended in zip(success, truncated, terminated, strict=True)
        ]
        for slot in np.flatnonzero(dones):
            slot_infos[slot]["terminal_observation"] = infos["final_obs"][slot]
        return observations, rewards.astype(np.float32), dones, slot_infos

    def close(self) -> None:
        """Close the vector environment."""
        self.vector.close()

    def get_images(self) -> Sequence[NDArray[Any] | None]:
        """One frame of each slot."""
        return self.vector.render() or []

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the vector environment, which all slots share."""
        return [self._find(attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the vector environment, for all slots."""
        setattr(self.vector, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of the vector environment once; every slot gets its result."""
        return [self._find(method_name)(*method_args, **method_kwargs)] * len(list(self._get_indices(indices)))

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: Any = None) -> list[bool]:
        """No slot is wrapped by itself."""
        return [False] * len(list(self._get_indices(indices)))

    def _find(self, name: str) -> Any:
        if hasattr(self.vector, "envs") and not hasattr(self.vector, name):
            return self.vector.envs[0].get_wrapper_attr(name)
        return getattr(self.vector, name)
