"""Goal environments that exist only one at a time, as one vector environment.

In: functions that make single Gymnasium environments. Out: a vector environment with the same conduct as the
domains': episodes seeded by (slot seed, episode number), same-step autoreset or none, saved states if they have any.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from pchid.envs.mujoco import RestorableMujoco
from pchid.envs.parallel import Threads
from pchid.envs.randomness import SeededSlots, SlotEpisodes

Observations = dict[str, NDArray[Any]]

WORTH_A_THREAD = 200e-6
"""Seconds that a step must take for threads to pay: AntMaze's 600 µs become 400, but PointMaze's 60 become 150."""


class SingleEnvsVectorEnv(SeededSlots, VectorEnv[Observations, NDArray[Any], NDArray[Any]]):
    """Steps its environments one by one, in threads if it pays, and ends their episodes after `horizon` steps."""

    def __init__(
        self,
        makers: Sequence[Callable[[], gym.Env[Any, Any]]],
        horizon: int | None = None,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        threads: int | None = None,
    ) -> None:
        """`threads` default to the cores for MuJoCo, which releases the GIL, and to 1 for all else."""
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
        self._episodes = SlotEpisodes(self.num_envs)
        self.elapsed = np.zeros(self.num_envs, np.int64)
        self.of_mujoco = all(isinstance(env, RestorableMujoco) for env in self.envs)
        self._threads = Threads(threads if self.of_mujoco else threads or 1)
        self._pays: bool | None = None if self._threads.count > 1 else False

    @property
    def restorable(self) -> bool:
        """Whether every environment can save and restore its state."""
        return all(_has(env, name) for env in self.envs for name in ("get_state", "set_state", "observe"))

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode in every slot; `options={"episode": n}` says which episode of the seeds to start."""
        every = np.ones(self.num_envs, bool)
        if seed is not None:
            self._episodes.seed(seed, every)
        starts = self._start(every, (options or {}).get("episode"))
        return _stack(list(starts.values())), {}

    def _start(self, slots: NDArray[np.bool_], numbers: Any = None) -> dict[int, Observations]:
        """Start the next (or the given) episode in the slots of the mask; returns what each shows."""
        self._episodes.ensure_seeds(self.np_random)
        self._episodes.advance(slots, numbers)
        self.elapsed[slots] = 0
        chosen = np.flatnonzero(slots)
        seeds = self._episodes.reset_seeds(chosen)
        return {int(slot): self.envs[slot].reset(seed=seed)[0] for slot, seed in zip(chosen, seeds, strict=True)}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step every environment; under same-step autoreset a finished one shows its next episode's start."""
        results = self._results(actions, np.arange(self.num_envs))
        observations = [result[0] for result in results]
        rewards = np.array([result[1] for result in results], np.float64)
        terminated = np.array([result[2] for result in results], bool)
        truncated = np.array([result[3] for result in results], bool)
        if self.horizon is not None:
            truncated |= self.elapsed >= self.horizon
        over = (terminated | truncated) & (self.autoreset_mode == AutoresetMode.SAME_STEP)
        ends = {int(slot): copy.deepcopy(observations[slot]) for slot in np.flatnonzero(over)}
        starts = self._start(over) if over.any() else {}
        infos: dict[str, Any] = {}
        for slot, result in enumerate(results):
            if over[slot]:
                infos = self._add_info(infos, {"final_obs": ends[slot], "final_info": result[4]}, slot)
                observations[slot] = starts[slot]
            else:
                infos = self._add_info(infos, result[4], slot)
        return _stack(observations), rewards, terminated, truncated, infos

    def advance(self, actions: NDArray[Any], slots: NDArray[np.int64]) -> Observations:
        """Take one action in each of the given slots alone, and return what these show: what a probe needs."""
        return _stack([result[0] for result in self._results(actions, slots)])

    def _results(self, actions: NDArray[Any], slots: NDArray[np.int64]) -> list[Any]:
        """What each environment's step returned."""
        work = list(zip((self.envs[slot] for slot in slots.tolist()), actions, strict=True))
        self.elapsed[slots] += 1
        if self._pays:
            return self._threads.map(_step, work)
        start = time.perf_counter()
        results = [_step(item) for item in work]
        if self._pays is None and len(work) > 1:  # only the speed depends on this, never a result
            self._pays = time.perf_counter() - start > WORTH_A_THREAD * len(work)
        return results

    def get_state(self) -> NDArray[Any]:
        """Steps taken in the episode and the environment's own state, one row a slot, in the type of the latter.

        Whole numbers are widened: a byte could not count the steps.
        """
        own = np.stack([np.ravel(env.get_wrapper_attr("get_state")()) for env in self.envs])
        kind = own.dtype if own.dtype.kind == "f" else np.result_type(own.dtype, np.int64)
        return np.column_stack([self.elapsed.astype(kind), own.astype(kind)])

    def set_state(self, states: NDArray[Any], slots: NDArray[np.int64] | None = None) -> None:
        """Put saved states into the given slots, by default into all."""
        for state, slot in zip(states, range(self.num_envs) if slots is None else slots, strict=True):
            self.elapsed[slot] = int(state[0])
            self.envs[slot].get_wrapper_attr("set_state")(state[1:])

    def observe(self) -> Observations:
        """The current observations, without a step."""
        return _stack([env.get_wrapper_attr("observe")() for env in self.envs])

    def render(self) -> tuple[Any, ...]:
        """One frame of each environment."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        self._threads.close()
        for env in self.envs:
            env.close()


def _step(work: tuple[gym.Env[Any, Any], NDArray[Any]]) -> Any:
    env, action = work
    return env.step(action)


def _stack(observations: list[Observations]) -> Observations:
    return {key: np.stack([observation[key] for observation in observations]) for key in observations[0]}


def _has(env: gym.Env[Any, Any], name: str) -> bool:
    try:
        env.get_wrapper_attr(name)
    except AttributeError:
        return False
    return True
