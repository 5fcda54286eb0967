"""The buffers against plain lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pchid.buffers import PairBuffer, StepBuffers, concatenate
from pchid.hindsight import HindsightPairs


def numbered(first: int, ks: list[int], states: bool = False) -> HindsightPairs:
    """Pairs that all carry their own number, so that mixed-up rows show."""
    numbers = np.arange(first, first + len(ks))
    return HindsightPairs(
        observation=numbers[:, None] * np.ones((1, 2)),
        achieved=numbers[:, None] + 0.25,
        goal=-numbers[:, None].astype(np.int64),
        action=numbers * 10,
        k=np.array(ks, np.int64),
        state=numbers[:, None] * 0.5 if states else None,
    )


def assert_rows_belong_together(pairs: HindsightPairs, ks: dict[int, int]) -> None:
    numbers = pairs.observation[:, 0].astype(int)
    np.testing.assert_array_equal(pairs.observation[:, 1], numbers)
    np.testing.assert_array_equal(pairs.achieved[:, 0], numbers + 0.25)
    np.testing.assert_array_equal(pairs.goal[:, 0], -numbers)
    np.testing.assert_array_equal(pairs.action, numbers * 10)
    np.testing.assert_array_equal(pairs.k, [ks[number] for number in numbers])
    if pairs.state is not None:
        np.testing.assert_array_equal(pairs.state[:, 0], numbers * 0.5)


batches = st.lists(st.lists(st.integers(1, 4), max_size=9), max_size=8)


@given(batches, st.integers(1, 12), st.booleans())
def test_a_ring_holds_the_newest_pairs(added: list[list[int]], capacity: int, states: bool) -> None:
    buffer = PairBuffer(capacity)
    ks: list[int] = []
    for batch in added:
        buffer.add(numbered(len(ks), batch, states))
        ks += batch
        assert len(buffer) == min(len(ks), capacity)
    if not ks:
        return
    kept = buffer.everything()
    assert_rows_belong_together(kept, dict(enumerate(ks)))
    assert sorted(kept.observation[:, 0]) == list(range(len(ks)))[-capacity:]
    assert (kept.state is not None) == states


def test_a_large_ring_grows_without_losing_anything() -> None:
    buffer = PairBuffer(5000)
    for first in range(0, 7000, 700):
        buffer.add(numbered(first, [1] * 700))
    assert sorted(buffer.everything().observation[:, 0]) == list(range(2000, 7000))


def test_stored_and_taken_pairs_are_copies() -> None:
    buffer = PairBuffer(10)
    pairs = numbered(0, [1, 2, 3], states=True)
    buffer.add(pairs)
    for array in vars(pairs).values():
        array[...] = 77
    taken = buffer.everything()
    for array in vars(taken).values():
        array[...] = 77
    assert_rows_belong_together(buffer.everything(), {0: 1, 1: 2, 2: 3})


@given(batches, st.integers(1, 12), st.booleans())
def test_each_k_has_a_ring_of_its_own_unless_merged(added: list[list[int]], capacity: int, merged: bool) -> None:
    buffers = StepBuffers(capacity, merged=merged)
    ks: list[int] = []
    for batch in added:
        buffers.add(numbered(len(ks), batch))
        ks += batch
    if merged:
        expected = {0: list(range(len(ks)))[-capacity:]}
    else:
        expected = {k: [number for number, own in enumerate(ks) if own == k][-capacity:] for k in sorted(set(ks))}
    expected = {k: numbers for k, numbers in expected.items() if numbers}
    assert {k: size for k, size in buffers.sizes().items() if size} == {k: len(n) for k, n in expected.items()}
    assert len(buffers) == sum(map(len, expected.values()))
    for k, numbers in expected.items():
        held = buffers.buffers[k].everything()
        assert_rows_belong_together(held, dict(enumerate(ks)))
        assert sorted(held.observation[:, 0]) == numbers


@given(
    batches.filter(lambda added: any(added)),
    st.integers(1, 12),
    st.booleans(),
    st.booleans(),
    st.integers(1, 40),
    st.integers(0, 1000),
)
def test_only_stored_pairs_are_sampled(
    added: list[list[int]], capacity: int, merged: bool, balanced: bool, size: int, seed: int
) -> None:
    buffers = StepBuffers(capacity, merged=merged, balanced=balanced)
    ks: list[int] = []
    for batch in added:
        buffers.add(numbered(len(ks), batch))
        ks += batch
    stored = {number for buffer in buffers.buffers.values() for number in buffer.everything().observation[:, 0]}
    sample = buffers.sample(size, np.random.default_rng(seed))
    assert len(sample) == size
    assert_rows_belong_together(sample, dict(enumerate(ks)))
    assert set(sample.observation[:, 0]) <= stored


def shares(balanced: bool, merged: bool = False) -> np.ndarray:
    buffers = StepBuffers(10_000, merged=merged, balanced=balanced)
    buffers.add(numbered(0, [1] * 900 + [2] * 90 + [5] * 10))
    k = buffers.sample(30_000, np.random.default_rng(0)).k
    return np.array([(k == one).mean() for one in (1, 2, 5)])


def test_balanced_buffers_have_equal_shares() -> None:
    np.testing.assert_allclose(shares(balanced=True), [1 / 3] * 3, atol=0.02)


def test_otherwise_each_pair_has() -> None:
    np.testing.assert_allclose(shares(balanced=False), [0.9, 0.09, 0.01], atol=0.01)
    np.testing.assert_allclose(shares(balanced=True, merged=True), [0.9, 0.09, 0.01], atol=0.01)


def test_every_stored_pair_can_be_drawn() -> None:
    buffers = StepBuffers(50)
    buffers.add(numbered(0, [1] * 60 + [3] * 7))
    drawn = set(buffers.sample(5000, np.random.default_rng(1)).observation[:, 0])
    assert drawn == set(range(10, 67))


@settings(max_examples=50)
@given(batches, batches, st.integers(1, 12), st.booleans(), st.integers(0, 1000))
def test_a_reloaded_buffer_goes_on_alike(
    before: list[list[int]], after: list[list[int]], capacity: int, merged: bool, seed: int
) -> None:
    original = StepBuffers(capacity, merged=merged)
    first = 0
    for batch in before:
        original.add(numbered(first, batch, states=True))
        first += len(batch)
    copy = StepBuffers(capacity, merged=merged)
    copy.load_state(original.state())
    for batch in after:
        for buffers in (original, copy):
            buffers.add(numbered(first, batch, states=True))
        first += len(batch)
    assert copy.sizes() == original.sizes()
    if len(original):
        one, other = (buffers.sample(20, np.random.default_rng(seed)) for buffers in (original, copy))
        for name in vars(one):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_a_saved_buffer_is_not_changed_by_what_the_loaded_one_adds() -> None:
    original = StepBuffers(3)
    original.add(numbered(0, [1, 1, 1], states=True))
    copy = StepBuffers(3)
    copy.load_state(original.state())
    copy.add(numbered(10, [1, 1, 1], states=True))
    assert sorted(original.buffers[1].everything().observation[:, 0]) == [0, 1, 2]


def test_joining_batches_keeps_their_order() -> None:
    joined = concatenate([numbered(0, [1, 2]), numbered(2, [3])])
    assert_rows_belong_together(joined, {0: 1, 1: 2, 2: 3})
    assert joined.observation[:, 0].tolist() == [0, 1, 2]
    assert joined.state is None
