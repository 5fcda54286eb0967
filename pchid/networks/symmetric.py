"""A planning network that is the same in all eight symmetries of the square.

In and out: as `PlanningNetwork`. A map, mirrored or turned, has its moves mirrored or turned. A network that knows this
has a few dozen parameters in place of hundreds, and what it sees on one side of a wall it knows on all sides.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pchid.envs.grid_world import MOVES
from pchid.networks.planning import PlanningNetwork

DISCOUNT = 0.95
"""Of values, at the start: it makes nearer goals better."""
REWARD_SCALE = 10.0
KERNEL_SCALE = 0.3
"""Adam moves all parameters alike. Rewards must go far, until no detour is too long to avoid a wall; transitions start
nearly right, and an error in them grows with every iteration."""
CELLS = [(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1)]


class SymmetricNetwork(PlanningNetwork):
    """Value iteration whose kernels are shared by all moves and places that a symmetry takes into each other."""

    kernel_orbit: Tensor
    plane_orbit: Tensor
    shifts: Tensor

    def __init__(self, iterations: int) -> None:
        super().__init__(iterations)
        kernel_orbit, forward = kernel_orbits()
        self.register_buffer("kernel_orbit", kernel_orbit, persistent=False)
        self.register_buffer("plane_orbit", torch.tensor([r * r + c * c for r, c in CELLS]), persistent=False)
        self.register_buffer("shifts", forward, persistent=False)
        orbits = len(forward)
        self.reward = nn.Parameter(0.1 / REWARD_SCALE * torch.randn(2, 3))  # obstacles, goals; by distance
        self.bias = nn.Parameter(torch.zeros(1))
        self.of_reward = nn.Parameter(0.1 * torch.randn(orbits))
        self.of_value = nn.Parameter(0.01 * torch.randn(orbits))  # a sum of more than 1 would grow with each iteration
        self.sharpness = nn.Parameter(torch.ones(1))

    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """See `PlanningNetwork`."""
        reward = REWARD_SCALE * self.reward[:, self.plane_orbit]
        of_reward = self.shifts + KERNEL_SCALE * self.of_reward
        of_value = DISCOUNT * self.shifts + KERNEL_SCALE * self.of_value
        return torch.cat([reward.flatten(), self.bias]), of_reward[self.kernel_orbit], of_value[self.kernel_orbit]

    def read(self, q: Tensor) -> Tensor:
        """See `PlanningNetwork`: a channel for each move."""
        return self.sharpness * q


def kernel_orbits() -> tuple[Tensor, Tensor]:
    """Which entries of the moves' kernels, (8, 9), share a parameter, and which of these lie ahead of their move.

    A symmetry keeps the length of a move, the angle between it and a place around the agent, and the place's distance.
    """
    orbits: dict[tuple[int, int, int, int], int] = {}
    index = torch.zeros(len(MOVES), len(CELLS), dtype=torch.long)
    ahead = []
    for move, (down, right) in enumerate(MOVES.tolist()):
        for place, (row, column) in enumerate(CELLS):
            along, across = down * row + right * column, abs(down * column - right * row)
            key = (abs(down) + abs(right), along, across, row * row + column * column)
            index[move, place] = orbits.setdefault(key, len(orbits))
            if (row, column) == (down, right):
                ahead.append(orbits[key])
    forward = torch.zeros(len(orbits))
    forward[ahead] = 1.0
    return index, forward
