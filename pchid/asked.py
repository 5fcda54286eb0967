"""The goals that are asked for: which hindsight pairs are worth a TEST when there is no budget for all of them.

In: the desired goals of episodes, and the hindsight goals of candidate pairs. Out: the pairs whose goals are most like
those that the environment asks for. What happens by chance is mostly something else: an object falls off the table a
hundred times before it is lifted once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Array = NDArray[Any]

REMEMBERED = 2000
"""Episodes whose goals are remembered."""
NEAREST = 8
"""Candidates near a goal, of which one is drawn."""


class AskedGoals:
    """Remembers the desired goals of the newest episodes, and draws candidates near them."""

    def __init__(self) -> None:
        self.goals: Array = np.empty((0, 0))

    def remember(self, desired: Array) -> None:
        """Take in the goals (E, ...) of finished episodes."""
        flat = desired.reshape(len(desired), -1).astype(np.float64)
        self.goals = np.concatenate([self.goals, flat])[-REMEMBERED:] if len(self.goals) else flat[-REMEMBERED:]

    def draw(self, candidates: Array, count: int, rng: np.random.Generator, share: float = 1.0) -> NDArray[np.int64]:
        """Indices of at most `count` of the candidate goals (P, ...), in ascending order and none twice.

        For each of `count` remembered goals, one of the nearest candidates: so they spread as the asked goals do, as
        far as there are candidates, and what was only met by chance is left out. With a `share` below 1, the others
        are drawn evenly.
        """
        if count == 0 or len(candidates) == 0:
            return np.empty(0, np.int64)
        near = min(NEAREST, len(candidates))
        wanted = self.goals[rng.integers(len(self.goals), size=count)]
        found = cKDTree(candidates.reshape(len(candidates), -1)).query(wanted, k=near)[1].reshape(count, near)
        drawn = found[np.arange(count), rng.integers(near, size=count)]
        if share < 1.0:
            drawn = np.where(rng.random(count) < share, drawn, rng.integers(len(candidates), size=count))
        picked: NDArray[np.int64] = np.unique(drawn)
        return picked
