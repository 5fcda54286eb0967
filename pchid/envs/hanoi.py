"""The Tower of Hanoi, the paper's opening example (Sec. 1), between any two configurations.

Solving it means solving ever larger towers, which is what policy continuation does with k. It is the
opposite of bit flipping: the right move depends on everything below it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import MultiBinary
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from pchid.envs.domain import ELAPSED, DomainEnv, DomainVectorEnv, Flags, States
from pchid.envs.drawing import GOAL, INK, PANEL, Canvas, Colour
from pchid.envs.randomness import uniform
from pchid.errors import InputError

N_PEGS = 3

# Action -> (from peg, to peg).
MOVES: NDArray[np.int64] = np.array([(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)], dtype=np.int64)

PICTURE_WIDTH, PICTURE_HEIGHT, GOAL_TOP = 448, 320, 216
DISC_COLOURS: list[Colour] = [(222, 106, 84), (236, 178, 74), (92, 168, 128), (58, 116, 178), (96, 78, 150)]

# On each peg the discs can lie in one legal order only, so any assignment of discs to pegs is a legal
# configuration, and a state is just one peg for each disc.


class HanoiVectorEnv(DomainVectorEnv):
    """Towers in many slots; reward 0 at the goal, which ends the episode, and -1 elsewhere.

    A row of the state is [elapsed, peg of each disc, goal peg of each disc], smallest disc first. No two
    configurations are more than 2**n - 1 moves apart; the horizon is twice that.
    """

    def __init__(
        self,
        num_envs: int = 1,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        *,
        n_discs: int = 4,
    ) -> None:
        """Make `num_envs` slots of `n_discs` discs each."""
        if n_discs < 1:
            raise InputError(f"n_discs must be at least 1, got {n_discs}.")
        self.n_discs = n_discs
        super().__init__(
            num_envs,
            render_mode,
            autoreset_mode,
            observation_space=MultiBinary(N_PEGS * n_discs),
            goal_space=MultiBinary(N_PEGS * n_discs),
            n_actions=len(MOVES),
            state_size=2 * n_discs,
            horizon=2 * (2**n_discs - 1),
            success_reward=0.0,
            step_reward=-1.0,
        )

    def _propose(self, keys: NDArray[np.uint64], attempt: int) -> tuple[States, Flags]:
        pegs = (uniform(keys, 2 * self.n_discs, stream=attempt) * N_PEGS).astype(np.int64)
        states = np.zeros((len(keys), 1 + 2 * self.n_discs), dtype=np.int64)
        states[:, 1:] = pegs
        return states, (pegs[:, : self.n_discs] != pegs[:, self.n_discs :]).any(axis=1)

    def _move(self, states: States, actions: NDArray[np.int64]) -> None:
        pegs = states[:, 1 : 1 + self.n_discs]
        source, target = MOVES[actions].T
        rows = np.arange(len(states))
        # An empty peg has a top disc larger than any: it can be moved onto, and never from.
        tops = np.full((len(states), N_PEGS), self.n_discs)
        for disc in reversed(range(self.n_discs)):
            tops[rows, pegs[:, disc]] = disc
        moved = tops[rows, source]
        legal = moved < tops[rows, target]
        pegs[rows[legal], moved[legal]] = target[legal]

    def _one_hot(self, pegs: NDArray[np.int64]) -> NDArray[np.int8]:
        return np.equal(pegs[:, :, None], np.arange(N_PEGS)).astype(np.int8).reshape(len(pegs), -1)

    def _achieved(self, states: States) -> NDArray[Any]:
        return self._one_hot(states[:, 1 : 1 + self.n_discs])

    def _observation(self, states: States) -> NDArray[Any]:
        return self._achieved(states)

    def _desired(self, states: States) -> NDArray[Any]:
        return self._one_hot(states[:, 1 + self.n_discs :])

    def _distance(self, states: States, goals: NDArray[Any]) -> NDArray[np.float64]:
        pegs = states[:, 1 : 1 + self.n_discs]
        target = goals.reshape(len(goals), self.n_discs, N_PEGS).argmax(axis=2)
        return moves_between(pegs, target).astype(np.float64)

    def _text(self, state: NDArray[np.int64]) -> str:
        pegs, goal = state[1 : 1 + self.n_discs], state[1 + self.n_discs :]
        width = N_PEGS * (2 * self.n_discs + 2)
        lines = [f"{'discs':{width}}   goal"]
        lines += [f"{left}   {right}" for left, right in zip(_towers(pegs), _towers(goal), strict=True)]
        lines += ["━" * width + "   " + "━" * width, f"step {state[ELAPSED]} of {self.horizon}"]
        return "\n".join(lines)

    def _picture(self, state: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Draw the towers, and the goal's smaller and paler on a panel below them."""
        pegs, goal = state[1 : 1 + self.n_discs], state[1 + self.n_discs :]
        canvas = Canvas(PICTURE_WIDTH, PICTURE_HEIGHT)
        canvas.tile(0, GOAL_TOP, PICTURE_WIDTH, PICTURE_HEIGHT - GOAL_TOP, PANEL)
        _draw_towers(canvas, pegs, left=20, floor=GOAL_TOP - 24, width=408, height=GOAL_TOP - 56, opacity=1.0)
        canvas.disc(44, GOAL_TOP + 50, 17, GOAL, line=5)
        canvas.disc(44, GOAL_TOP + 50, 6, GOAL)
        _draw_towers(canvas, goal, left=104, floor=PICTURE_HEIGHT - 18, width=240, height=64, opacity=0.75)
        return canvas.image()


def _towers(pegs: NDArray[np.int64]) -> list[str]:
    """Return the lines of a drawing of one configuration in text, top line first."""
    n_discs = len(pegs)
    columns = []
    for peg in range(N_PEGS):
        discs = [int(disc) for disc in np.flatnonzero(pegs == peg)]
        bars = ["│"] * (n_discs - len(discs)) + ["█" * (2 * disc + 1) for disc in discs]
        columns.append([bar.center(2 * n_discs + 1) for bar in bars])
    return [" " + " ".join(line) for line in zip(*columns, strict=True)]


def _draw_towers(
    canvas: Canvas,
    pegs: NDArray[np.int64],
    *,
    left: float,
    floor: float,
    width: float,
    height: float,
    opacity: float,
) -> None:
    """Draw one configuration that stands on `floor` and leaves room for every disc on one peg."""
    n_discs = len(pegs)
    pitch = width / N_PEGS
    thickness = min(height / (n_discs + 0.8), pitch * 0.24)
    peg_width = max(pitch * 0.05, 3.0)
    tall = thickness * (n_discs + 0.8)
    base = max(peg_width, 4.0)
    canvas.tile(left, floor, width, base, INK, radius=base / 2, opacity=opacity)
    for peg in range(N_PEGS):
        middle = left + (peg + 0.5) * pitch
        canvas.tile(
            middle - peg_width / 2,
            floor - tall,
            peg_width,
            tall + base / 2,
            INK,
            radius=peg_width / 2,
            opacity=opacity,
        )
        for level, disc in enumerate(np.flatnonzero(pegs == peg)[::-1]):
            share = (disc + 1) / n_discs
            wide = pitch * (0.22 + 0.68 * share)
            top = floor - (level + 1) * thickness
            colour = _disc_colour(int(disc), n_discs)
            gap = max(thickness * 0.06, 1.0)
            # First in the panel's colour, so that the peg does not shine through a pale disc.
            for shade, cover in ((PANEL, 1.0), (colour, opacity)):
                canvas.tile(
                    middle - wide / 2,
                    top + gap,
                    wide,
                    thickness - gap,
                    shade,
                    radius=thickness * 0.36,
                    opacity=cover,
                )


def _disc_colour(disc: int, n_discs: int) -> Colour:
    """Return a colour between the scale's stops, from the smallest to the largest disc."""
    position = disc / max(n_discs - 1, 1) * (len(DISC_COLOURS) - 1)
    lower = min(int(position), len(DISC_COLOURS) - 2)
    stops = np.array(DISC_COLOURS[lower : lower + 2], dtype=np.float64)
    red, green, blue = np.rint(stops[0] + (position - lower) * (stops[1] - stops[0])).astype(int).tolist()
    return red, green, blue


def moves_between(pegs: NDArray[np.int64], goals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the least number of moves between (P, n) configurations, given as the peg of each disc.

    Discs below the largest misplaced one never move. That one moves once, with all smaller discs waiting on
    the third peg, or twice, by way of the third peg (never more); the shorter of the two is the distance.
    """
    n_discs = pegs.shape[1]
    rows = np.arange(len(pegs))
    differs = pegs != goals
    largest = n_discs - 1 - differs[:, ::-1].argmax(axis=1)
    source, target = pegs[rows, largest], goals[rows, largest]
    third = N_PEGS - source - target
    once = 1 + _moves_to_stack(pegs, third, largest) + _moves_to_stack(goals, third, largest)
    # Between its two moves the smaller discs go over from the target to the source: 2**largest - 1 moves.
    between = 2**largest + 1
    twice = between + _moves_to_stack(pegs, target, largest) + _moves_to_stack(goals, source, largest)
    return np.where(differs.any(axis=1), np.minimum(once, twice), 0)


def _moves_to_stack(pegs: NDArray[np.int64], peg: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the least moves that stack each row's `count` smallest discs on its `peg`."""
    moves = np.zeros(len(pegs), dtype=np.int64)
    for disc in reversed(range(pegs.shape[1])):
        misplaced = (pegs[:, disc] != peg) & (disc < count)
        # Moving disc d takes all smaller ones to the third peg first, and a full stack back: 2**d in all.
        moves += np.where(misplaced, 2**disc, 0)
        peg = np.where(misplaced, N_PEGS - pegs[:, disc] - peg, peg)
    return moves


class HanoiEnv(DomainEnv):
    """The Tower of Hanoi as a single environment."""

    def __init__(self, render_mode: str | None = None, *, n_discs: int = 4) -> None:
        """Make one environment of `n_discs` discs."""
        super().__init__(HanoiVectorEnv(1, render_mode, AutoresetMode.DISABLED, n_discs=n_discs))
