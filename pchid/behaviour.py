"""The behaviour policy pi_b: what collects the episodes.

In: what every slot shows. Out: its actions, by the trained policy with noise, by chance, or after other goals.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pchid.buffers import StepBuffers
from pchid.episodes import Recorder
from pchid.errors import InputError, at_least, probability
from pchid.goals import Success
from pchid.policies import GoalPolicy

Array = NDArray[Any]


class Behaviour:
    """The policy with noise, and now and then a uniformly random action.

    :param exploration: the probability of a random action
    :param noise: otherwise, the scale of the noise in the policy's action
    :param wander: more than 0 lets it turn to goals that it has met before, once it holds its own, and with this
        probability in any step
    :param persistence: the probability that the noise in a continuous action stays as it was, for each of its entries:
        an arm that goes on for a while, or keeps its fingers closed, finds what one that trembles does not
    :param least_noise: each episode has a scale of noise of its own, drawn evenly between this and `noise`: wild ones
        find what is new, calm ones show what the policy does by itself. None: `noise` throughout
    """

    def __init__(
        self,
        action_space: spaces.Discrete | spaces.Box,
        is_success: Success,
        rng: np.random.Generator,
        *,
        exploration: float,
        noise: float,
        wander: float,
        persistence: float,
        least_noise: float | None = None,
    ) -> None:
        probability(exploration=exploration, wander=wander)
        at_least(0, noise=noise)
        if least_noise is not None and not 0.0 <= least_noise <= noise:
            raise InputError(f"least_noise is {least_noise}, but it lies between 0 and noise, which is {noise}")
        if not 0.0 <= persistence < 1.0:
            raise InputError(f"persistence is a probability below 1, not {persistence}")
        if persistence and isinstance(action_space, spaces.Discrete):
            raise InputError("persistence is for continuous actions; the noise in a discrete one is drawn in each step")
        self.action_space, self.is_success, self.rng = action_space, is_success, rng
        self.exploration, self.noise, self.wander = exploration, noise, wander
        self.persistence, self.least_noise = persistence, least_noise
        self.scale: Array | None = None
        """The scale of noise of each slot, if episodes differ in it."""
        self.lasting: Array | None = None
        """The noise of each slot, if it persists."""
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
        # Also where none is guided: an episode that begins with a random action has a scale of its own all the same.
        noise = self._scale(recorder.started())[guided] * self._noise(guided, recorder.started())
        if guided.any():
            seen = {key: values[guided] for key, values in observations.items()}
            actions[guided] = policy.act_noisily(seen, noise)
        return actions

    def _scale(self, started: NDArray[np.bool_]) -> Array:
        """The scale of noise of each slot, (N, 1)."""
        if self.least_noise is None:
            return np.full((len(started), 1), self.noise)
        drawn = self.rng.uniform(self.least_noise, self.noise, (len(started), 1))
        self.scale = drawn if self.scale is None else np.where(started[:, None], drawn, self.scale)
        return self.scale

    def _noise(self, guided: NDArray[np.bool_], started: NDArray[np.bool_]) -> Array:
        """Of scale 1, for the slots that are guided."""
        if isinstance(self.action_space, spaces.Discrete):
            return self.rng.gumbel(size=(int(guided.sum()), int(self.action_space.n)))
        size = math.prod(self.action_space.shape)
        if not self.persistence:
            return self.rng.standard_normal((int(guided.sum()), size))
        drawn = self.rng.standard_normal((len(guided), size))
        stays = (self.rng.random(drawn.shape) < self.persistence) & ~started[:, None]
        self.lasting = drawn if self.lasting is None else np.where(stays, self.lasting, drawn)
        lasting: Array = self.lasting[guided]
        return lasting

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
        state = {"rng": self.rng.bit_generator.state, "goals": self.goals, "lasting": self.lasting}
        return state if self.least_noise is None else {**state, "scale": self.scale}

    def load_state(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.rng.bit_generator.state = state["rng"]
        self.goals, self.lasting, self.scale = (
            None if state.get(name) is None else state[name].copy() for name in ("goals", "lasting", "scale")
        )
