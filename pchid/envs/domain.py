"""The shared base of the discrete goal domains (Sec. 3.2, Sec. 4.1 and the introduction's Tower of Hanoi).

A domain is a set of pure functions over rows of integers: one row holds everything that an episode needs
(steps taken, state, goal). The vector environment keeps one (N, S) array of such rows, so saving, restoring
and stepping are array operations over all slots, and the single environment is a vector of one slot.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Env, logger
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Dict, Discrete, Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from pchid.envs.randomness import SeededSlots, SlotEpisodes
from pchid.errors import InputError

Observations = dict[str, NDArray[Any]]
States = NDArray[np.int64]
Flags = NDArray[np.bool_]

RENDER_MODES = ["ansi", "rgb_array"]
METADATA: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": 4}
MAX_ATTEMPTS = 10_000

ELAPSED = 0  # the column of a state row that counts the steps taken; a domain's own columns follow


class DomainVectorEnv(SeededSlots, VectorEnv[Observations, NDArray[np.int64], NDArray[Any]]):
    """Many slots of one goal domain, stepped together, with same-step autoreset (or none).

    Without autoreset, a slot that is stepped past its end simply goes on: TEST and the evaluation decide
    for themselves when to stop looking.
    """

    metadata: dict[str, Any] = METADATA

    def __init__(
        self,
        num_envs: int,
        render_mode: str | None,
        autoreset_mode: AutoresetMode | str,
        *,
        observation_space: Space[Any],
        goal_space: Space[Any],
        n_actions: int,
        state_size: int,
        horizon: int,
        success_reward: float,
        step_reward: float,
    ) -> None:
        """Set up the spaces and the state rows; `state_size` counts the columns after the elapsed steps."""
        if num_envs < 1:
            raise InputError(f"num_envs must be at least 1, got {num_envs}.")
        if horizon < 1:
            raise InputError(f"horizon must be at least 1, got {horizon}.")
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise InputError(f"render_mode must be None or one of {RENDER_MODES}, got {render_mode!r}.")
        mode = AutoresetMode(autoreset_mode)
        if mode not in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
            raise InputError(f"autoreset_mode must be SAME_STEP or DISABLED, got {mode.name}.")
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.autoreset_mode = mode
        self.metadata = {**METADATA, "autoreset_mode": mode}
        self.single_observation_space = Dict(
            observation=observation_space, achieved_goal=goal_space, desired_goal=goal_space
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.single_action_space = Discrete(n_actions)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.horizon = horizon
        self.success_reward = success_reward
        self.step_reward = step_reward
        self._n_actions = n_actions
        self._goal_shape: tuple[int, ...] = goal_space.shape or ()
        self._states: States = np.zeros((num_envs, 1 + state_size), dtype=np.int64)
        self._episodes = SlotEpisodes(num_envs)
        self._every: Flags = np.ones(num_envs, dtype=np.bool_)
        self._started = False

    # What a domain defines, over state rows (P, S).

    @abstractmethod
    def _propose(self, keys: NDArray[np.uint64], attempt: int) -> tuple[States, Flags]:
        """Draw one episode for each key; return the rows, and which of them are acceptable."""

    @abstractmethod
    def _move(self, states: States, actions: NDArray[np.int64]) -> None:
        """Apply one action to each row, in place."""

    @abstractmethod
    def _observation(self, states: States) -> NDArray[Any]:
        """Return what the agent sees, without the goal, as a new array."""

    @abstractmethod
    def _achieved(self, states: States) -> NDArray[Any]:
        """Return the achieved goals m(s) as a new array."""

    @abstractmethod
    def _desired(self, states: States) -> NDArray[Any]:
        """Return the desired goals as a new array."""

    @abstractmethod
    def _distance(self, states: States, goals: NDArray[Any]) -> NDArray[np.float64]:
        """Return the least number of steps from each row to each goal."""

    @abstractmethod
    def _text(self, state: NDArray[np.int64]) -> str:
        """Draw one row as text."""

    @abstractmethod
    def _picture(self, state: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Draw one row as an RGB image."""

    # Episodes.

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observations, dict[str, Any]]:
        """Start a new episode in each slot.

        An integer seed gives slot i `seed + i`, a sequence one seed to each, and either starts again at
        episode 0; without one the next episode follows. `options` may hold `episode` (one number, or one
        for each slot) and `reset_mask` (which slots to reset; the others go on).
        """
        options = options or {}
        mask = self._reset_mask(options.get("reset_mask"))
        if seed is not None:
            self._episodes.seed(seed, mask)
            super().reset(seed=int(seed) if isinstance(seed, (int, np.integer)) else None)
        self._begin(mask, options.get("episode"))
        self._started = True
        return self.observe(), self._success_info(self._reached(self._states), mask)

    def _reset_mask(self, mask: Any) -> Flags:
        if mask is None:
            return self._every
        array = np.asarray(mask)
        if array.dtype != np.bool_ or array.shape != (self.num_envs,) or not array.any():
            raise InputError(f"options['reset_mask'] must be {self.num_envs} booleans, not all false, got {mask}.")
        return array

    def _begin(self, mask: Flags, numbers: Any = None) -> None:
        """Put the next episodes, or those with the given numbers, into the slots of the mask."""
        self._episodes.ensure_seeds(self.np_random)
        self._episodes.advance(mask, numbers)
        pending = np.flatnonzero(mask)
        keys = self._episodes.keys(pending)
        for attempt in range(MAX_ATTEMPTS):
            states, acceptable = self._propose(keys, attempt)
            self._states[pending[acceptable]] = states[acceptable]
            pending, keys = pending[~acceptable], keys[~acceptable]
            if not len(pending):
                return
        raise RuntimeError(f"{self} drew no episode with a reachable goal in {MAX_ATTEMPTS} attempts.")

    def observe(self) -> Observations:
        """Return the current observations, as new arrays."""
        if not self._started:
            raise ResetNeeded("Call reset (or set_state) before observing or stepping.")
        return self._observations(self._states)

    def _observations(self, states: States) -> Observations:
        return {
            "observation": self._observation(states),
            "achieved_goal": self._achieved(states),
            "desired_goal": self._desired(states),
        }

    def _reached(self, states: States) -> Flags:
        return np.asarray(self.is_success(self._achieved(states), self._desired(states)))

    @staticmethod
    def _success_info(success: Flags, mask: Flags) -> dict[str, Any]:
        return {"is_success": success & mask, "_is_success": mask.copy()}

    def step(self, actions: ArrayLike) -> tuple[Observations, NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        """Take one action in each slot; slots that end begin their next episode unless autoreset is off."""
        if not self._started:
            raise ResetNeeded("Call reset (or set_state) before observing or stepping.")
        self._move(self._states, self._checked_actions(actions, self.num_envs))
        self._states[:, ELAPSED] += 1
        terminated = self._reached(self._states)
        truncated = self._states[:, ELAPSED] >= self.horizon
        rewards = np.where(terminated, self.success_reward, self.step_reward)
        infos: dict[str, Any] = {}
        done = terminated | truncated
        success = terminated
        if self.autoreset_mode is AutoresetMode.SAME_STEP and done.any():
            infos = self._finish(done, terminated)
            # As in Gymnasium's own vector environments, a slot's top-level info then is its new episode's.
            success = self._reached(self._states)
        infos |= self._success_info(success, self._every)
        return self._observations(self._states), rewards, terminated, truncated, infos

    def _finish(self, done: Flags, success: Flags) -> dict[str, Any]:
        """Start the next episode of the slots that are done, and describe how the last one ended."""
        slots = np.flatnonzero(done)
        last = self._observations(self._states[slots])
        final: NDArray[np.object_] = np.full(self.num_envs, None, dtype=object)
        for index, slot in enumerate(slots):  # Gymnasium wants one dictionary for each ended slot
            final[slot] = {key: values[index] for key, values in last.items()}
        self._begin(done)
        return {
            "final_obs": final,
            "_final_obs": done.copy(),
            "final_info": self._success_info(success, done),
            "_final_info": done.copy(),
        }

    def _checked_actions(self, actions: ArrayLike, count: int) -> NDArray[np.int64]:
        array = np.asarray(actions)
        if array.shape != (count,) or array.dtype.kind not in "iu":
            raise InputError(f"actions must be {count} integers, got shape {array.shape} of {array.dtype}.")
        if (array < 0).any() or (array >= self._n_actions).any():
            raise InputError(f"actions must lie between 0 and {self._n_actions - 1}, got {array}.")
        return array.astype(np.int64)

    # Capabilities.

    def advance(self, actions: ArrayLike, slots: NDArray[np.int64]) -> Observations:
        """Take one action in each of the given slots alone, and return what these show: what a probe needs."""
        states = self._states[slots]
        self._move(states, self._checked_actions(actions, len(slots)))
        states[:, ELAPSED] += 1
        self._states[slots] = states
        return self._observations(states)

    def get_state(self) -> States:
        """Return a copy of the (N, S) rows that the episodes are at."""
        return self._states.copy()

    def set_state(self, states: ArrayLike, slots: ArrayLike | None = None) -> None:
        """Put saved rows, from any slot of any environment with the same options, into all or given slots."""
        indices = np.arange(self.num_envs)
        if slots is not None:
            indices = indices[np.asarray(slots)]
        rows = np.asarray(states)
        expected = (len(indices), self._states.shape[1])
        if rows.shape != expected or rows.dtype.kind not in "iu":
            raise InputError(f"states must be integers of shape {expected}, got {rows.dtype} of {rows.shape}.")
        self._states[indices] = rows
        self._started = True

    def is_success(self, achieved: ArrayLike, desired: ArrayLike) -> Any:
        """Say whether each achieved goal is the desired one: (B,) booleans, or one for one pair."""
        reached = (np.asarray(achieved) == np.asarray(desired)).all(axis=-1)
        return reached if reached.ndim else bool(reached)

    def compute_reward(self, achieved: ArrayLike, desired: ArrayLike, info: Any = None) -> Any:
        """Return the reward for each achieved and desired goal: (B,), or a float for one pair."""
        rewards = np.where(self.is_success(achieved, desired), self.success_reward, self.step_reward)
        return rewards if rewards.ndim else float(rewards)

    def compute_terminated(self, achieved: ArrayLike, desired: ArrayLike, info: Any = None) -> Any:
        """Say whether achieving each goal ends the episode: it does exactly when it is the desired one."""
        return self.is_success(achieved, desired)

    def compute_truncated(self, achieved: ArrayLike, desired: ArrayLike, info: Any = None) -> Any:
        """Return false throughout: the horizon counts steps, and no choice of goal changes it."""
        never = np.zeros(np.asarray(achieved).shape[:-1], dtype=np.bool_)
        return never if never.ndim else False

    def distance(self, states: ArrayLike, goals: ArrayLike) -> NDArray[np.float64]:
        """Return the least number of steps from each of P saved rows to its goal, inf without a way."""
        rows, targets = np.asarray(states), np.asarray(goals)
        if rows.ndim != 2 or rows.shape[1] != self._states.shape[1]:
            raise InputError(f"states must have shape (P, {self._states.shape[1]}), got {rows.shape}.")
        if targets.shape != (len(rows), *self._goal_shape):
            raise InputError(f"goals must have shape {(len(rows), *self._goal_shape)}, got {targets.shape}.")
        return self._distance(rows.astype(np.int64), targets)

    def render(self) -> Any:
        """Return one string or image for each slot, as a tuple."""
        if self.render_mode is None:
            logger.warn("render was called, but the environment was made without a render_mode.")
            return None
        draw = self._text if self.render_mode == "ansi" else self._picture
        return tuple(draw(state) for state in self._states)


class DomainEnv(Env[Observations, np.int64]):
    """One environment of a domain: a vector environment of one slot, without autoreset."""

    metadata: dict[str, Any] = METADATA

    def __init__(self, vector_env: DomainVectorEnv) -> None:
        """Present a one-slot vector environment as a single environment."""
        self.vector_env = vector_env
        self.render_mode = vector_env.render_mode
        self.observation_space = vector_env.single_observation_space
        self.action_space = vector_env.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode; see `DomainVectorEnv.reset`."""
        super().reset(seed=seed)
        self.vector_env.np_random = self.np_random  # the source of a seed if none is ever given
        observations, infos = self.vector_env.reset(seed=seed, options=options)
        return self._first(observations), {"is_success": bool(infos["is_success"][0])}

    def step(self, action: Any) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """Take one action."""
        observations, rewards, terminated, truncated, infos = self.vector_env.step(np.asarray(action)[None])
        info = {"is_success": bool(infos["is_success"][0])}
        return self._first(observations), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), info

    @staticmethod
    def _first(observations: Observations) -> Observations:
        return {key: values[0] for key, values in observations.items()}

    def render(self) -> Any:
        """Return the current state as a string or an image."""
        frames = self.vector_env.render()
        return None if frames is None else frames[0]

    def observe(self) -> Observations:
        """Return the current observation."""
        return self._first(self.vector_env.observe())

    def get_state(self) -> NDArray[np.int64]:
        """Return a copy of the (S,) row that the episode is at."""
        row: NDArray[np.int64] = self.vector_env.get_state()[0]
        return row

    def set_state(self, state: ArrayLike) -> None:
        """Go on from a row that `get_state` returned."""
        self.vector_env.set_state(np.asarray(state)[None])

    def is_success(self, achieved: ArrayLike, desired: ArrayLike) -> Any:
        """See `DomainVectorEnv.is_success`."""
        return self.vector_env.is_success(achieved, desired)

    def compute_reward(self, achieved: ArrayLike, desired: ArrayLike, info: Any = None) -> Any:
        """See `DomainVectorEnv.compute_reward`."""
        return self.vector_env.compute_reward(achieved, desired, info)

    def compute_terminated(self, achieved: ArrayLike, desired: ArrayLike, info: Any = None) -> Any:
        """See `DomainVectorEnv.compute_terminated`."""
        return self.vector_env.compute_terminated(achieved, desired, info)

    def compute_truncated(self, achieved: ArrayLike, desired: ArrayLike, info: Any = None) -> Any:
        """See `DomainVectorEnv.compute_truncated`."""
        return self.vector_env.compute_truncated(achieved, desired, info)

    def distance(self, states: ArrayLike, goals: ArrayLike) -> NDArray[np.float64]:
        """See `DomainVectorEnv.distance`."""
        return self.vector_env.distance(states, goals)
