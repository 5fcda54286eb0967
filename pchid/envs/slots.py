"""Slots of a probe for environments that exist only one at a time, such as users' own.

In: one environment and a function that makes others like it. Out: as many slots as wanted, whose episodes are those of
the one alone; or that one, if others cannot be made or get in its way.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from pchid.envs.single import Observations, SingleEnvsVectorEnv
from pchid.goals import KEYS

COMPARED_STEPS = 3
"""Steps that an environment must repeat while another one moves, before both may be slots."""


class EpisodeSlots(SingleEnvsVectorEnv):
    """Single environments of which one that has ended waits, as it is, until it is reset or restored.

    A user's environment need not know what to do after its end, and its steps would be for nothing.
    """

    def __init__(self, envs: Sequence[gym.Env[Any, Any]], horizon: int | None) -> None:
        super().__init__([lambda env=env: env for env in envs], horizon, AutoresetMode.DISABLED)  # type: ignore[misc]
        self._ends: dict[int, Any] = {}

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode in every slot."""
        self._ends.clear()
        return super().reset(seed=seed, options=options)

    def set_state(self, states: NDArray[Any], slots: NDArray[np.int64] | None = None) -> None:
        """Put saved states into the given slots, by default into all."""
        self._wake(np.arange(self.num_envs) if slots is None else slots)
        super().set_state(states, slots)

    def advance(self, actions: NDArray[Any], slots: NDArray[np.int64]) -> Observations:
        """Take one action in each of the given slots alone, also past an end: TEST decides itself how far to go."""
        self._wake(slots)
        return super().advance(actions, slots)

    def _wake(self, slots: NDArray[np.int64]) -> None:
        for slot in slots.tolist():
            self._ends.pop(slot, None)

    def _results(self, actions: NDArray[Any], slots: NDArray[np.int64]) -> list[Any]:
        going = np.array([slot not in self._ends for slot in slots.tolist()], bool)
        stepped = zip(slots[going].tolist(), super()._results(actions[going], slots[going]), strict=True)
        results = {**self._ends, **dict(stepped)}
        self._ends = {slot: result for slot, result in results.items() if result[2] or result[3]}
        return [results[slot] for slot in slots.tolist()]


def side_by_side(
    first: SingleEnvsVectorEnv, another: Callable[[], gym.Env[Any, Any]], slots: int
) -> SingleEnvsVectorEnv:
    """The one environment of `first` and others like it as slots; it alone if they get in each other's way."""
    envs = list(first.envs)
    first.closed = True  # Gymnasium must not close what lives on in other slots, when it deletes the vector
    with contextlib.suppress(Exception):  # whatever a simulator says of which there can be only one
        while len(envs) < slots:
            envs.append(another())
    if len(envs) < slots or not (slots == 1 or first.of_mujoco or _independent(*envs[:2])):
        for env in envs[1:]:
            env.close()
        del envs[1:]
    return EpisodeSlots(envs, first.horizon)


def _independent(env: gym.Env[Any, Any], other: gym.Env[Any, Any]) -> bool:
    """Whether a few steps come out the same when another environment moves in between, as they must in slots."""
    both = zip(_few_steps(env), _few_steps(env, other), strict=False)  # the other one may end first
    return all(np.array_equal(alone[key], beside[key]) for alone, beside in both for key in KEYS)


def _few_steps(env: gym.Env[Any, Any], other: gym.Env[Any, Any] | None = None) -> list[Observations]:
    """What the environment shows at the start of an episode, while the other one plays another."""
    env.action_space.seed(0)
    seen, over = [copy.deepcopy(env.reset(seed=0)[0])], False
    if other is not None:
        other.reset(seed=1)
    while not over and len(seen) <= COMPARED_STEPS:
        action = env.action_space.sample()
        if other is not None:
            over = any(other.step(action)[2:4])
        observation, _, *ends, _ = env.step(action)
        seen.append(copy.deepcopy(observation))
        over = over or any(ends)
    return seen
