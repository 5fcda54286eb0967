"""What the Fetch tasks do not tell apart: the same scene in a mirror, and a hand's breadth aside on the table.

In: how many pairs. Out: a symmetry drawn for each, which turns observations, goals and actions into those of the other
scene. The gripper is dragged by its target, so how the arm behind it bends hardly matters: this holds nearly, not
exactly (`tests/envs/test_fetch_symmetry.py` measures it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MIDDLE = 0.75  # metres: y of the plane that the robot is nearly symmetric to
SHIFT = 0.05  # metres: how far aside, at most, in x and in y

# Where the 25 numbers of an observation are (`FetchVectorEnv._read`).
PLACES = ((0, 1), (3, 4))  # x and y of gripper and object
ACROSS = (7, 15, 21)  # y of the object's place and velocity beside the gripper, and of the gripper's velocity
TURNS = (11, 13, 17, 19)  # angles and angular velocities about x and z
FINGERS = ((9, 10), (23, 24))  # right and left: places and velocities


@dataclass(frozen=True)
class FetchSymmetry:
    """One symmetry for each of B pairs."""

    mirrored: NDArray[np.bool_]
    """(B,)"""
    shift: Array
    """(B, 2): metres in x and y, after the mirror."""

    @classmethod
    def draw(cls, count: int, rng: np.random.Generator) -> FetchSymmetry:
        """A coin for the mirror, and a place aside."""
        return cls(rng.random(count) < 0.5, rng.uniform(-SHIFT, SHIFT, (count, 2)))

    def observations(self, observations: dict[str, Array]) -> dict[str, Array]:
        """What the other scene shows, by key, as new arrays."""
        turned = {key: values.copy() for key, values in observations.items()}
        for key in ("achieved_goal", "desired_goal"):
            self._move(turned[key], (0, 1))
        rows = turned["observation"]
        for place in PLACES:
            self._move(rows, place)
        sign = np.where(self.mirrored, -1.0, 1.0).astype(rows.dtype)[:, None]
        rows[:, (*ACROSS, *TURNS)] *= sign
        for right, left in FINGERS:
            rows[:, (right, left)] = np.where(self.mirrored[:, None], rows[:, (left, right)], rows[:, (right, left)])
        return turned

    def actions(self, actions: Array) -> Array:
        """What does there what the given actions do here: the sideways part changes its sign in a mirror."""
        turned = actions.copy()
        turned[self.mirrored, 1] *= -1
        return turned

    def _move(self, rows: Array, place: tuple[int, int]) -> None:
        x, y = place
        rows[self.mirrored, y] = 2 * MIDDLE - rows[self.mirrored, y]
        rows[:, x] += self.shift[:, 0].astype(rows.dtype)
        rows[:, y] += self.shift[:, 1].astype(rows.dtype)
