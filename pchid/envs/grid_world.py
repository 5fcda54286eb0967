"""GridWorld navigation (Sec. 4.1): find the way to a goal on a map of obstacles, new in each episode."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike, NDArray

from pchid.envs import drawing
from pchid.envs.domain import ELAPSED, DomainEnv, DomainVectorEnv, Flags, States
from pchid.envs.maps import (
    MAX_SIZE,
    MIN_SIZE,
    Words,
    checked_maps,
    distance_to_goal,
    free_cells,
    has,
    load_maps,
    pack,
    reachable,
    single_cells,
    spread,
    unpack,
)
from pchid.envs.randomness import uniform
from pchid.errors import InputError

__all__ = ["MOVES", "GridWorldEnv", "GridWorldVectorEnv", "distance_to_goal", "load_maps"]

# Action -> (row, column) step: north, north-east, then on clockwise to north-west.
MOVES: NDArray[np.int64] = np.array(
    [(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)], dtype=np.int64
)

# Columns of a state row, after the elapsed steps; the rows of the map, as bits, follow.
AGENT = slice(1, 3)
GOAL = slice(3, 5)
MAP = 5

# How many starts are tried on a map before another map is drawn. The rule is fitted, not the authors' own:
# of their maps it is known that 65 % of the interior is blocked and that optimal paths take 4.7 moves on
# average, some 19. Over 20,000 maps, two tries give 65.7 %, 4.8 and a longest path of 28 (99 % are at most
# 17). Over 5,000 maps, trying until a start fits gives 66.5 % and 3.9, since goals in small pockets stay, and
# a single try 65.4 % and 5.0.
START_TRIES = 2

PICTURE_WIDTH = 448
MARGIN = 16


class GridWorldVectorEnv(DomainVectorEnv):
    """Navigation in many slots; reward 10 at the goal, which ends the episode, and -0.02 elsewhere.

    A move into a blocked cell, or off the map, leaves the agent where it is. A diagonal move between two
    blocked cells is allowed.
    """

    def __init__(
        self,
        num_envs: int = 1,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        *,
        size: int = 16,
        n_obstacles: int = 50,
        horizon: int = 50,
    ) -> None:
        """Make `num_envs` slots, each with maps of `size` by `size` cells including the blocked border."""
        if not MIN_SIZE <= size <= MAX_SIZE:
            raise InputError(f"size must lie between {MIN_SIZE} and {MAX_SIZE}, got {size}.")
        if n_obstacles < 0:
            raise InputError(f"n_obstacles must not be negative, got {n_obstacles}.")
        self.size = size
        self.n_obstacles = n_obstacles
        super().__init__(
            num_envs,
            render_mode,
            autoreset_mode,
            observation_space=Box(0, 1, (2, size, size), np.uint8),
            goal_space=Box(0, size - 1, (2,), np.int64),
            n_actions=len(MOVES),
            state_size=MAP - 1 + size,
            horizon=horizon,
            success_reward=10.0,
            step_reward=-0.02,
        )
        border = np.ones((1, size, size), dtype=np.uint8)
        border[:, 1:-1, 1:-1] = 0
        self._border: Words = pack(border)[0]

    def _propose(self, keys: NDArray[np.uint64], attempt: int) -> tuple[States, Flags]:
        """Draw a map of rectangles, a goal in the interior, and a start that can reach it."""
        n, size, count = len(keys), self.size, self.n_obstacles
        numbers = uniform(keys, 2 + START_TRIES + 4 * count, stream=attempt)
        goal = 1 + (numbers[:, :2] * (size - 2)).astype(np.int64)
        blocked = self._rectangles(numbers[:, 2 + START_TRIES :].reshape(n, count, 4), goal)
        blocked |= self._border
        # On a given map all starts that can reach the goal are equally likely, however often one is tried.
        free = free_cells(blocked)
        goal_cells = single_cells(goal, size)
        connected = unpack(reachable(free, goal) & ~goal_cells, size).reshape(n, -1)
        rank = unpack(free & ~goal_cells, size).reshape(n, -1).cumsum(axis=1, dtype=np.int64)
        start = np.zeros(n, dtype=np.int64)
        found = np.zeros(n, dtype=np.bool_)
        for draw in numbers[:, 2 : 2 + START_TRIES].T:
            wanted = (draw * rank[:, -1]).astype(np.int64) + 1
            cell = (rank >= wanted[:, None]).argmax(axis=1)
            start = np.where(found, start, cell)
            found |= connected[np.arange(n), cell] != 0
        states = np.zeros((n, MAP + size), dtype=np.int64)
        states[:, AGENT] = np.stack(np.divmod(start, size), axis=1)
        states[:, GOAL] = goal
        states[:, MAP:] = blocked.view(np.int64)
        return states, found

    def _rectangles(self, numbers: NDArray[np.float64], goal: NDArray[np.int64]) -> Words:
        """Return the union of (N, count) rectangles, those dropped that cover the goal, as rows of bits."""
        size = self.size
        sides = np.maximum(np.ceil(numbers[:, :, :2] * size / 4), 1).astype(np.int64)
        # The first corner is uniform over all cells but the first row and column, which the border covers
        # anyway; what reaches beyond the map is cut off.
        corner = 1 + (numbers[:, :, 2:] * (size - 1)).astype(np.int64)
        end = np.minimum(corner + sides, size)
        covers = ((corner <= goal[:, None]) & (goal[:, None] < end)).all(axis=2)
        rows = np.arange(size)
        tall = (corner[:, :, :1] <= rows) & (rows < end[:, :, :1]) & ~covers[:, :, None]
        left, width = corner[:, :, 1].astype(np.uint64), (end - corner)[:, :, 1].astype(np.uint64)
        one = np.uint64(1)
        wide = ((one << width) - one) << left
        union: Words = np.bitwise_or.reduce(np.where(tall, wide[:, :, None], np.uint64(0)), axis=1)
        return union

    def _move(self, states: States, actions: NDArray[np.int64]) -> None:
        cells = states[:, AGENT] + MOVES[actions]
        inside = ((cells >= 0) & (cells < self.size)).all(axis=1)
        allowed = inside & ~has(states[:, MAP:], np.clip(cells, 0, self.size - 1))
        states[:, AGENT] = np.where(allowed[:, None], cells, states[:, AGENT])

    def _observation(self, states: States) -> NDArray[Any]:
        planes = np.zeros((len(states), 2, self.size, self.size), dtype=np.uint8)
        planes[:, 0] = unpack(states[:, MAP:], self.size)
        planes[np.arange(len(states)), 1, states[:, AGENT.start], states[:, AGENT.start + 1]] = 1
        return planes

    def _achieved(self, states: States) -> NDArray[Any]:
        return states[:, AGENT].copy()

    def _desired(self, states: States) -> NDArray[Any]:
        return states[:, GOAL].copy()

    def _distance(self, states: States, goals: NDArray[Any]) -> NDArray[np.float64]:
        # The search starts at the agents, and stops as soon as every goal has been met or ruled out.
        agents, targets = states[:, AGENT], goals.astype(np.int64)
        reached = single_cells(agents, self.size)
        free = free_cells(states[:, MAP:].astype(np.uint64))
        distances = np.full(len(states), np.inf)
        pending, depth = np.arange(len(states)), 0
        while len(pending):
            met = has(reached, targets[pending])
            distances[pending[met]] = depth
            grown = reached | (spread(reached) & free)
            alive = ~met & (grown != reached).any(axis=1)
            pending, reached, free = pending[alive], grown[alive], free[alive]
            depth += 1
        return distances

    def set_maps(self, obstacle: ArrayLike, start: ArrayLike, goal: ArrayLike) -> None:
        """Put M = num_envs given maps into the slots, at step 0: (M, size, size) and twice (M, 2)."""
        arrays = {"obstacle": np.asarray(obstacle), "start": np.asarray(start), "goal": np.asarray(goal)}
        maps = checked_maps(arrays)
        expected = (self.num_envs, self.size, self.size)
        if maps["obstacle"].shape != expected:
            raise InputError(f"obstacle must have shape {expected}, got {maps['obstacle'].shape}.")
        states = np.zeros_like(self._states)
        states[:, AGENT], states[:, GOAL] = maps["start"], maps["goal"]
        states[:, MAP:] = pack(maps["obstacle"]).view(np.int64)
        self.set_state(states)

    def _text(self, state: NDArray[np.int64]) -> str:
        cells = np.where(unpack(state[None, MAP:], self.size)[0] != 0, "██", " ·").astype(object)
        agent, goal = tuple(state[AGENT]), tuple(state[GOAL])
        cells[goal] = " ◎"
        cells[agent] = " ◉" if agent == goal else " ●"
        steps = f"step {state[ELAPSED]} of {self.horizon}"
        return "\n".join([*("".join(row) for row in cells), steps])

    def _picture(self, state: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Draw the map, the goal as a target and the agent as a disc that fits into it."""
        side = (PICTURE_WIDTH - 2 * MARGIN) // self.size
        corner = (PICTURE_WIDTH - side * self.size) // 2
        canvas = drawing.Canvas(PICTURE_WIDTH, PICTURE_WIDTH)
        blocked = unpack(state[None, MAP:], self.size)[0] != 0
        canvas.cells(corner, corner, side, np.ones_like(blocked), drawing.LINE)
        canvas.cells(corner, corner, side, ~blocked, drawing.WHITE, gap=1)
        canvas.cells(corner, corner, side, blocked, drawing.WALL)
        # The grid lines are one pixel wide on the right and below: what is centred lies half a pixel before.
        draw_marks(
            canvas, side, *((corner - 0.5 + (state[part] + 0.5) * side).tolist()[::-1] for part in (GOAL, AGENT))
        )
        return canvas.image()


def draw_marks(canvas: drawing.Canvas, side: int, goal: drawing.Point, agent: drawing.Point) -> None:
    """Draw a goal as a target and an agent as a disc that fits into it, around (x, y), on cells of `side` pixels."""
    canvas.disc(*goal, side * 0.47, drawing.GOAL, line=max(side * 0.12, 1))
    canvas.disc(*goal, side * 0.17, drawing.GOAL)
    canvas.disc(*agent, side * 0.34, drawing.STATE)


class GridWorldEnv(DomainEnv):
    """GridWorld navigation as a single environment."""

    def __init__(
        self, render_mode: str | None = None, *, size: int = 16, n_obstacles: int = 50, horizon: int = 50
    ) -> None:
        """Make one environment; see `GridWorldVectorEnv`."""
        super().__init__(
            GridWorldVectorEnv(
                1,
                render_mode,
                AutoresetMode.DISABLED,
                size=size,
                n_obstacles=n_obstacles,
                horizon=horizon,
            )
        )
