"""Counter-based random numbers: reproducible, independent of their neighbours, uniform."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pchid.envs.randomness import SlotEpisodes, episode_keys, mix, slot_seeds, uniform

WORDS = st.integers(0, 2**64 - 1)


@given(st.lists(WORDS, min_size=1, max_size=8), st.integers(0, 20), st.integers(0, 1000))
def test_rows_depend_on_their_key_alone(keys: list[int], count: int, stream: int) -> None:
    together = uniform(np.array(keys, dtype=np.uint64), count, stream)
    assert together.shape == (len(keys), count)
    assert together.dtype == np.float64
    assert ((together >= 0) & (together < 1)).all()
    for row, key in zip(together, keys, strict=True):
        np.testing.assert_array_equal(row, uniform(np.array([key], dtype=np.uint64), count, stream)[0])


@given(WORDS)
def test_more_numbers_extend_fewer(key: int) -> None:
    keys = np.array([key], dtype=np.uint64)
    np.testing.assert_array_equal(uniform(keys, 9)[:, :4], uniform(keys, 4))


@given(st.lists(WORDS, min_size=2, max_size=50, unique=True))
def test_mix_is_one_to_one(words: list[int]) -> None:
    assert len(np.unique(mix(np.array(words, dtype=np.uint64)))) == len(words)


@pytest.mark.parametrize(
    "keys",
    [
        np.arange(4000, dtype=np.uint64),
        np.arange(4000, dtype=np.uint64) << np.uint64(40),
        np.arange(4000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15),
        episode_keys(np.arange(4000, dtype=np.uint64), np.zeros(4000, dtype=np.int64)),
        episode_keys(np.zeros(4000, dtype=np.uint64), np.arange(4000, dtype=np.int64)),
    ],
    ids=["neighbours", "high bits", "increments", "seeds", "episodes"],
)
def test_regular_keys_give_independent_uniform_numbers(keys: np.ndarray) -> None:
    numbers = uniform(keys, 16)
    counts = np.histogram(numbers, bins=64, range=(0, 1))[0]
    expected = numbers.size / 64
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 63 + 5 * np.sqrt(2 * 63)
    assert len(np.unique(numbers)) == numbers.size
    # Neither columns (counters) nor neighbouring rows (keys) nor streams are correlated.
    limit = 5 / np.sqrt(len(keys))
    columns = np.corrcoef(numbers.T) - np.eye(16)
    assert np.abs(columns).max() < limit
    for lag in (1, 2, 16):
        assert abs(np.corrcoef(numbers[:-lag, 0], numbers[lag:, 0])[0, 1]) < limit
    assert abs(np.corrcoef(numbers[:, 0], uniform(keys, 1, stream=1)[:, 0])[0, 1]) < limit


def test_no_two_slots_or_episodes_share_a_key() -> None:
    seeds, episodes = np.meshgrid(np.arange(500, dtype=np.uint64), np.arange(500, dtype=np.int64))
    assert len(np.unique(episode_keys(seeds.ravel(), episodes.ravel()))) == 500 * 500


@given(st.integers(0, 2**40), st.integers(0, 40), st.integers(0, 40))
def test_slot_seeds_are_distinct_and_do_not_depend_on_how_many(seed: int, some: int, more: int) -> None:
    fewer, all_of_them = slot_seeds(seed, min(some, more)), slot_seeds(seed, max(some, more))
    assert all_of_them[: len(fewer)] == fewer
    assert len(set(all_of_them)) == max(some, more)
    assert all(isinstance(value, int) and 0 <= value < 2**31 for value in all_of_them)


def test_slot_seeds_differ_between_seeds() -> None:
    assert not set(slot_seeds(0, 100)) & set(slot_seeds(1, 100))


def test_slot_episodes_count_each_slot() -> None:
    episodes = SlotEpisodes(3)
    every = np.ones(3, dtype=np.bool_)
    episodes.seed(10, every)
    episodes.advance(every)
    episodes.advance(np.array([False, True, False]))
    assert episodes.numbers.tolist() == [0, 1, 0]
    episodes.seed([7, 8, 9], np.array([False, False, True]))
    assert episodes.seeds is not None
    assert episodes.seeds.tolist() == [10, 11, 9]
    episodes.advance(every, 5)
    assert episodes.numbers.tolist() == [5, 5, 5]
