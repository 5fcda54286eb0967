"""Episodes, and how to collect them: the inner loop of Algorithm 1 (and of Algorithm 2 of the supplement).

In: what a `VecEnv` of Stable-Baselines3 returns, step by step. Out: `Episodes`, a struct of arrays over
(episode, time) with T+1 observations and the T actions that the environment executed.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pchid.goals import KEYS, check_finite

Array = NDArray[Any]

LONG = 8192
"""Steps after which an episode that goes on looks like one that never ends."""
ENDLESS = (
    "an episode has lasted {:,} steps, and nothing is learned from it before it ends; if it never does, give the "
    "environment a time limit (max_episode_steps in gymnasium.register)"
)


@dataclass(frozen=True)
class Episodes:
    """E finished episodes, padded to the longest; `length` says how many steps of each are real."""

    observation: Array
    """(E, T+1, ...)"""
    achieved_goal: Array
    """(E, T+1, ...): m(s_t)."""
    desired_goal: Array
    """(E, ...): the goal that the episode was meant to reach."""
    action: Array
    """(E, T, ...): the action that was executed, never one sampled again."""
    state: Array | None
    """(E, T, S): the environment's saved state before each action, if TEST wants it."""
    length: NDArray[np.int64]
    """(E,)"""
    total_reward: NDArray[np.float64]
    """(E,): the undiscounted return."""
    final_success: NDArray[np.bool_]
    """(E,): whether the goal held at the last step."""

    def __len__(self) -> int:
        return len(self.length)

    def first(self, count: int) -> Episodes:
        """The first `count` of these episodes."""
        cut = {f.name: value[:count] for f in fields(self) if (value := getattr(self, f.name)) is not None}
        return replace(self, **cut)


class Recorder:
    """Gathers the steps of `num_envs` slots and hands out the episodes that have ended."""

    def __init__(self, observation_space: spaces.Dict, action_space: spaces.Space[Any], num_envs: int) -> None:
        self._spaces: dict[str, tuple[tuple[int, ...], Any]] = {
            key: (tuple(observation_space[key].shape or ()), observation_space[key].dtype) for key in KEYS
        }
        self._spaces["action"] = (tuple(action_space.shape or ()), action_space.dtype)
        self._slots = np.arange(num_envs)
        self._time = np.zeros(num_envs, np.int64)
        self._total_reward = np.zeros(num_envs)
        self._steps = 0
        self._arrays = {name: np.zeros((num_envs, 1, *shape), dtype) for name, (shape, dtype) in self._spaces.items()}
        self._grow(64)

    def start(self, observations: dict[str, Array]) -> None:
        """Begin an episode in every slot, from the observations that a reset gave."""
        self._time[:] = 0
        self._total_reward[:] = 0.0
        self._put(self._slots, observations)

    def record(
        self,
        actions: Array,
        observations: dict[str, Array],
        rewards: Array,
        dones: NDArray[np.bool_],
        infos: list[dict[str, Any]],
        states: Array | None = None,
    ) -> Episodes | None:
        """One step of every slot (`states` as saved before it); returns the episodes that it ended, if any."""
        self._steps += len(self._slots)
        check_finite(rewards, "the reward", self._steps)
        if states is not None and "state" not in self._arrays:
            self._spaces["state"] = (states.shape[1:], states.dtype)
            horizon = self._arrays["action"].shape[1]
            self._arrays["state"] = np.zeros((len(self._slots), horizon, *states.shape[1:]), states.dtype)
        self._arrays["action"][self._slots, self._time] = actions
        if states is not None:
            self._arrays["state"][self._slots, self._time] = states
        self._total_reward += rewards
        self._time += 1
        if self._time.max() >= self._arrays["action"].shape[1]:
            self._grow(2 * self._arrays["action"].shape[1])
            if self._time.max() >= LONG:
                warnings.warn(ENDLESS.format(self._time.max()), stacklevel=2)
        self._put(self._slots, observations)
        finished = np.flatnonzero(dones)
        if len(finished) == 0:
            return None
        # A finished slot already shows the start of its next episode; what the episode ended with is in its info.
        last = {key: np.stack([infos[slot]["terminal_observation"][key] for slot in finished]) for key in KEYS}
        self._put(finished, last)
        success = np.array([bool(infos[slot].get("is_success", False)) for slot in finished])
        episodes = self._take(finished, success)
        self._time[finished] = 0
        self._total_reward[finished] = 0.0
        self._put(finished, {key: observations[key][finished] for key in KEYS})
        return episodes

    def state(self) -> dict[str, Any]:
        """The unfinished episodes, for a checkpoint."""
        horizon = int(self._time.max()) + 1
        arrays = {name: values[:, :horizon].copy() for name, values in self._arrays.items()}
        return {"arrays": arrays, "time": self._time, "total_reward": self._total_reward, "steps": self._steps}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on with the unfinished episodes of a checkpoint."""
        self._time, self._total_reward = state["time"].copy(), state["total_reward"].copy()
        self._steps = state["steps"]
        self._arrays = {name: values.copy() for name, values in state["arrays"].items()}
        if "state" in self._arrays:
            self._spaces["state"] = (self._arrays["state"].shape[2:], self._arrays["state"].dtype)
        self._grow(64)

    def last_observations(self) -> dict[str, Array]:
        """What each slot shows now."""
        return {key: self._arrays[key][self._slots, self._time].copy() for key in KEYS}

    def started(self) -> NDArray[np.bool_]:
        """Which slots are at the start of an episode, (num_envs,)."""
        fresh: NDArray[np.bool_] = self._time == 0
        return fresh

    def stuck(self) -> NDArray[np.bool_]:
        """Which slots look as they did before their last step, (num_envs,)."""
        now = self._arrays["observation"][self._slots, self._time]
        before = self._arrays["observation"][self._slots, self._time - 1]
        same: NDArray[np.bool_] = (now == before).reshape(len(self._slots), -1).all(axis=1)
        return same & (self._time > 0)

    def _put(self, slots: Array, observations: dict[str, Array]) -> None:
        for key in KEYS:
            check_finite(observations[key], f"'{key}'", self._steps)
            self._arrays[key][slots, self._time[slots]] = observations[key]

    def _take(self, slots: Array, success: NDArray[np.bool_]) -> Episodes:
        length = self._time[slots].copy()
        horizon = int(length.max())
        arrays = {name: values[slots] for name, values in self._arrays.items()}  # fancy indexing: a copy
        return Episodes(
            observation=arrays["observation"][:, : horizon + 1],
            achieved_goal=arrays["achieved_goal"][:, : horizon + 1],
            desired_goal=arrays["desired_goal"][:, 0],
            action=arrays["action"][:, :horizon],
            state=arrays["state"][:, :horizon] if "state" in arrays else None,
            length=length,
            total_reward=self._total_reward[slots].copy(),
            final_success=success,
        )

    def _grow(self, horizon: int) -> None:
        for name, values in self._arrays.items():
            if values.shape[1] < horizon:
                more = np.zeros((values.shape[0], horizon - values.shape[1], *values.shape[2:]), values.dtype)
                self._arrays[name] = np.concatenate([values, more], axis=1)
