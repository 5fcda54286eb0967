"""When K grows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pchid.curriculum import Continuation, Convergence, Evolution
from pchid.errors import InputError

rounds = st.lists(st.tuples(st.integers(0, 30), st.floats(0.0, 10.0)), max_size=60)


@given(st.integers(1, 5), st.integers(1, 20), st.floats(0.0, 0.5), st.integers(1, 5), rounds)
def test_K_is_always_one_to_something_and_grows_by_one(
    K_max: int, pairs: int, tolerance: float, patience: int, seen: list[tuple[int, float]]
) -> None:
    curriculum = Continuation(K_max, Convergence(pairs, tolerance, patience))
    longest = 1
    for count, loss in seen:
        curriculum.observe(count, loss)
        assert list(range(1, curriculum.K[-1] + 1)) == curriculum.K
        assert longest <= curriculum.K[-1] <= min(longest + 1, K_max)
        longest = curriculum.K[-1]


@given(st.integers(1, 5), st.integers(1, 20), st.floats(0.0, 10.0))
def test_a_loss_that_stays_converges_every_second_block(K_max: int, pairs: int, loss: float) -> None:
    curriculum = Continuation(K_max, Convergence(pairs, tolerance=0.1))
    for k in range(1, K_max + 1):
        assert curriculum.K[-1] == k
        curriculum.observe(pairs, loss)
        assert curriculum.K[-1] == k
        curriculum.observe(pairs, loss)
    assert curriculum.K[-1] == K_max


@given(st.integers(1, 20), st.floats(0.01, 0.9), st.integers(2, 30))
def test_a_loss_that_still_falls_by_more_than_the_tolerance_does_not_converge(
    pairs: int, tolerance: float, blocks: int
) -> None:
    curriculum = Continuation(5, Convergence(pairs, tolerance))
    loss = 1.0
    for _ in range(blocks):
        curriculum.observe(pairs, loss)
        loss *= (1 - tolerance) * 0.99
    assert curriculum.K == [1]


def test_blocks_weigh_rounds_by_their_pairs() -> None:
    curriculum = Continuation(3, Convergence(pairs=10, tolerance=0.1))
    curriculum.observe(10, 1.0)
    curriculum.observe(1, 5.0)  # a mean over rounds would be 2.5, over pairs it is 0.6
    curriculum.observe(10, 0.16)
    assert curriculum.K == [1]
    curriculum.observe(10, 0.6)
    assert curriculum.K == [1, 2]


def test_nothing_to_learn_for_long_enough_is_convergence_too() -> None:
    curriculum = Continuation(3, Convergence(pairs=10, patience=4))
    for _ in range(3):
        curriculum.observe(0, 0.0)
    curriculum.observe(1, 1.0)  # the count starts again
    for _ in range(3):
        curriculum.observe(0, 0.0)
    assert curriculum.K == [1]
    curriculum.observe(0, 0.0)
    assert curriculum.K == [1, 2]


@given(rounds, rounds, st.integers(2, 6))
def test_a_reloaded_curriculum_goes_on_alike(
    before: list[tuple[int, float]], after: list[tuple[int, float]], K_max: int
) -> None:
    convergence = Convergence(pairs=20, patience=3)
    original = Continuation(K_max, convergence)
    for count, loss in before:
        original.observe(count, loss)
    copy = Continuation(K_max, convergence)
    copy.load_state(json.loads(json.dumps(original.state())))
    for count, loss in after:
        original.observe(count, loss)
        copy.observe(count, loss)
        assert copy.K == original.K


@given(st.integers(1, 30), rounds)
def test_evolution_has_every_k_from_the_start(K_max: int, seen: list[tuple[int, float]]) -> None:
    curriculum = Evolution(K_max)
    for count, loss in seen:
        curriculum.observe(count, loss)
    assert list(range(1, K_max + 1)) == curriculum.K


@pytest.mark.parametrize("K_max", [0, -1])
@pytest.mark.parametrize("kind", [Continuation, Evolution])
def test_K_max_is_at_least_one(kind: type, K_max: int) -> None:
    with pytest.raises(InputError, match=f"K_max is {K_max}"):
        kind(K_max)


@pytest.mark.parametrize("settings", [{"pairs": 0}, {"patience": 0}])
def test_convergence_needs_something_to_look_at(settings: dict[str, int]) -> None:
    with pytest.raises(InputError, match="at least 1"):
        Convergence(**settings)  # type: ignore[arg-type]
