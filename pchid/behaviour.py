"""The behaviour policy pi_b: what collects the episodes.

In: what every slot shows. Out: its actions, by the trained policy with noise, by chance, or after other goals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pchid.buffers import StepBuffers
from pchid.episodes import Recorder
from pchid.goals import Success
from pchid.policies import GoalPolicy

Array = NDArray[Any]


class Behaviour:
    """The policy with noise, and now and then a uniformly random action.

    :param exploration: the probability of a random action
    :param noise: otherwise, the scale of the noise in the policy's action
    :param wander: more than 0 lets it turn to goals that it has met before, once it holds its own, and with this
        probability in any step
    """

    def __init__(
        self,
        action_space: spaces.Discrete | spaces.Box,
        is_success: Success,
        rng: np.random.Generator,
        exploration: float,
        noise: float,
        wander: float,
    ) -> None:
        self.action_space, self.is_success, self.rng = action_space, is_success, rng
        self.exploration, self.noise, self.wander = exploration, noise, wander
        self.goals: Array | None = None
        """What each slot is after, if it wanders."""

    def random_actions(self, count: int) -> Array:
        """Uniform over the action space."""
        if isinstance(self.action_space, spaces.Discrete):
            return self.rng.integers(self.action_space.n, size=count)
        low, high = self.action_space.low, self.action_space.high
        return self.rng.uniform(low, high, size=(count, *low.shape)).astype(self.action_space.dtype)

    def actions(
        self, observations: dict[str, Array], policy: GoalPolicy, recorder: Recorder, met: StepBuffers
    ) -> Array:
        """What each slot does; `met` are the buffers, whose goals one may wander to.

        It is random too wherever the last action changed nothing: the policy, asked the same again, would likely stay.
        """
        count = len(observations["observation"])
        actions = self.random_actions(count)
        if self.wander:
            observations = {**observations, "desired_goal": self._turn(observations, recorder.started(), met)}
        guided = (self.rng.random(count) >= self.exploration) & ~recorder.stuck()
        if guided.any():
            seen = {key: values[guided] for key, values in observations.items()}
            actions[guided] = policy.act_noisily(seen, self.noise, self.rng)
        return actions

    def _turn(self, observations: dict[str, Array], started: NDArray[np.bool_], met: StepBuffers) -> Array:
        """What each slot is after now: the episode's goal first, then goals that were met before."""
        own = observations["desired_goal"]
        fresh = started.reshape(-1, *[1] * (own.ndim - 1))
        goals = own.copy() if self.goals is None else np.where(fresh, own, self.goals)
        turning = self.is_success(observations["achieved_goal"], goals) | (self.rng.random(len(goals)) < self.wander)
        if turning.any() and len(met):  # none are met yet where a saved policy starts
            goals[turning] = met.sample(int(turning.sum()), self.rng).goal
        self.goals = goals
        return goals

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"rng": self.rng.bit_generator.state, "goals": self.goals}

    def load_state(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.rng.bit_generator.state = state["rng"]
        self.goals = None if state["goals"] is None else state["goals"].copy()
