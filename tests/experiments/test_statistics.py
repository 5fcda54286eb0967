"""What several seeds say together."""

from __future__ import annotations

import numpy as np
import pytest

from pchid.experiments.statistics import estimate, interval, iqm


@pytest.mark.parametrize(
    ("values", "middle"),
    [
        ([1.0, 2.0, 4.0, 50.0], (2 + 4) / 2),
        ([80.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -90.0], (2 + 3 + 4 + 5) / 4),  # sorted: -90 1 2 3 4 5 6 80
        ([5.0, 0.0, 1.0, 3.0, 100.0], (1 + 3 + 5) / 3),
        ([1.0, 2.0, 6.0], 3.0),
        ([7.0], 7.0),
    ],
)
def test_the_interquartile_mean_is_the_mean_of_the_middle_half(values: list[float], middle: float) -> None:
    assert iqm(values) == pytest.approx(middle)
    assert iqm(values[::-1]) == pytest.approx(middle)


def test_seeds_are_the_last_axis() -> None:
    by_place = np.random.default_rng(0).normal(size=(3, 8))
    np.testing.assert_allclose(iqm(by_place), [iqm(row) for row in by_place])
    low, high = interval(by_place)
    assert low.shape == high.shape == (3,)
    assert (low < iqm(by_place)).all()
    assert (iqm(by_place) < high).all()


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_the_interval_contains_the_interquartile_mean(seeds: int) -> None:
    for draw in range(5):
        values = np.random.default_rng(draw).uniform(size=seeds).tolist()
        found = estimate(values)
        assert found.low <= found.iqm <= found.high
        assert found.low < found.high
        assert min(values) <= found.low
        assert found.high <= max(values)
        assert found.mean == pytest.approx(np.mean(values))
        assert found.seeds == seeds


def test_the_same_runs_give_the_same_interval() -> None:
    values = np.random.default_rng(3).uniform(size=7).tolist()
    assert estimate(values) == estimate(values)


@pytest.mark.parametrize("values", [[0.25] * 5, [1.0, 1.0], [0.7]])
def test_without_spread_there_is_no_interval(values: list[float]) -> None:
    found = estimate(values)
    assert (found.low, found.iqm, found.high) == (values[0],) * 3


def test_the_bootstrap_draws_within_each_task() -> None:
    easy, hard = [0.9] * 4, [0.1] * 4
    found = estimate(easy, hard)
    assert (found.low, found.iqm, found.high) == pytest.approx((0.5, 0.5, 0.5))
    together = estimate(easy + hard)
    assert together.high - together.low > 0.3


def test_tasks_that_vary_within_have_an_interval() -> None:
    rng = np.random.default_rng(0)
    found = estimate(rng.normal(0.0, 0.1, 8).tolist(), rng.normal(1.0, 0.1, 8).tolist())
    assert found.low < found.iqm < found.high
    assert found.seeds == 8


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    truth, worlds = 0.5, 200
    low, high = interval(rng.normal(truth, 0.2, size=(worlds, 15)))
    covered = float(np.mean((low <= truth) & (truth <= high)))
    # A percentile bootstrap of so few seeds is a little narrow; one that never or always covers is wrong.
    assert 0.85 <= covered <= 0.99


def test_more_seeds_make_the_interval_narrower() -> None:
    values = np.random.default_rng(2).normal(size=80).tolist()
    few, many = estimate(values[:8]), estimate(values)
    assert many.high - many.low < (few.high - few.low) / 2
