"""The goal-conditioned policy pi = f_theta(s, g) (Sec. 3.3 and 3.4) as a Stable-Baselines3 policy.

In: observation and desired goal, nothing else. Out: scores of discrete actions or the mean of continuous ones, and the
supervised loss of Eq. 4 and 5: cross-entropy or regression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from pchid.errors import InputError

Array = NDArray[Any]
Observations = dict[str, Array]
"""By key: observation, achieved_goal and desired_goal, each (B, ...)."""


SEEN = ("observation", "desired_goal")
"""The keys that a policy of ours looks at, unless it is told to see the difference of goals too."""


class ImitatingPolicy(Protocol):
    """What the hindsight learner asks of a policy; it needs not be ours."""

    def act(self, observations: Observations) -> Array:
        """The deterministic action for each state-goal pair, in the environment's units."""

    def imitation_loss(self, observations: Observations, action: Array) -> Tensor:
        """The loss of each pair, (B,), with the executed action as its label."""

    def normalise_by(self, observations: Observations) -> None:
        """Take these inputs into the running statistics."""

    def after_step(self) -> None:
        """A supervised step was taken on its parameters."""


def scaled(space: spaces.Box, actions: Tensor) -> Tensor:
    """Continuous actions from the bounds of their space to [-1, 1], (B, outputs)."""
    low, high = _bounds(space, actions.device)
    return 2.0 * (actions.flatten(1) - low) / (high - low) - 1.0


def unscaled(space: spaces.Box, actions: Tensor) -> Tensor:
    """The other way round."""
    low, high = _bounds(space, actions.device)
    return low + (actions + 1.0) * 0.5 * (high - low)


def _bounds(space: spaces.Box, device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.as_tensor(space.low.ravel(), device=device), torch.as_tensor(space.high.ravel(), device=device)


def imitation_loss(outputs: Tensor, label: Tensor, discrete: bool) -> Tensor:
    """Eq. 4 and 5 for each pair, (B,): cross-entropy of scores, or the mean squared error of scaled actions."""
    if discrete:
        return nn.functional.cross_entropy(outputs, label.long(), reduction="none")
    return (outputs - label.flatten(1)).square().mean(dim=1)


class RunningNormaliser(nn.Module):
    """Shifts and scales inputs by the mean and variance of all that it has seen; saved with the network."""

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, size: int, clip: float = 5.0) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, inputs: Tensor) -> None:
        """Merge the moments of a batch (B, size) into the running ones."""
        inputs = inputs.to(torch.float64)
        count = float(len(inputs))
        total = self.count + count
        delta = inputs.mean(0) - self.mean
        spread = self.variance * self.count + inputs.var(0, correction=0) * count
        self.variance.copy_((spread + delta**2 * self.count * count / total) / total)
        self.mean.add_(delta * count / total)
        self.count.copy_(total)

    def forward(self, inputs: Tensor) -> Tensor:
        """The normalised inputs, clipped, in single precision."""
        scaled = (inputs.to(torch.float64) - self.mean) / torch.sqrt(self.variance + 1e-8)
        return scaled.clamp(-self.clip, self.clip).to(torch.float32)


class GoalMlp(nn.Module):
    """A multi-layer perceptron over the normalised observation and goal.

    Where goals are states (m is the identity), it also sees their product, entry by entry: where they agree and where
    they differ. One-step pairs differ in very little, and a perceptron without these inputs fits them perfectly by
    features that mean nothing for a goal far away (bit flipping with 50 bits: 11 % against 100 %, docs/bit_flip.md).
    With `difference` it sees how far the goal is from what is achieved, in which direction. With `reach` no goal is
    farther away for it than that: it sees the point on the straight way there, and so never a goal farther away than
    the pieces that it learned from have come, for which its answer would be a guess (docs/manipulation.md).
    """

    def __init__(
        self,
        observation_size: int,
        goal_size: int,
        outputs: int,
        hidden_sizes: Sequence[int],
        agreement: bool,
        difference: bool = False,
        reach: float | None = None,
    ) -> None:
        super().__init__()
        self.reach = reach
        self.observation_normaliser = RunningNormaliser(observation_size)
        self.goal_normaliser = RunningNormaliser(goal_size)
        self.difference_normaliser = RunningNormaliser(goal_size) if difference else None
        self.agreement = agreement and observation_size == goal_size
        layers: list[nn.Module] = []
        size = observation_size + goal_size * (1 + self.agreement + difference)
        for hidden in hidden_sizes:
            layers += [nn.Linear(size, hidden), nn.ReLU()]
            size = hidden
        self.layers = nn.Sequential(*layers, nn.Linear(size, outputs))

    def normalise_by(self, observation: Tensor, goal: Tensor, achieved: Tensor | None = None) -> None:
        """Take these inputs into the running statistics."""
        goal = self._seen(goal, achieved)
        self.observation_normaliser.update(observation.flatten(1))
        self.goal_normaliser.update(goal.flatten(1))
        if self.difference_normaliser is not None:
            self.difference_normaliser.update(_difference(goal, achieved))

    def forward(self, observation: Tensor, goal: Tensor, achieved: Tensor | None = None) -> Tensor:
        """(B, outputs); `achieved` is needed where differences are seen, or a reach is kept."""
        goal = self._seen(goal, achieved)
        inputs = [self.observation_normaliser(observation.flatten(1)), self.goal_normaliser(goal.flatten(1))]
        if self.agreement:
            inputs.append(inputs[0] * inputs[1])
        if self.difference_normaliser is not None:
            inputs.append(self.difference_normaliser(_difference(goal, achieved)))
        outputs: Tensor = self.layers(torch.cat(inputs, dim=1))
        return outputs

    def _seen(self, goal: Tensor, achieved: Tensor | None) -> Tensor:
        """The goal, or where the straight way to it leaves the reach."""
        if self.reach is None:
            return goal
        assert achieved is not None
        away = _difference(goal, achieved)
        distance = away.norm(dim=1, keepdim=True)
        near: Tensor = achieved.to(torch.float64).flatten(1) + away * (self.reach / distance.clamp(min=self.reach))
        return near.reshape(goal.shape)


def _difference(goal: Tensor, achieved: Tensor | None) -> Tensor:
    assert achieved is not None
    return (goal.to(torch.float64) - achieved.to(torch.float64)).flatten(1)


def _warming(averaging: float) -> Any:
    """A running average for `AveragedModel` whose first steps count for more."""

    @torch.no_grad()
    def update(averaged: list[Tensor], current: list[Tensor], count: Tensor) -> None:
        steps = float(count)
        torch._foreach_lerp_(list(averaged), list(current), 1.0 - min(averaging, steps / (steps + 10.0)))

    return update


class GoalPolicy(BasePolicy):
    """pi(s, g): the network around which PCHID and PEHID are built. It is deterministic; exploring is not its job.

    :param hidden_sizes: widths of the hidden layers
    :param agreement: where goals are states, show the network their product too (`GoalMlp`)
    :param difference: show it the desired goal minus the achieved one too
    :param reach: show it no goal farther from the achieved one than this, but the point on the straight way there
    :param averaging: the share that a step leaves of a running average of the network, which then acts; 0 is none
    :param averaging_warmup: let that share grow, n / (n + 10) after n steps, so that the average does not lag behind a
        network that has just begun to learn
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete | spaces.Box,
        lr_schedule: Schedule,
        hidden_sizes: Sequence[int] = (256, 256),
        agreement: bool = True,
        difference: bool = False,
        averaging: float = 0.0,
        averaging_warmup: bool = False,
        reach: float | None = None,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
        )
        self.discrete = isinstance(action_space, spaces.Discrete)
        outputs = int(action_space.n) if isinstance(action_space, spaces.Discrete) else int(np.prod(action_space.shape))
        if not all(isinstance(size, int) and size > 0 for size in hidden_sizes):
            raise InputError(f"hidden_sizes are the widths of layers, each at least 1, not {hidden_sizes!r}")
        self.hidden_sizes, self.agreement, self.difference = tuple(hidden_sizes), agreement, difference
        if reach is not None and not (isinstance(reach, int | float) and 0.0 < reach < float("inf")):
            raise InputError(f"reach is a distance between goals, above 0, not {reach!r}")
        self.reach = reach
        self.seen = (*SEEN, "achieved_goal") if difference or reach is not None else SEEN
        """The keys that it looks at, in the order of the network's inputs."""
        self.network: Any = self.make_network(observation_space, outputs)
        make_optimizer: Any = self.optimizer_class
        self.optimizer = make_optimizer(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)
        self.averaging, self.averaging_warmup = averaging, averaging_warmup
        self.averaged: Any = self._make_average(averaging) if averaging else None

    def _make_average(self, averaging: float) -> AveragedModel:
        """A network that follows the trained one and is less restless: what acts, and is tested."""
        if not isinstance(averaging, float) or not 0.0 < averaging < 1.0:
            raise InputError(f"averaging is the share that a step leaves of the average, in [0, 1), not {averaging!r}")
        average: Any = _warming(averaging) if self.averaging_warmup else get_ema_multi_avg_fn(averaging)  # type: ignore[no-untyped-call]
        averaged = AveragedModel(self.network, multi_avg_fn=average)
        averaged.requires_grad_(False)
        return averaged

    def make_network(self, observation_space: spaces.Dict, outputs: int) -> nn.Module:
        """The network; a subclass may bring its own, with `forward(observation, goal)` and `normalise_by`."""
        observation_size = int(np.prod(observation_space["observation"].shape or ()))
        goal_size = int(np.prod(observation_space["desired_goal"].shape or ()))
        return GoalMlp(
            observation_size, goal_size, outputs, self.hidden_sizes, self.agreement, self.difference, self.reach
        )

    def settings(self) -> dict[str, Any]:
        """What `policy_kwargs` must hold to build this policy again, as JSON can tell it."""
        return {
            "hidden_sizes": list(self.hidden_sizes),
            "agreement": self.agreement,
            "difference": self.difference,
            "averaging": self.averaging,
            **({"averaging_warmup": True} if self.averaging_warmup else {}),
            **({} if self.reach is None else {"reach": self.reach}),
        }

    @property
    def acting(self) -> Any:
        """The network that acts: the average, if there is one."""
        return self.network if self.averaged is None else self.averaged.module

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Scores of the actions, or the mean action scaled to [-1, 1] and not yet clipped: (B, outputs)."""
        outputs: Tensor = self.acting(*(observations[key] for key in self.seen))
        return outputs

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        outputs = self(observation)
        return outputs.argmax(dim=1) if self.discrete else self._unscaled(outputs)

    def act(self, observations: Observations) -> Array:
        """See `ImitatingPolicy`."""
        with torch.no_grad():
            action = self._predict(self._tensors(observations))
        shaped: Array = action.cpu().numpy().reshape(-1, *(self.action_space.shape or ()))
        return shaped

    def act_noisily(self, observations: Observations, noise: Array) -> Array:
        """As `act`, with (B, outputs) of `noise` added to the scores of the actions or to the scaled mean action.

        For discrete actions, noise of Gumbel's distribution samples from the softmax. That explores where the policy
        is in doubt and keeps to the way where it is not, so that what it masters stays in one piece.
        """
        with torch.no_grad():
            outputs = self(self._tensors(observations)).cpu().double().numpy()
        if self.discrete:
            chosen: Array = np.argmax(outputs + noise, axis=1)
            return chosen
        noisy = self._tensor(outputs + noise)
        actions: Array = self._unscaled(noisy).cpu().numpy().astype(self.action_space.dtype)
        return actions.reshape(-1, *(self.action_space.shape or ()))

    def imitation_loss(self, observations: Observations, action: Array) -> Tensor:
        """See `ImitatingPolicy`: cross-entropy for discrete actions, mean squared error for continuous ones.

        It is that of the trained network, also where an average of it acts.
        """
        label = self._tensor(action)
        if not self.discrete:
            label = scaled(self.action_space, label)  # type: ignore[arg-type]
        outputs = self.network(*self._tensors(observations).values())
        return imitation_loss(outputs, label, self.discrete)

    def normalise_by(self, observations: Observations) -> None:
        """See `ImitatingPolicy`."""
        inputs = self._tensors(observations).values()
        self.network.normalise_by(*inputs)
        if self.averaged is not None:
            self.acting.normalise_by(*inputs)

    def after_step(self) -> None:
        """See `ImitatingPolicy`: the average follows."""
        if self.averaged is not None:
            self.averaged.update_parameters(self.network)

    def _tensors(self, observations: Observations) -> dict[str, Tensor]:
        return {key: self._tensor(observations[key]) for key in self.seen}

    def _tensor(self, array: Array) -> Tensor:
        return torch.as_tensor(array, device=self.device)

    def _unscaled(self, outputs: Tensor) -> Tensor:
        # The output is linear and clipped: a goal farther away than any pair has shown then asks for the largest
        # action, where a squashed output would only approach it.
        assert isinstance(self.action_space, spaces.Box)
        return unscaled(self.action_space, outputs.clamp(-1.0, 1.0))
