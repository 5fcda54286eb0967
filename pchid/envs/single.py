"""Goal environments that exist only one at a time, as one vector environment.

In: functions that make single Gymnasium environments. Out: a vector environment with the same conduct as the
domains': episodes seeded by (slot seed, episode number), same-step autoreset or none, saved states if they have any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from pchid.envs.randomness import episode_keys

Observations = dict[str, NDArray[Any]]


class SingleEnvsVectorEnv(VectorEnv[Observations, NDArray[Any], NDArray[Any]]):
    """Steps its environments one after the other and ends their episodes after `horizon` steps."""

    def __init__(
        self,
        makers: Sequence[Callable[[], gym.Env[Any, Any]]],
        horizon: int | None = None,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        self.envs = [make() for make in makers]
        self.num_envs = len(self.envs)
        self.horizon = horizon
        self.autoreset_mode = autoreset_mode
        self.spec = self.envs[0].spec
        self.render_mode = self.envs[0].render_mode
        self.metadata = {**self.envs[0].metadata, "autoreset_mode": autoreset_mode}
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.seeds = np.zeros(self.num_envs, np.uint64)
        self.episode_numbers = np.zeros(self.num_envs, np.int64)
        self.elapsed = np.zeros(self.num_envs, np.int64)

    @property
    def restorable(self) -> bool:
        """Whether every environment can save and restore its state."""
        return all(_has(env, name) for env in self.envs for name in ("get_state", "set_state", "observe"))

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode in every slot; `options={"episode": n}` says which episode of the seeds to start."""
        if seed is not None:
            given = [seed + slot for slot in range(self.num_envs)] if isinstance(seed, int) else list(seed)
            self.seeds = np.array(given, np.uint64)
            self.episode_numbers[:] = 0
        elif not self.seeds.any():
            self.seeds = np.asarray(self.np_random.integers(2**31, size=self.num_envs), np.uint64)
        else:
            self.episode_numbers += 1
        if options and "episode" in options:
            self.episode_numbers[:] = options["episode"]
        return _stack([self._start(slot) for slot in range(self.num_envs)]), {}

    def _start(self, slot: int) -> Observations:
        # The first episode takes the seed itself, so that it is the episode which the plain environment starts with.
        episode = self.episode_numbers[slot : slot + 1]
        seed = self.seeds[slot] if episode[0] == 0 else episode_keys(self.seeds[slot : slot + 1], episode)[0] >> 33
        self.elapsed[slot] = 0
        observation: Observations = self.envs[slot].reset(seed=int(seed))[0]
        return observation

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step every environment; under same-step autoreset a finished one shows its next episode's start."""
        results = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        self.elapsed += 1
        observations = [result[0] for result in results]
        rewards = np.array([result[1] for result in results], np.float64)
        terminated = np.array([result[2] for result in results], bool)
        truncated = np.array([result[3] for result in results], bool)
        if self.horizon is not None:
            truncated |= self.elapsed >= self.horizon
        infos: dict[str, Any] = {}
        for slot, result in enumerate(results):
            info = result[4]
            if self.autoreset_mode == AutoresetMode.SAME_STEP and (terminated[slot] or truncated[slot]):
                infos = self._add_info(infos, {"final_obs": observations[slot], "final_info": info}, slot)
                self.episode_numbers[slot] += 1
                observations[slot] = self._start(slot)
                info = {}
            infos = self._add_info(infos, info, slot)
        return _stack(observations), rewards, terminated, truncated, infos

    def get_state(self) -> NDArray[np.float64]:
        """Steps taken in the episode and the environment's own state, one row a slot."""
        own = [np.ravel(env.get_wrapper_attr("get_state")()) for env in self.envs]
        return np.column_stack([self.elapsed.astype(np.float64), np.stack(own)])

    def set_state(self, states: NDArray[np.float64], slots: NDArray[np.int64] | None = None) -> None:
        """Put saved states into the given slots, by default into all."""
        for state, slot in zip(states, range(self.num_envs) if slots is None else slots, strict=True):
            self.elapsed[slot] = int(state[0])
            self.envs[slot].get_wrapper_attr("set_state")(state[1:])

    def observe(self) -> Observations:
        """The current observations, without a step."""
        return _stack([env.get_wrapper_attr("observe")() for env in self.envs])

    def get_wrapper_attr(self, name: str) -> Any:
        """An attribute of the environments, which are all alike: the first one's."""
        return self.envs[0].get_wrapper_attr(name)

    def render(self) -> tuple[Any, ...]:
        """One frame of each environment."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()


def _stack(observations: list[Observations]) -> Observations:
    return {key: np.stack([observation[key] for observation in observations]) for key in observations[0]}


def _has(env: gym.Env[Any, Any], name: str) -> bool:
    try:
        env.get_wrapper_attr(name)
    except AttributeError:
        return False
    return True
