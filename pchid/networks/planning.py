"""Networks that plan on GridWorld's maps (Sec. 4.1): value iteration with learned rewards and transitions.

In: a map with the agent's place, and a goal position. Out: a score for each of the eight moves, read where the agent is
after `iterations` rounds of value propagation. What is computed is said in plain torch by `forward_reference`;
`forward` gives the same by `pchid.networks.kernel` or, where that cannot run, by `q_planes`.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pchid.envs.grid_world import MOVES
from pchid.networks.memory import RememberedTables, map_keys

EVERYTHING = slice(None)


class PlanningNetwork(nn.Module):
    """Reward map, then Q = conv(reward, value) and value = max over channels, again and again; any map size."""

    def __init__(self, iterations: int) -> None:
        super().__init__()
        self.iterations = iterations
        self._remembered = RememberedTables()

    @abstractmethod
    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """What is convolved with what.

        (19,) the kernels that make the reward from obstacles and from goals, and its bias; (channels, 9) the kernels of
        q over rewards; (channels, 9) those over values.
        """

    @abstractmethod
    def read(self, q: Tensor) -> Tensor:
        """The scores of the moves from the channels of a cell, (..., channels) -> (..., outputs)."""

    def forward(self, observation: Tensor, goal: Tensor) -> Tensor:
        """(B, 2, size, size) obstacles and agent, (B, 2) goal positions -> (B, outputs)."""
        if observation.requires_grad:  # then pairs must not share a map
            return self.forward_reference(observation, goal)
        obstacle, agent = observation[:, 0], observation[:, 1]
        kernel, weights = self._kernel(obstacle), self.weights()
        at_agent = None
        if kernel is not None and not torch.is_grad_enabled():
            at_agent = self._remembered.recall(obstacle, agent, goal, weights, self.iterations, self._q_everywhere)
        if at_agent is None:
            first, map_of = shared_maps(obstacle, goal)
            if kernel is not None:
                cells = kernel.agent_cells(agent, map_of)
                planes = self._planes(obstacle[first], goal[first])
                at_agent = kernel.q_at_cells(planes, *weights, cells, len(agent), self.iterations)
            else:
                q = self._q_everywhere(obstacle[first], goal[first])[map_of]
                at_agent = (q * agent.unsqueeze(3).to(q.dtype)).sum(dim=(1, 2))
        scores: Tensor = self.read(at_agent)
        return scores

    def table(self, obstacle: Tensor, goal: Tensor) -> Tensor:
        """The scores in every cell: (M, height, width) maps and (M, 2) goals -> (M, outputs, height, width)."""
        return torch.movedim(self.read(self._q_everywhere(obstacle, goal)), 3, 1)

    def _q_everywhere(self, obstacle: Tensor, goal: Tensor) -> Tensor:
        """The q-channels in every cell, (M, height, width, channels)."""
        planes, kernel = self._planes(obstacle, goal), self._kernel(obstacle)
        if kernel is None:
            return q_planes(planes, *self.weights(), self.iterations).movedim(1, 3)
        cells = kernel.all_cells(*obstacle.shape)
        q: Tensor = kernel.q_at_cells(planes, *self.weights(), cells, obstacle.numel(), self.iterations)
        return q.view(*obstacle.shape, q.shape[1])

    def forget(self) -> None:
        """Plan afresh on maps that were planned on before; the result is the same, and speed can be measured."""
        self._remembered = RememberedTables()

    def forward_reference(self, observation: Tensor, goal: Tensor) -> Tensor:
        """The network as it is written down: what `forward` computes. The agent enters at the end, where q is read."""
        planes = self._planes(observation[:, 0], goal)
        folded, of_reward, of_value = self.weights()
        of_reward, of_value = of_reward.view(-1, 1, 3, 3), of_value.view(-1, 1, 3, 3)
        reward = functional.conv2d(planes, folded[:18].view(1, 2, 3, 3), folded[18:], padding=1)
        q_of_reward = functional.conv2d(reward, of_reward, padding=1)  # the same in each iteration
        q = q_of_reward
        for _ in range(self.iterations):
            q = q_of_reward + functional.conv2d(q.amax(dim=1, keepdim=True), of_value, padding=1)
        return self.read((q * observation[:, 1:2].to(q.dtype)).sum(dim=(2, 3)))

    def _planes(self, obstacle: Tensor, goal: Tensor) -> Tensor:
        """Obstacles and goals, (M, 2, height, width)."""
        obstacle = obstacle.to(next(self.parameters()).dtype)
        goal_map = torch.zeros_like(obstacle)
        goal_map[torch.arange(goal.shape[0], device=goal.device), goal[:, 0].long(), goal[:, 1].long()] = 1.0
        return torch.stack([obstacle, goal_map], dim=1)

    def _kernel(self, obstacle: Tensor) -> Any:
        """The compiled kernel, where it can be used: on a CPU, with gradients to parameters only."""
        kernel, dtype = compiled_kernel(), next(self.parameters()).dtype
        if kernel is None or obstacle.device.type != "cpu" or dtype not in (torch.float32, torch.float64):
            return None
        return None if obstacle.requires_grad or len(self.weights()[2]) > kernel.MAX_CHANNELS else kernel

    def normalise_by(self, observation: Tensor, goal: Tensor) -> None:
        """A map needs no normalisation."""


class ValueIterationNetwork(PlanningNetwork):
    """The network of Tamar et al. (2016): two layers for the reward, kernels of q as they may come."""

    def __init__(self, outputs: int, hidden_channels: int, q_channels: int, iterations: int, shifts: bool) -> None:
        super().__init__(iterations)
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

    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """See `PlanningNetwork`: the two linear layers before the reward become one.

        The second layer looks at single cells, so a padded cell is nothing to it and the border stays exact.
        """
        assert self.hidden.bias is not None
        layers = torch.cat([self.hidden.weight.flatten(1), self.hidden.bias.unsqueeze(1)], dim=1)
        folded = (self.reward.weight.flatten(1) @ layers).flatten()
        return folded, self.q_of_reward.weight.flatten(1), self.q_of_value.weight.flatten(1)

    def read(self, q: Tensor) -> Tensor:
        """See `PlanningNetwork`."""
        scores: Tensor = self.readout(q)
        return scores

    def forward_reference(self, observation: Tensor, goal: Tensor) -> Tensor:
        """See `PlanningNetwork`; layer by layer, with nothing folded."""
        planes = self._planes(observation[:, 0], goal)
        agent = observation[:, 1:2].to(planes.dtype)
        q_of_reward = self.q_of_reward(self.reward(self.hidden(planes)))  # the same in each iteration
        q = q_of_reward
        for _ in range(self.iterations):
            q = q_of_reward + self.q_of_value(q.amax(dim=1, keepdim=True))
        scores: Tensor = self.readout((q * agent).sum(dim=(2, 3)))
        return scores


@functools.cache
def compiled_kernel() -> Any:
    """`pchid.networks.kernel`, or None without numba. Importing it takes a moment, which only GridWorld should cost."""
    try:
        from pchid.networks import kernel
    except ImportError:
        return None
    return kernel


def shared_maps(obstacle: Tensor, goal: Tensor) -> tuple[Any, Any]:
    """Indices of pairs with different maps or goals, and for each pair which of these it shares: computed once each.

    Both are slices over everything where all differ, or where finding out would have to wait for another device.
    """
    if obstacle.device.type != "cpu":
        return EVERYTHING, EVERYTHING
    seen: dict[bytes, int] = {}
    map_of = [seen.setdefault(key, len(seen)) for key in map_keys(obstacle, goal)]
    if len(seen) == len(goal):
        return EVERYTHING, EVERYTHING
    first = np.unique(map_of, return_index=True)[1]
    return torch.from_numpy(first), torch.tensor(map_of)


def q_planes(planes: Tensor, folded: Tensor, of_reward: Tensor, of_value: Tensor, iterations: int) -> Tensor:
    """As the kernel, in torch and at every cell, (M, channels, height, width).

    Channels come first and all cells of all maps lie in one row, so that an iteration is one matrix product.
    """
    maps, _, height, width = planes.shape
    reward = functional.conv2d(planes, folded[:18].view(1, 2, 3, 3), folded[18:], padding=1)
    q_of_reward = of_reward @ _neighbours(reward[:, 0])
    q = q_of_reward
    for _ in range(iterations):
        # The gradient goes to the first of equally large channels, as in the kernel; without one, `amax` is faster.
        value = q.max(dim=0).values if q.requires_grad else q.amax(dim=0)
        q = torch.addmm(q_of_reward, of_value, _neighbours(value.view(maps, height, width)))
    return q.view(len(of_value), maps, height, width).transpose(0, 1)


def _neighbours(planes: Tensor) -> Tensor:
    """(M, height, width) -> (9, M * height * width): the 3x3 cells around each, zero beyond the border."""
    _, height, width = planes.shape
    padded = functional.pad(planes, (1, 1, 1, 1))
    views = [padded[:, row : row + height, column : column + width] for row in range(3) for column in range(3)]
    return torch.stack(views).flatten(1)
