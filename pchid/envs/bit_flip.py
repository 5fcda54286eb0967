"""Bit flipping (Sec. 3.2): n bits, each action turns one of them, and the goal is another assignment.

The state space is flat: a step towards any goal is a step that turns one wrong bit, so inverse dynamics
extrapolate from one-step goals to all goals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import MultiBinary
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from pchid.envs.domain import ELAPSED, DomainEnv, DomainVectorEnv, Flags, States
from pchid.envs.drawing import GOAL, LINE, MUTED, STATE, WHITE, WRONG, Canvas, Colour
from pchid.envs.randomness import uniform
from pchid.errors import InputError

PICTURE_WIDTH = 448
MARGIN = 20
BITS_A_LINE = 16


class BitFlipVectorEnv(DomainVectorEnv):
    """Bit flipping in many slots; reward 0 at the goal, which ends the episode, and -1 elsewhere.

    A row of the state is [elapsed, n bits, n goal bits]. Episodes last n_bits steps at most: enough, since
    no goal is further away than that.
    """

    def __init__(
        self,
        num_envs: int = 1,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        *,
        n_bits: int = 11,
    ) -> None:
        """Make `num_envs` slots of `n_bits` bits each."""
        if n_bits < 1:
            raise InputError(f"n_bits must be at least 1, got {n_bits}.")
        self.n_bits = n_bits
        super().__init__(
            num_envs,
            render_mode,
            autoreset_mode,
            observation_space=MultiBinary(n_bits),
            goal_space=MultiBinary(n_bits),
            n_actions=n_bits,
            state_size=2 * n_bits,
            horizon=n_bits,
            success_reward=0.0,
            step_reward=-1.0,
        )

    def _propose(self, keys: NDArray[np.uint64], attempt: int) -> tuple[States, Flags]:
        bits = uniform(keys, 2 * self.n_bits, stream=attempt) < 0.5
        states = np.zeros((len(keys), 1 + 2 * self.n_bits), dtype=np.int64)
        states[:, 1:] = bits
        return states, (bits[:, : self.n_bits] != bits[:, self.n_bits :]).any(axis=1)

    def _move(self, states: States, actions: NDArray[np.int64]) -> None:
        states[np.arange(len(states)), 1 + actions] ^= 1

    def _achieved(self, states: States) -> NDArray[Any]:
        return states[:, 1 : 1 + self.n_bits].astype(np.int8)

    def _observation(self, states: States) -> NDArray[Any]:
        return self._achieved(states)

    def _desired(self, states: States) -> NDArray[Any]:
        return states[:, 1 + self.n_bits :].astype(np.int8)

    def _distance(self, states: States, goals: NDArray[Any]) -> NDArray[np.float64]:
        wrong: NDArray[np.float64] = np.not_equal(self._achieved(states), goals).sum(axis=1, dtype=np.float64)
        return wrong

    def _text(self, state: NDArray[np.int64]) -> str:
        bits, goal = self._achieved(state[None])[0], self._desired(state[None])[0]
        marks = np.where(bits != goal, "↕", " ")
        lines = (("bits", bits), ("", marks), ("goal", goal))
        steps = f"step {state[ELAPSED]} of {self.horizon}"
        return "\n".join([steps, *(f"{name:4} {' '.join(map(str, row))}".rstrip() for name, row in lines)])

    def _picture(self, state: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Draw the bits above the goal's, line by line, wrong bits outlined and tied to their goal."""
        bits, goal = self._achieved(state[None])[0], self._desired(state[None])[0]
        lines = -(-self.n_bits // BITS_A_LINE)
        columns = -(-self.n_bits // lines)
        pitch = (PICTURE_WIDTH - 2 * MARGIN) / max(columns, 8)
        side, small = pitch * 0.86, pitch * 0.56
        line_height = side + small + pitch * 0.62
        height = int(2 * MARGIN + lines * line_height - pitch * 0.3) // 2 * 2
        canvas = Canvas(PICTURE_WIDTH, height)
        indent = (PICTURE_WIDTH - columns * pitch) / 2
        for index in range(self.n_bits):
            line, column = divmod(index, columns)
            middle = indent + (column + 0.5) * pitch
            top = MARGIN + line * line_height
            goal_top = top + side + pitch * 0.32
            if bits[index] != goal[index]:
                canvas.tile(middle - 1.5, top + side, 3, goal_top - top - side, WRONG)
            _bit(canvas, middle, top, side, bool(bits[index]), STATE)
            if bits[index] != goal[index]:
                canvas.tile(middle - side / 2, top, side, side, WRONG, radius=side * 0.2, line=max(side * 0.1, 2))
            _bit(canvas, middle, goal_top, small, bool(goal[index]), GOAL)
        return canvas.image()


def _bit(canvas: Canvas, middle: float, top: float, side: float, one: bool, colour: Colour) -> None:
    """Draw one bit as a tile with its digit: filled for 1, empty for 0."""
    left, radius = middle - side / 2, side * 0.2
    canvas.tile(left, top, side, side, colour if one else WHITE, radius=radius)
    stroke = side * 0.11
    if one:
        canvas.tile(middle - stroke / 2, top + side * 0.27, stroke, side * 0.46, WHITE, radius=stroke / 2)
    else:
        canvas.tile(left, top, side, side, LINE, radius=radius, line=max(side * 0.05, 1))
        canvas.tile(
            middle - side * 0.16,
            top + side * 0.27,
            side * 0.32,
            side * 0.46,
            MUTED,
            radius=side * 0.16,
            line=stroke * 0.85,
        )


class BitFlipEnv(DomainEnv):
    """Bit flipping as a single environment."""

    def __init__(self, render_mode: str | None = None, *, n_bits: int = 11) -> None:
        """Make one environment of `n_bits` bits."""
        super().__init__(BitFlipVectorEnv(1, render_mode, AutoresetMode.DISABLED, n_bits=n_bits))
