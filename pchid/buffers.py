"""The buffers B_1 ... B_K of Algorithm 1, and the merged B of PEHID (supplement, Algorithm 2).

In: pairs that passed TEST. Out: minibatches over all of them, so that fitting pi_k keeps pi_1 ... pi_{k-1} (Eq. 5).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pchid.hindsight import HindsightPairs

Array = NDArray[Any]
FIELDS = ("observation", "achieved", "goal", "action", "k", "state")


class PairBuffer:
    """A ring of the newest `capacity` pairs; it takes memory only as it fills."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.added = 0
        self._arrays: dict[str, Array] = {}

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, pairs: HindsightPairs) -> None:
        """Append copies of the pairs; the oldest make room."""
        count = len(pairs)
        if count == 0:
            return
        self._reserve(pairs, min(self.added + count, self.capacity))
        # More pairs than the ring holds at once: only its newest would stay, so only they are written.
        offset = max(count - self.capacity, 0)
        rows = (self.added + np.arange(offset, count)) % self.capacity
        for name, values in self._arrays.items():
            values[rows] = getattr(pairs, name)[offset:]
        self.added += count

    def take(self, rows: Array) -> HindsightPairs:
        """The pairs in the given rows, as copies."""
        return HindsightPairs(**{name: values[rows] for name, values in self._arrays.items()})

    def everything(self) -> HindsightPairs:
        """All pairs, as copies."""
        return self.take(np.arange(len(self)))

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"added": self.added, "arrays": {name: values[: len(self)] for name, values in self._arrays.items()}}

    def load_state(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.added = state["added"]
        self._arrays = {name: values.copy() for name, values in state["arrays"].items()}

    def _reserve(self, pairs: HindsightPairs, size: int) -> None:
        for name in FIELDS:
            new = getattr(pairs, name)
            if new is None:
                continue
            old = self._arrays.get(name)
            if old is None or len(old) < size:
                rows = min(max(size, 2 * len(old) if old is not None else 1024), self.capacity)
                grown = np.zeros((rows, *new.shape[1:]), new.dtype)
                if old is not None:
                    grown[: len(old)] = old
                self._arrays[name] = grown


class StepBuffers:
    """One `PairBuffer` for each k, or a single one for all k if `merged`."""

    def __init__(self, capacity: int, merged: bool = False, balanced: bool = True) -> None:
        self.capacity = capacity
        self.merged = merged
        self.balanced = balanced
        self.buffers: dict[int, PairBuffer] = {}

    def __len__(self) -> int:
        return sum(len(buffer) for buffer in self.buffers.values())

    @property
    def added(self) -> int:
        """How many pairs have ever been put in."""
        return sum(buffer.added for buffer in self.buffers.values())

    def sizes(self) -> dict[int, int]:
        """How many pairs each buffer holds (under 0 if merged)."""
        return {k: len(buffer) for k, buffer in sorted(self.buffers.items())}

    def add(self, pairs: HindsightPairs) -> None:
        """Put each pair into the B_k of its k."""
        for k in [0] if self.merged else np.unique(pairs.k).tolist():
            self.buffers.setdefault(k, PairBuffer(self.capacity)).add(
                pairs if self.merged else pairs.select(pairs.k == k)
            )

    def sample(self, size: int, rng: np.random.Generator) -> HindsightPairs:
        """`size` pairs drawn with replacement, over all buffers together: the sum of Eq. 5.

        If `balanced`, each B_k has the same share; otherwise each pair has, and the short pieces, which are many and
        soon learned, drown the long ones.
        """
        filled = [buffer for _, buffer in sorted(self.buffers.items()) if len(buffer)]
        sizes = np.array([len(buffer) for buffer in filled])
        shares = np.ones(len(filled)) if self.balanced else sizes
        counts = rng.multinomial(size, shares / shares.sum())
        parts = zip(filled, sizes, counts, strict=True)
        return concatenate([buffer.take(rng.integers(length, size=count)) for buffer, length, count in parts if count])

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {str(k): buffer.state() for k, buffer in sorted(self.buffers.items())}

    def load_state(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.buffers = {}
        for k, saved in state.items():
            self.buffers[int(k)] = PairBuffer(self.capacity)
            self.buffers[int(k)].load_state(saved)


def concatenate(parts: list[HindsightPairs]) -> HindsightPairs:
    """Several batches of pairs as one."""
    if len(parts) == 1:
        return parts[0]
    present = [name for name in FIELDS if getattr(parts[0], name) is not None]
    return HindsightPairs(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in present})
