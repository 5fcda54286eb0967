"""GridWorld's pictures with more in them: the policy's move in each cell, and the way so far.

In: an agent and what its environment has shown. Out: a picture of each slot.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pchid.envs.drawing import MUTED, WHITE, Canvas, Picture
from pchid.envs.grid_world import MARGIN, MOVES, PICTURE_WIDTH, GridWorldVectorEnv, draw_marks
from pchid.evaluation import Act
from pchid.networks.planning import PlanningNetwork
from pchid.policies import Observations
from pchid.training import Agent

SMALLEST_CELL = 10  # pixels of a cell in which an arrow can be seen
PATH = (190, 214, 240)


def greedy_moves(agent: Agent, act: Act, observations: Observations) -> NDArray[np.int64]:
    """The policy's move in every cell of each map, (N, size, size); -1 where there is none to make."""
    obstacle, goal = observations["observation"][:, 0], observations["desired_goal"]
    moves = np.full(obstacle.shape, -1)
    maps, rows, columns = np.nonzero(obstacle == 0)
    network = getattr(getattr(agent, "policy", None), "acting", None)
    if isinstance(network, PlanningNetwork):
        with torch.no_grad():
            device = next(network.parameters()).device
            scores = network.table(*(torch.as_tensor(part, device=device) for part in (obstacle, goal)))
        moves[maps, rows, columns] = scores.argmax(dim=1).cpu().numpy()[maps, rows, columns]
    else:
        planes = np.stack([obstacle[maps], np.zeros_like(obstacle[maps])], axis=1)
        planes[np.arange(len(maps)), 1, rows, columns] = 1
        cells = np.stack([rows, columns], axis=1)
        seen = {"observation": planes, "achieved_goal": cells, "desired_goal": goal[maps]}
        moves[maps, rows, columns] = act(seen)
    moves[np.arange(len(goal)), goal[:, 0], goal[:, 1]] = -1
    return moves


class GridWorldPictures:
    """GridWorld's pictures with the policy's move in each cell, (N, size, size), and the way so far."""

    def __init__(self, environment: GridWorldVectorEnv, observations: Observations, moves: NDArray[np.int64]) -> None:
        self.side = (PICTURE_WIDTH - 2 * MARGIN) // environment.size
        self.corner = (PICTURE_WIDTH - self.side * environment.size) // 2
        self.grounds = [Canvas(PICTURE_WIDTH, PICTURE_WIDTH) for _ in moves]
        self.arrows = [self._arrows(own) for own in moves]
        self._drawn = 0
        for ground, picture, agent in zip(
            self.grounds, environment.render(), observations["observation"][:, 1], strict=True
        ):
            ground.pixels[:] = picture
            ground.cells(self.corner, self.corner, self.side, agent != 0, WHITE, gap=1)  # it will go away from here

    def _places(self, cells: NDArray[Any]) -> NDArray[np.float64]:
        """From (row, column) to (x, y), as the environment draws them."""
        return self.corner - 0.5 + (cells[..., ::-1] + 0.5) * self.side

    def _arrows(self, moves: NDArray[np.int64]) -> NDArray[np.float64]:
        """How much of each pixel an arrow covers."""
        canvas, side = Canvas(PICTURE_WIDTH, PICTURE_WIDTH, (0, 0, 0)), self.side
        for cell in np.argwhere(moves >= 0) if side >= SMALLEST_CELL else ():
            middle, along = self._places(cell), MOVES[moves[tuple(cell)]][::-1]
            reach = 0.24 * side * along / np.hypot(*along)
            canvas.arrow(tuple(middle - reach), tuple(middle + reach), 0.06 * side, WHITE, head=0.13 * side)
        return canvas.pixels[:, :, :1] / 255.0

    def __call__(self, seen: Sequence[Observations], slots: list[int]) -> list[Picture]:
        """Extend the ways to where the agents now are, and draw arrows, goal and agent over them."""
        ways = self._places(np.stack([shown["achieved_goal"] for shown in seen[self._drawn :]], axis=1)).tolist()
        goals = self._places(seen[-1]["desired_goal"]).tolist()
        self._drawn = len(seen) - 1
        pictures, side = [], self.side
        for ground, way in zip(self.grounds, ways, strict=True):
            for start, end in itertools.pairwise(way):
                ground.line(start, end, 0.36 * side, PATH)
        for slot in slots:
            ground, canvas = self.grounds[slot], Canvas(PICTURE_WIDTH, PICTURE_WIDTH)
            canvas.pixels = ground.pixels + self.arrows[slot] * (np.asarray(MUTED) - ground.pixels)
            draw_marks(canvas, side, goals[slot], ways[slot][-1])
            pictures.append(canvas.image())
        return pictures
