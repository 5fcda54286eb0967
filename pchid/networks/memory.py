"""What was planned already: on a map, towards a goal, one plan serves every start.

In: maps, agents and goals, and a function that plans. Out: each q-channel where the agents stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

REMEMBERED_CELLS = 1_000_000
"""Of tables, when new ones come; with ten channels these take 40 MB. What one call asks for is kept in any case."""

MET_MAPS = 20_000
"""How many maps are known to have been met; then it starts anew."""


class RememberedTables:
    """The q-channels in every cell, by map and goal, as long as the network stays the same.

    TEST, an evaluation and the behaviour between two updates ask again and again about the same maps, each time with
    the agent elsewhere.
    """

    def __init__(self) -> None:
        self.kind = b""
        self.tables: dict[bytes, NDArray[Any]] = {}
        self.met: set[bytes] = set()

    def recall(
        self,
        obstacle: Tensor,
        agent: Tensor,
        goal: Tensor,
        weights: Sequence[Tensor],
        iterations: int,
        plan: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor | None:
        """(B, channels), or None for maps that were all never met before: most of these are never met again.

        `plan(obstacle, goal)` gives (M, height, width, channels) for maps that are met again.
        """
        place = f"{obstacle.shape[1:]} {obstacle.dtype} {iterations}".encode()
        kind = b"".join([place, *(weight.numpy().tobytes() for weight in weights)])
        if kind != self.kind:
            self.kind, self.tables, self.met = kind, {}, set()
        asked = map_keys(obstacle, goal)
        if self.met.isdisjoint(asked):
            if len(self.met) > MET_MAPS:
                self.met = set()
            self.met.update(asked)
            return None
        unknown = {name: pair for pair, name in enumerate(asked) if name not in self.tables}
        if unknown:
            if len(self.tables) * obstacle.shape[1:].numel() > REMEMBERED_CELLS:
                self.tables, self.met = {}, set(asked)
                unknown = {name: pair for pair, name in enumerate(asked)}
            first = torch.tensor(list(unknown.values()))
            self.met.update(unknown)
            self.tables.update(zip(unknown, plan(obstacle[first], goal[first]).numpy(), strict=True))
        q = weights[-1].new_zeros(len(agent), len(weights[-1])).numpy()
        seen = agent.numpy()
        for pair, row, column in np.argwhere(seen):
            q[pair] += seen[pair, row, column] * self.tables[asked[pair]][row, column]
        return torch.from_numpy(q)


def map_keys(obstacle: Tensor, goal: Tensor) -> list[bytes]:
    """For each pair, bytes that are the same where map and goal are."""
    parts = (obstacle.flatten(1), goal.long())
    rows = np.concatenate([part.contiguous().numpy().view(np.uint8) for part in parts], axis=1)
    return [row.tobytes() for row in rows]
