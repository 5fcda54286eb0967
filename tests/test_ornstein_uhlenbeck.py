"""The Ornstein-Uhlenbeck view: closed forms against simulations, the print's errors, the drift of rollouts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erf

from pchid.drift import first_hitting_times, measure_drift, proportional_share
from pchid.errors import InputError
from pchid.ornstein_uhlenbeck import (
    drift,
    expected_ball_hitting_time,
    expected_hitting_time,
    hitting_probability,
    hitting_time_density,
    level_hitting_time_density,
    mean,
    simulate_hitting_times,
    step_fraction,
    variance,
)

ROOT2 = math.sqrt(2.0)
CASES = [(1.0, 0.0, 1.0, ROOT2), (0.3, 0.0, 1.0, ROOT2), (2.0, 0.5, 0.4, 0.7), (-1.0, 1.0, 3.0, 0.5)]
each_case = pytest.mark.parametrize(("start", "goal", "theta", "sigma"), CASES)


def walk(
    rng: np.random.Generator, start: np.ndarray, theta: float, sigma: float, step: float, steps: int
) -> np.ndarray:
    """Positions (E, steps + 1, d) of the process around 0, by its exact transition."""
    positions = [start]
    spread = sigma * math.sqrt(-math.expm1(-2 * theta * step) / (2 * theta))
    for _ in range(steps):
        positions.append(positions[-1] * math.exp(-theta * step) + spread * rng.standard_normal(start.shape))
    return np.stack(positions, axis=1)


def steady(speed: float, distances: np.ndarray, steps: int) -> np.ndarray:
    """Positions (E, steps + 1, 1) at a constant speed towards 0, where they stop."""
    return np.maximum(distances[:, None] - speed * np.arange(steps + 1), 0.0)[..., None]


def over_all_times(function: Callable[[float], float]) -> float:
    """The integral over [0, inf), in pieces so that the quadrature finds the peak."""
    edges = [0.0, *np.logspace(-5, 3, 33)]
    return sum(quad(function, low, high)[0] for low, high in itertools.pairwise(edges))


# The process itself.


def test_mean_and_variance_are_those_of_small_euler_steps() -> None:
    rng = np.random.default_rng(0)
    theta, sigma, goal, paths, steps, step = 1.3, 0.6, 0.4, 20_000, 200, 0.005
    position = np.full(paths, 2.0)
    for _ in range(steps):
        noise = sigma * math.sqrt(step) * rng.standard_normal(paths)
        position = position + drift(position, goal, theta) * step + noise
    expected, spread = mean(1.0, 2.0, goal, theta), variance(1.0, theta, sigma)
    bias = 2.0 * step  # of Euler's method, relative
    assert abs(position.mean() - expected) < 4 * math.sqrt(spread / paths) + bias * abs(expected - goal)
    assert abs(position.var() / spread - 1) < 4 * math.sqrt(2 / paths) + bias


def test_mean_and_variance_at_the_ends_of_time() -> None:
    np.testing.assert_allclose(mean([0.0, 1e9], 3.0, 1.0, 0.5), [3.0, 1.0])
    np.testing.assert_allclose(variance([0.0, 1e9], 0.5, 2.0), [0.0, 4.0])
    np.testing.assert_allclose(variance(0.7, 1e-12, 2.0), 4.0 * 0.7)  # without drift, a Brownian motion


def test_shapes_broadcast() -> None:
    time, theta = np.linspace(0.0, 1.0, 5)[:, None], np.array([0.5, 1.0, 2.0])
    assert mean(time, 1.0, 0.0, theta).shape == (5, 3)
    assert hitting_time_density(time, 1.0, 0.0, theta, 1.0).shape == (5, 3)
    assert hitting_probability(time, 1.0, 0.0, theta, 1.0).shape == (5, 3)
    assert expected_hitting_time(np.ones((4, 1)), 0.0, theta, 1.0).shape == (4, 3)
    assert expected_ball_hitting_time(np.ones((4, 1)), 0.1, theta, 1.0, 3).shape == (4, 3)


# Hitting the goal.


@each_case
def test_density_integrates_to_one_and_to_its_mean(start: float, goal: float, theta: float, sigma: float) -> None:
    def density(t: float) -> float:
        return float(hitting_time_density(t, start, goal, theta, sigma))

    assert over_all_times(density) == pytest.approx(1.0, abs=1e-8)
    expected = float(expected_hitting_time(start, goal, theta, sigma))
    assert over_all_times(lambda t: t * density(t)) == pytest.approx(expected, rel=1e-7)


@each_case
def test_probability_is_the_integral_of_the_density(start: float, goal: float, theta: float, sigma: float) -> None:
    time = np.linspace(0.0, 5.0, 200_001)
    density = hitting_time_density(time, start, goal, theta, sigma)
    assert (density >= 0).all()
    integral = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2) * time[1]])
    np.testing.assert_allclose(integral, hitting_probability(time, start, goal, theta, sigma), atol=1e-6)


@each_case
@pytest.mark.parametrize("step", [0.05, 100.0])
def test_simulated_times_follow_the_density(start: float, goal: float, theta: float, sigma: float, step: float) -> None:
    # For the goal the simulation is exact, even when a single step spans the whole horizon.
    paths = 20_000 if step > 1 else 5_000
    times = simulate_hitting_times(
        np.random.default_rng(1), paths, start, goal, theta, sigma, horizon=50.0 / theta, step=step / theta
    )
    probability = hitting_probability(np.sort(times), start, goal, theta, sigma)
    kolmogorov = np.abs(probability - (np.arange(paths) + 0.5) / paths).max()
    assert kolmogorov < 1.95 / math.sqrt(paths)  # p = 0.001
    expected = float(expected_hitting_time(start, goal, theta, sigma))
    assert abs(times.mean() - expected) < 4 * times.std() / math.sqrt(paths)


def test_published_values_of_the_expectation() -> None:
    # OEIS A249418, A250719 and A249417: from 1 to 0, from 2 to 0 and from 0 to 1.
    found = expected_hitting_time([1.0, 2.0, 0.0], 0.0, 1.0, ROOT2, [0.0, 0.0, 1.0])
    np.testing.assert_allclose(found, [0.90190801265280650, 1.42520456553779972, 2.09340664967832181], rtol=1e-14)


def test_at_the_goal_it_takes_no_time() -> None:
    assert expected_hitting_time(0.7, 0.7, 2.0, 0.3) == 0.0
    np.testing.assert_array_equal(hitting_probability([0.0, 1.0], 0.7, 0.7, 2.0, 0.3), 1.0)
    np.testing.assert_array_equal(hitting_time_density([0.0, 1.0], 0.7, 0.7, 2.0, 0.3), 0.0)
    rng = np.random.default_rng(0)
    assert (simulate_hitting_times(rng, 3, 0.7, 0.7, 2.0, 0.3, horizon=1.0, step=0.1) == 0).all()
    assert expected_hitting_time(0.7 + 1e-9, 0.7, 2.0, 0.3) < 1e-7


def test_stronger_drift_is_faster() -> None:
    theta = np.logspace(-6, 4, 200)
    times = expected_hitting_time(1.0, 0.0, theta, 1.0)
    assert (np.diff(times) < 0).all()
    # Weak drift: sqrt(pi / theta) distance / sigma, without bound. Strong: the time to come down to the noise.
    assert times[0] == pytest.approx(math.sqrt(math.pi / theta[0]), rel=1e-3)
    euler_gamma = 0.5772156649015329
    z = math.sqrt(2 * theta[-1])
    assert times[-1] == pytest.approx((math.log(z) + (euler_gamma + math.log(2)) / 2) / theta[-1], rel=1e-3)


def test_time_and_length_have_units() -> None:
    times = expected_hitting_time(1.0, 0.2, 0.5, 0.3)
    assert 60.0 * times == pytest.approx(float(expected_hitting_time(1.0, 0.2, 0.5 / 60, 0.3 / math.sqrt(60))))
    assert times == pytest.approx(float(expected_hitting_time(1000.0, 200.0, 0.5, 300.0)))
    density = hitting_time_density(1.7, 1.0, 0.2, 0.5, 0.3)
    assert density / 60.0 == pytest.approx(float(hitting_time_density(102.0, 1.0, 0.2, 0.5 / 60, 0.3 / math.sqrt(60))))


def test_extreme_inputs_stay_finite() -> None:
    density = hitting_time_density([0.0, 1e-300, 1e-3, 1e3, 1e300], 1.0, 0.0, 1.0, ROOT2)
    assert np.isfinite(density).all() and density[0] == density[1] == density[-1] == 0.0
    np.testing.assert_array_equal(hitting_probability([0.0, 1e300], 1.0, 0.0, 1.0, ROOT2), [0.0, 1.0])
    # From far away the mean time is ln(z) + (gamma + ln 2) / 2.
    assert expected_hitting_time(1e6, 0.0, 1.0, ROOT2) == pytest.approx(math.log(1e6) + 0.6351814227307392, rel=1e-10)


# Hitting another level.


@pytest.mark.parametrize(("start", "level"), [(2.0, 0.5), (0.5, -1.0), (1.0, 2.0), (-2.0, -0.5)])
def test_expectation_at_a_level_is_that_of_the_simulation(start: float, level: float) -> None:
    paths = 4_000
    times = simulate_hitting_times(
        np.random.default_rng(2), paths, start, 0.0, 1.0, ROOT2, horizon=150.0, step=0.1, level=level
    )
    assert np.isfinite(times).all()
    expected = float(expected_hitting_time(start, 0.0, 1.0, ROOT2, level))
    assert abs(times.mean() - expected) < 4 * times.std() / math.sqrt(paths)


@pytest.mark.parametrize(("start", "level", "horizon"), [(2.0, 0.5, 30.0), (0.5, -0.5, 30.0), (0.2, 0.7, 40.0)])
def test_density_at_a_level(start: float, level: float, horizon: float) -> None:
    time, density = level_hitting_time_density(horizon, start, 0.0, 1.0, ROOT2, level, points=20_000)
    assert density.min() > -1e-6
    assert np.trapezoid(density, time) == pytest.approx(1.0, abs=1e-5)
    expected = float(expected_hitting_time(start, 0.0, 1.0, ROOT2, level))
    assert np.trapezoid(time * density, time) == pytest.approx(expected, rel=1e-4)


def test_density_at_the_goal_is_the_closed_form() -> None:
    time, density = level_hitting_time_density(6.0, 2.0, 0.5, 0.7, 0.9, level=0.5)
    np.testing.assert_allclose(density, hitting_time_density(time, 2.0, 0.5, 0.7, 0.9), atol=1e-12)


def test_a_level_beyond_the_goal_is_harder_under_stronger_drift() -> None:
    theta = np.array([1.0, 2.0, 4.0, 8.0])
    assert (np.diff(expected_hitting_time(1.0, 0.0, theta, 1.0, level=-1.0)) > 0).all()
    assert expected_hitting_time(0.0, 0.0, 1.0, ROOT2, level=-60.0) == np.inf
    assert expected_hitting_time(-50.0, 0.0, 1.0, ROOT2, level=-60.0) == np.inf


def test_a_ball_in_one_dimension_is_a_level() -> None:
    distance = np.array([0.3, 1.0, 50.0])
    in_ball = expected_ball_hitting_time(distance, 0.3, 0.8, 0.5, 1)
    np.testing.assert_allclose(in_ball, expected_hitting_time(distance, 0.0, 0.8, 0.5, level=0.3), rtol=1e-12)


@pytest.mark.parametrize("dimension", [2, 3, 5])
def test_ball_expectation_solves_its_differential_equation(dimension: int) -> None:
    # sigma^2/2 E'' + ((d - 1) sigma^2 / (2 r) - theta r) E' = -1: each unit of time spent shortens the rest by one.
    theta, sigma, small = 0.8, 0.5, 1e-3
    r = np.linspace(0.4, 2.0, 7)
    low, here, high = (
        expected_ball_hitting_time(r + shift, 0.1, theta, sigma, dimension) for shift in (-small, 0, small)
    )
    slope, curvature = (high - low) / (2 * small), (high - 2 * here + low) / small**2
    generator = sigma**2 / 2 * curvature + ((dimension - 1) * sigma**2 / (2 * r) - theta * r) * slope
    np.testing.assert_allclose(generator, -1.0, rtol=2e-3)


def test_ball_expectation_is_that_of_the_simulation() -> None:
    theta, sigma, step, radius, paths = 1.0, 0.5, 0.002, 0.4, 2_000
    positions = walk(np.random.default_rng(3), np.full((paths, 3), 1.0), theta, sigma, step, 4_000)
    # Seen at discrete times only, a path behaves as if the ball were smaller by 0.5826 sigma sqrt(dt).
    seen = radius + 0.5826 * sigma * math.sqrt(step)
    times = first_hitting_times(positions, np.zeros((paths, 3)), time_step=step, tolerance=seen)
    assert times.reached.mean() > 0.999
    expected = float(expected_ball_hitting_time(math.sqrt(3.0), radius, theta, sigma, 3))
    assert abs(times.restricted_mean - expected) < 4 * times.time.std() / math.sqrt(paths) + step


def test_a_point_is_met_in_one_dimension_only() -> None:
    radius = np.array([1e-2, 1e-4, 1e-8])
    for dimension in (2, 3):
        times = expected_ball_hitting_time(1.0, radius, 1.0, ROOT2, dimension)
        assert (np.diff(times) > 1).all()
    np.testing.assert_allclose(expected_ball_hitting_time(1.0, 1e-12, 1.0, ROOT2, 1), 0.9019080126528, rtol=1e-10)
    by_drift = expected_ball_hitting_time(1.0, 0.05, np.logspace(-2, 3, 50), 0.3, 3)
    assert (np.diff(by_drift) < 0).all()


# What the print says.


def printed_density(time: np.ndarray, z: float) -> np.ndarray:
    shrunk = 1 - np.exp(-2 * time)
    return math.sqrt(2 / math.pi) * z * np.exp(-time) / shrunk**1.5 * np.exp(z**2 * np.exp(-2 * time) / (2 * shrunk))


def test_printed_density_is_not_a_density() -> None:
    assert printed_density(np.array([0.005]), 1.0)[0] > 1e20  # although the process cannot have arrived yet
    tail = np.linspace(0.3, 20.0, 100_001)
    assert np.trapezoid(printed_density(tail, 1.0), tail) > 1.0  # already without its diverging part
    assert np.trapezoid(hitting_time_density(tail, 1.0, 0.0, 1.0, ROOT2), tail) < 1.0


def test_printed_normalised_noise_contradicts_the_printed_expectation() -> None:
    def printed_expectation(z: float) -> float:
        return math.sqrt(math.pi / 2) * quad(lambda t: (1 + erf(t / ROOT2)) * math.exp(t**2 / 2), -z, 0.0)[0]

    # The expectation itself is right, for a noise of sqrt(2), which is also what the transformation gives.
    assert printed_expectation(1.0) == pytest.approx(float(expected_hitting_time(1.0, 0.0, 1.0, ROOT2)))
    rng = np.random.default_rng(4)
    for noise, agrees in [(ROOT2, True), (2.0, False)]:
        times = simulate_hitting_times(rng, 20_000, 1.0, 0.0, 1.0, noise, horizon=60.0, step=60.0)
        away = abs(times.mean() - printed_expectation(1.0)) / (times.std() / math.sqrt(len(times)))
        assert (away < 4) == agrees
    # A noise of 2 is a noise of sqrt(2) seen from closer by.
    assert expected_hitting_time(1.0, 0.0, 1.0, 2.0) == pytest.approx(printed_expectation(1 / ROOT2))
    # As printed, 1 + erf cancels from 8.3 standard deviations on; what is left of the sum is noise, then nothing.
    assert (1 + erf(-9 / ROOT2)) * math.exp(9**2 / 2) == 0.0
    beyond = expected_hitting_time([9.0, 10.0], 0.0, 1.0, ROOT2)
    assert beyond[1] - beyond[0] == pytest.approx(math.log(10 / 9), rel=0.02)


def test_an_epsilon_of_one_is_not_a_drift_of_one() -> None:
    # With Delta s = epsilon (g - s), epsilon = 1 arrives in one step; the process with theta = 1 is 1/e short of it.
    assert step_fraction(1.0, 1.0) == pytest.approx(1 - 1 / math.e)
    assert step_fraction(0.01, 1.0) == pytest.approx(0.01, rel=0.01)
    assert mean(1.0, 1.0, 0.0, 1.0) == pytest.approx(1 - float(step_fraction(1.0, 1.0)))


# Measuring rollouts.


@pytest.mark.parametrize("tolerance", [0.0, 0.3])
@pytest.mark.parametrize("theta", [0.3, 2.0])
def test_drift_is_recovered_with_honest_errors(theta: float, tolerance: float) -> None:
    rng = np.random.default_rng(5)
    sigma, step, goals = 0.4, 0.2, np.tile([0.5, -1.0, 2.0], (60, 1))
    found = []
    for _ in range(100):
        starts = rng.normal(0.0, 1.0, (60, 3))
        positions = goals[:, None] + walk(rng, starts, theta, sigma, step, 20)
        found.append(measure_drift(positions, goals, time_step=step, tolerance=tolerance))
    estimates = np.array([one.theta for one in found])
    assert abs(estimates.mean() - theta) < 4 * estimates.std() / 10 + 0.01 * theta
    assert np.mean([one.theta_error for one in found]) == pytest.approx(estimates.std(), rel=0.25)
    assert np.mean([one.sigma for one in found]) == pytest.approx(sigma, rel=0.02)
    assert np.mean([one.step_fraction for one in found]) == pytest.approx(float(step_fraction(theta, step)), rel=0.02)


def test_drift_without_the_entering_step_would_be_too_small() -> None:
    rng, goals = np.random.default_rng(6), np.zeros((2_000, 3))
    positions = walk(rng, rng.normal(0.0, 0.5, (2_000, 3)), 1.0, 0.4, 0.2, 20)
    whole = measure_drift(positions, goals, time_step=0.2, tolerance=0.4)
    hits = first_hitting_times(positions, goals, time_step=1.0, tolerance=0.4)
    shorter = np.maximum(hits.time.astype(int) - hits.reached, 0)
    short = measure_drift(positions, goals, time_step=0.2, tolerance=0.4, length=shorter)
    assert abs(whole.theta - 1.0) < 4 * whole.theta_error
    assert short.theta < 1.0 - 4 * short.theta_error


def test_resting_at_the_goal_does_not_count() -> None:
    rng, goals = np.random.default_rng(7), np.zeros((50, 2))
    positions = walk(rng, rng.normal(0.0, 1.0, (50, 2)), 1.0, 0.1, 0.2, 30)
    rested = positions.copy()
    hits = first_hitting_times(positions, goals, time_step=1.0, tolerance=0.5)
    for row in np.flatnonzero(hits.reached):
        rested[row, int(hits.time[row]) + 1 :] = positions[row, int(hits.time[row])]
    moving, resting = (measure_drift(one, goals, time_step=0.2, tolerance=0.5) for one in (positions, rested))
    assert moving == resting
    assert measure_drift(rested, goals, time_step=0.2, tolerance=0.0).theta < 0.8 * resting.theta


def test_a_random_walk_has_no_drift_and_flight_a_negative_one() -> None:
    rng, goals = np.random.default_rng(8), np.zeros((300, 3))
    steps = rng.normal(0.0, 0.1, (300, 20, 3))
    positions = np.concatenate([np.ones((300, 1, 3)), 1.0 + np.cumsum(steps, axis=1)], axis=1)
    aimless = measure_drift(positions, goals, time_step=1.0, tolerance=0.05)
    assert abs(aimless.theta) < 4 * aimless.theta_error
    assert aimless.sigma == pytest.approx(0.1, rel=0.05)
    away = 1.1 ** np.arange(5.0) * np.ones((4, 1))
    flight = measure_drift(away[..., None], np.zeros((4, 1)), time_step=0.5, tolerance=0.1)
    assert flight.theta == pytest.approx(-math.log(1.1) / 0.5)
    still = measure_drift(np.ones((4, 5, 1)), np.zeros((4, 1)), time_step=0.5, tolerance=0.1)
    assert (still.theta, still.sigma) == (0.0, 0.0)


def test_a_step_beyond_the_goal_has_no_finite_drift() -> None:
    positions = np.array([[[1.0], [-0.5]], [[2.0], [-1.0]]])
    found = measure_drift(positions, np.zeros((2, 1)), time_step=1.0, tolerance=0.1)
    assert found.theta == math.inf and math.isnan(found.sigma)
    assert found.step_fraction == pytest.approx(1.5)


def test_constant_speed_is_told_from_a_drift() -> None:
    near, far = (steady(0.05, scale * np.linspace(0.5, 1.5, 40), 60) for scale in (1.0, 2.0))
    goals = np.zeros((40, 1))
    for positions in (near, far):
        assert proportional_share(positions, goals, tolerance=0.05) == pytest.approx(0.0, abs=1e-9)
    # The same policy, goals twice as far: theta, a speed over a distance, halves.
    slopes = [measure_drift(positions, goals, time_step=1.0, tolerance=0.05).step_fraction for positions in (near, far)]
    assert slopes[0] / slopes[1] == pytest.approx(2.0, rel=0.05)
    distance = near[..., 0][(near[..., 0] >= 0.05)]
    assert slopes[0] == pytest.approx(0.05 * distance.sum() / np.square(distance).sum(), rel=1e-9)

    rng = np.random.default_rng(9)
    process = walk(rng, rng.normal(0.0, 1.0, (2_000, 3)), 1.0, 0.2, 0.1, 20)
    assert proportional_share(process, np.zeros((2_000, 3)), tolerance=0.2) == pytest.approx(1.0, abs=0.05)
    assert math.isnan(proportional_share(-near[:, ::-1], goals, tolerance=0.0))  # it only moves away


def test_hitting_times_of_rollouts() -> None:
    positions = np.array([[3.0, 2.0, 1.0, 0.0], [3.0, 3.0, 3.0, 3.0], [0.5, 9.0, 9.0, 9.0], [3.0, 2.0, 0.0, np.nan]])
    goals = np.zeros((4, 1))
    found = first_hitting_times(positions[..., None], goals, time_step=0.1, tolerance=1.0, length=[3, 3, 3, 1])
    np.testing.assert_array_equal(found.reached, [True, False, True, False])
    np.testing.assert_allclose(found.time, [0.3, 0.3, 0.0, 0.1])  # the last hit lies beyond its rollout's end
    assert found.restricted_mean == pytest.approx(0.175)


def test_padding_beyond_the_end_is_not_seen() -> None:
    rng = np.random.default_rng(10)
    positions, goals = walk(rng, rng.normal(0.0, 1.0, (9, 2)), 1.0, 0.1, 0.2, 6), np.zeros((9, 2))
    padded = np.concatenate([positions, np.full((9, 4, 2), np.nan)], axis=1)
    length = np.full(9, 6)
    plain = measure_drift(positions, goals, time_step=0.2, tolerance=0.1)
    assert measure_drift(padded, goals, time_step=0.2, tolerance=0.1, length=length) == plain


# Wrong calls.

PLACES, GOALS = np.ones((3, 4, 2)), np.zeros((3, 2))
WRONG: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (drift, (0.0, 1.0, 0.0), {}, "theta must be greater than 0"),
    (mean, (-1.0, 0.0, 1.0, 1.0), {}, "time must not be negative"),
    (variance, (1.0, 1.0, -1.0), {}, "sigma must be greater than 0"),
    (step_fraction, (1.0, 0.0), {}, "time_step must be greater than 0"),
    (hitting_time_density, (1.0, 0.0, 1.0, [1.0, -2.0], 1.0), {}, "theta must be greater than 0, but it is -2"),
    (hitting_probability, (1.0, np.nan, 1.0, 1.0, 1.0), {}, "start must be a finite number"),
    (expected_hitting_time, (1.0, 0.0, 1.0, 0.0), {}, "sigma must be greater than 0"),
    (expected_hitting_time, (1.0, 0.0, 1.0, 1.0, np.inf), {}, "level must be a finite number"),
    (expected_ball_hitting_time, (1.0, 0.0, 1.0, 1.0, 3), {}, "radius must be greater than 0"),
    (expected_ball_hitting_time, (1.0, 0.1, 1.0, 1.0, 0), {}, "at least 1 coordinate"),
    (level_hitting_time_density, (1.0, 1.0, 0.0, 1.0, 1.0, 1.0), {}, "starts at the level"),
    (level_hitting_time_density, (9.0, 1.0, 0.0, 1.0, 1.0, 0.9), {}, "too few"),
    (
        simulate_hitting_times,
        (np.random.default_rng(0), 0, 1.0, 0.0, 1.0, 1.0),
        {"horizon": 1.0, "step": 0.1},
        "paths is 0",
    ),
    (
        simulate_hitting_times,
        (np.random.default_rng(0), 1, 1.0, 0.0, 1.0, 1.0),
        {"horizon": 1.0, "step": 0.0},
        "step must be greater than 0",
    ),
    (first_hitting_times, (PLACES, GOALS), {"time_step": 1.0, "tolerance": 0.0}, "tolerance must be greater than 0"),
    (first_hitting_times, (PLACES[0], GOALS), {"time_step": 1.0, "tolerance": 1.0}, "positions must be"),
    (measure_drift, (PLACES, GOALS[:2]), {"time_step": 1.0, "tolerance": 0.1}, "do not go with"),
    (measure_drift, (PLACES, GOALS), {"time_step": 1.0, "tolerance": 0.1, "length": [1, 2]}, "length must give"),
    (measure_drift, (PLACES, GOALS), {"time_step": 1.0, "tolerance": 0.1, "length": [1, 2, 4]}, "from 0 to 3"),
    (measure_drift, (PLACES * np.nan, GOALS), {"time_step": 1.0, "tolerance": 0.1}, "finite"),
    (measure_drift, (PLACES, GOALS), {"time_step": 1.0, "tolerance": 5.0}, "at least 2 rollouts"),
    (proportional_share, (PLACES, GOALS), {"tolerance": -1.0}, "tolerance must not be negative"),
]


@pytest.mark.parametrize(("function", "arguments", "options", "message"), WRONG)
def test_wrong_calls_are_refused(
    function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        function(*arguments, **options)
    assert "\n" not in str(refused.value)
