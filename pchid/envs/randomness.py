"""Counter-based random numbers: every episode is a pure function of its slot's seed and its number.

The paper draws a new start, goal (and map) in each episode (Sec. 3.2 and 4.1). A stateful generator per
environment would need a Python loop over environments to draw them, and would tie an episode to everything
drawn before it. Here a key is hashed together with a counter (the finaliser of SplitMix64), so that any
episode of any slot can be generated at once, alone, and again.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pchid.errors import InputError

# Odd, so that multiples of it visit every 64-bit number; taken from the golden ratio as in SplitMix64.
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
# Separates the hash of seeds from the hash of streams; its value has no meaning.
_SEED_OFFSET = np.uint64(0xD1B54A32D192ED03)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_MANTISSA_SHIFT = np.uint64(11)


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash 64-bit numbers one to one, each input bit changing each output bit with probability one half."""
    values = (values ^ (values >> _SHIFTS[0])) * _FACTORS[0]
    values = (values ^ (values >> _SHIFTS[1])) * _FACTORS[1]
    return values ^ (values >> _SHIFTS[2])


def uniform(keys: NDArray[np.uint64], count: int, stream: int = 0) -> NDArray[np.float64]:
    """Return (N, count) numbers in [0, 1), row i depending on `keys[i]` and `stream` alone."""
    keys = np.asarray(keys, dtype=np.uint64)
    # The key is hashed before the counter is added: otherwise keys that differ by the increment would
    # produce the same row, shifted by one.
    stream_hash = mix(np.array([stream], dtype=np.uint64) * _INCREMENT + _INCREMENT)
    base = mix(mix(keys) + stream_hash)
    counters = np.arange(1, count + 1, dtype=np.uint64) * _INCREMENT
    bits = mix(base[:, None] + counters[None, :])
    # 53 bits are what a float64 holds; the shift keeps the result below one.
    return (bits >> _MANTISSA_SHIFT).astype(np.float64) * 2.0**-53


def episode_keys(seeds: NDArray[np.uint64], episodes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the (N,) keys of the given episode numbers of slots with the given seeds."""
    hashed = mix(np.asarray(seeds, dtype=np.uint64) + _SEED_OFFSET)
    numbers = np.asarray(episodes, dtype=np.int64).astype(np.uint64)
    return mix(hashed + numbers * _INCREMENT)


class SlotEpisodes:
    """Which episode each of n slots is at: the slot's seed and the episode's number, -1 before the first."""

    def __init__(self, n: int) -> None:
        """Start without seeds."""
        self.seeds: NDArray[np.uint64] | None = None
        self.numbers: NDArray[np.int64] = np.full(n, -1, dtype=np.int64)

    def seed(self, seed: int | Sequence[int] | NDArray[Any], slots: NDArray[np.bool_]) -> None:
        """Give the slots of the mask their seeds, `seed + i` or one each, and start them from episode 0."""
        seeds = self._counts(seed, "seed")
        if seeds.ndim == 0:
            seeds = seeds + np.arange(len(self.numbers))
        given = seeds.astype(np.uint64)
        self.seeds = given if self.seeds is None else np.where(slots, given, self.seeds)
        self.numbers = np.where(slots, -1, self.numbers)

    def ensure_seeds(self, rng: np.random.Generator) -> NDArray[np.uint64]:
        """Return the slots' seeds, drawn from the generator if nobody has given any."""
        if self.seeds is None:
            self.seed(rng.integers(2**31, size=len(self.numbers)), np.ones(len(self.numbers), bool))
        assert self.seeds is not None
        return self.seeds

    def advance(self, slots: NDArray[np.bool_], numbers: Any = None) -> None:
        """Go on to the next episode in the slots of the mask, or to the given one."""
        following = self.numbers + 1 if numbers is None else self._counts(numbers, "options['episode']")
        self.numbers = np.where(slots, following, self.numbers).astype(np.int64)

    def keys(self, slots: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the keys of the current episodes of the slots with the given indices."""
        assert self.seeds is not None
        return episode_keys(self.seeds[slots], self.numbers[slots])

    def reset_seeds(self, slots: NDArray[np.int64]) -> list[int]:
        """Return seeds for single environments, which start the current episodes of the slots with the given indices.

        The first episode takes the slot's seed itself, so that it is the one which the plain environment starts with.
        """
        assert self.seeds is not None
        first = self.numbers[slots] == 0
        keys = np.where(first, self.seeds[slots], self.keys(slots) >> np.uint64(33))
        return [int(key) for key in keys]

    def _counts(self, values: Any, name: str) -> NDArray[Any]:
        array = np.asarray(values)
        n = len(self.numbers)
        if array.dtype.kind not in "iu" or array.shape not in ((), (n,)) or (array < 0).any():
            raise InputError(f"{name} must be one non-negative integer, or {n} of them, got {values}.")
        return array


class SeededSlots:
    """What every vector environment here tells of its episodes; it goes before Gymnasium's class."""

    _episodes: SlotEpisodes

    @property
    def seeds(self: Any) -> NDArray[np.uint64]:
        """The (N,) seed of each slot."""
        seeds: NDArray[np.uint64] = self._episodes.ensure_seeds(self.np_random).copy()
        return seeds

    @property
    def episode_numbers(self) -> NDArray[np.int64]:
        """The (N,) number of each slot's current episode, -1 before the first."""
        return self._episodes.numbers.copy()


def slot_seeds(seed: int, n: int) -> list[int]:
    """Return n distinct seeds below 2**31, one for each slot; slot i's does not depend on n."""
    seeds: dict[int, None] = {}
    for slot in range(n):
        words = 1
        while True:
            candidate = int(np.random.SeedSequence((seed, slot)).generate_state(words)[-1]) & 0x7FFFFFFF
            if candidate not in seeds:
                break
            words += 1  # two slots met by chance: take this one's next word
        seeds[candidate] = None
    return list(seeds)


def named_seed(seed: int, name: str) -> int:
    """One seed spawns many: each use of random numbers has a stream of its own, whatever the others draw."""
    return int(np.random.SeedSequence((seed, zlib.crc32(name.encode()))).generate_state(1)[0] >> 1)
