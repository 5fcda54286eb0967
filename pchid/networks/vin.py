"""A value iteration network for GridWorld (Sec. 4.1), in plain torch.

In: a map with the agent's place, and a goal position. Out: a score for each of the eight moves, read where the agent is
after `iterations` rounds of value propagation.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from pchid.envs.grid_world import MOVES
from pchid.errors import InputError
from pchid.policies import GoalPolicy


class ValueIterationNetwork(nn.Module):
    """Reward map, then Q = conv(reward, value) and value = max over channels, again and again; any map size."""

    def __init__(self, outputs: int, hidden_channels: int, q_channels: int, iterations: int, shifts: bool) -> None:
        super().__init__()
        self.iterations = iterations
        self.hidden = nn.Conv2d(2, hidden_channels, 3, padding=1)
        self.reward = nn.Conv2d(hidden_channels, 1, 1, bias=False)
        self.q_of_reward = nn.Conv2d(1, q_channels, 3, padding=1, bias=False)
        self.q_of_value = nn.Conv2d(1, q_channels, 3, padding=1, bias=False)
        self.readout = nn.Linear(q_channels, outputs, bias=False)
        if shifts:
            self._start_as_shifts(outputs)

    @torch.no_grad()
    def _start_as_shifts(self, outputs: int) -> None:
        # Channel a carries the value of the cell that move a leads to, and the readout passes it on: value then spreads
        # by one cell an iteration from the very start. From random kernels it hardly spreads at all within 500
        # episodes, and goals more than a few moves away stay invisible.
        for kernel in (self.q_of_reward, self.q_of_value):
            kernel.weight.mul_(0.1)
            for action, (row, column) in enumerate(MOVES):
                kernel.weight[action, 0, 1 + row, 1 + column] += 1.0
        self.readout.weight.mul_(0.1)
        self.readout.weight[:outputs, :outputs] += torch.eye(outputs)

    def forward(self, observation: Tensor, goal: Tensor) -> Tensor:
        """(B, 2, size, size) obstacles and agent, (B, 2) goal positions -> (B, outputs)."""
        observation = observation.to(torch.float32)
        rows = torch.arange(len(goal), device=goal.device)
        goal_map = torch.zeros_like(observation[:, 0])
        goal_map[rows, goal[:, 0].long(), goal[:, 1].long()] = 1.0
        reward = self.reward(self.hidden(torch.stack([observation[:, 0], goal_map], dim=1)))
        q_of_reward = self.q_of_reward(reward)  # the same in each iteration
        q = q_of_reward
        for _ in range(self.iterations):
            q = q_of_reward + self.q_of_value(q.amax(dim=1, keepdim=True))
        at_agent = (q * observation[:, 1:2]).sum(dim=(2, 3))
        scores: Tensor = self.readout(at_agent)
        return scores

    def normalise_by(self, observation: Tensor, goal: Tensor) -> None:
        """A map needs no normalisation."""


class VinExtractor(BaseFeaturesExtractor):
    """The same network as the features of a Stable-Baselines3 policy: on them, DQN is DQN on a planning network."""

    def __init__(
        self,
        observation_space: spaces.Dict,
        hidden_channels: int = 50,
        q_channels: int = 10,
        iterations: int = 20,
        shifts: bool = True,
    ) -> None:
        check_grid_world(observation_space, q_channels)
        super().__init__(observation_space, features_dim=len(MOVES))
        self.network = ValueIterationNetwork(len(MOVES), hidden_channels, q_channels, iterations, shifts)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """A score for each move, (B, 8)."""
        scores: Tensor = self.network(observations["observation"], observations["desired_goal"])
        return scores


def check_grid_world(observation_space: spaces.Dict, q_channels: int) -> None:
    """Refuse observations that are no maps, and too few channels."""
    shape = observation_space["observation"].shape
    if shape is None or len(shape) != 3 or shape[0] != 2 or observation_space["desired_goal"].shape != (2,):
        raise InputError("VinPolicy is for GridWorld: observations (2, size, size) and goals (row, column)")
    if q_channels < len(MOVES):
        raise InputError(f"VinPolicy needs at least {len(MOVES)} q_channels, one a move, not {q_channels}")


class VinPolicy(GoalPolicy):
    """`GoalPolicy` with a value iteration network, for GridWorld's observations."""

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        lr_schedule: Any,
        hidden_channels: int = 50,
        q_channels: int = 10,
        iterations: int = 20,
        shifts: bool = True,
        **kwargs: Any,
    ) -> None:
        check_grid_world(observation_space, q_channels)
        self.vin_settings = {
            "hidden_channels": hidden_channels,
            "q_channels": q_channels,
            "iterations": iterations,
            "shifts": shifts,
        }
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)

    def make_network(self, observation_space: spaces.Dict, outputs: int) -> nn.Module:
        """See `GoalPolicy`."""
        return ValueIterationNetwork(outputs, **self.vin_settings)  # type: ignore[arg-type]

    def settings(self) -> dict[str, Any]:
        """See `GoalPolicy`."""
        return dict(self.vin_settings)
