"""How good is a policy? The same measures for every method, on fresh goals, with the deterministic policy.

In: a function from observations to actions and a vector environment without autoreset. Out: `Measures`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pchid.envs.randomness import slot_seeds
from pchid.goals import Success, check_finite, success_function

Act = Callable[[dict[str, NDArray[Any]]], NDArray[Any]]


@dataclass(frozen=True)
class Measures:
    """What is reported everywhere."""

    final_success: float
    """The fraction of episodes whose goal held at their last step."""
    any_success: float
    """The fraction of episodes whose goal held at some step."""
    mean_return: float
    """The mean undiscounted return."""
    steps_to_goal: float
    """The mean number of steps to the goal; an episode that never got there counts its horizon."""

    def as_dict(self) -> dict[str, float]:
        """By name."""
        return asdict(self)


@dataclass(frozen=True)
class Outcomes:
    """The same per episode, each (E,)."""

    final_success: NDArray[np.bool_]
    any_success: NDArray[np.bool_]
    total_reward: NDArray[np.float64]
    steps_to_goal: NDArray[np.int64]

    def measures(self) -> Measures:
        """Their means."""
        return Measures(
            final_success=float(self.final_success.mean()),
            any_success=float(self.any_success.mean()),
            mean_return=float(self.total_reward.mean()),
            steps_to_goal=float(self.steps_to_goal.mean()),
        )


def evaluate(act: Act, environment: Any, episodes: int, seed: int) -> Outcomes:
    """Play `episodes` episodes, the i-th always from the same seed, whatever the number of slots."""
    is_success = success_function(environment)
    seeds = slot_seeds(seed, -(-episodes // environment.num_envs) * environment.num_envs)
    waves = []
    for first in range(0, episodes, environment.num_envs):
        observations, _ = environment.reset(seed=seeds[first : first + environment.num_envs])
        waves.append(play(act, environment, observations, is_success))
    joined = [np.concatenate(parts)[:episodes] for parts in zip(*(vars(wave).values() for wave in waves), strict=True)]
    return Outcomes(*joined)


def play(
    act: Act,
    environment: Any,
    observations: dict[str, NDArray[Any]],
    is_success: Success,
    budget: NDArray[np.int64] | None = None,
) -> Outcomes:
    """One episode in each slot, from the given observations to its end; a `budget` of steps replaces its horizon."""
    slots = environment.num_envs
    running = np.ones(slots, bool) if budget is None else budget > 0
    any_success, final_success = np.zeros(slots, bool), np.zeros(slots, bool)
    total_reward = np.zeros(slots)
    steps, steps_to_goal = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
    actions = np.zeros(environment.action_space.shape, environment.action_space.dtype)
    while running.any():
        live = np.flatnonzero(running)
        actions[live] = act({key: values[live] for key, values in observations.items()})
        observations, rewards, terminated, truncated, _ = environment.step(actions)
        played = int(steps.sum()) + len(live)
        check_finite(rewards, "the reward", played)
        for key, values in observations.items():
            check_finite(values, f"'{key}'", played)
        reached = is_success(observations["achieved_goal"][live], observations["desired_goal"][live])
        total_reward[live] += rewards[live]
        steps[live] += 1
        steps_to_goal[live[reached & ~any_success[live]]] = steps[live[reached & ~any_success[live]]]
        any_success[live] |= reached
        final_success[live] = reached
        running &= ~terminated & (~truncated if budget is None else steps < budget)
    steps_to_goal[~any_success] = steps[~any_success]
    return Outcomes(final_success, any_success, total_reward, steps_to_goal)
