"""Learning seen as an Ornstein-Uhlenbeck process (supplement): how fast does a policy drift to its goal?

In: the drift `theta`, the noise `sigma`, a start and a goal. Out: how long the way to the goal takes: mean, density,
simulated times. `drift.py` measures theta on real rollouts. The process is

    ds = theta (goal - s) dt + sigma dW.

The paper calls theta epsilon, and gives the share of the way covered in one step the same name; here the latter is the
`step_fraction`. The density and the normalised process are corrected: `docs/ornstein_uhlenbeck.md` says how and why.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfc, erfcx, erfi

from pchid.errors import InputError

Floats = NDArray[np.float64]
NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)
ZETA_MINUS_HALF = -0.2078862249773546


def drift(position: ArrayLike, goal: ArrayLike, theta: ArrayLike) -> Floats:
    """The mean velocity theta (goal - s) at a position."""
    result: Floats = positive("theta", theta) * (finite("goal", goal) - finite("position", position))
    return result


def mean(time: ArrayLike, start: ArrayLike, goal: ArrayLike, theta: ArrayLike) -> Floats:
    """E s_t: the distance to the goal shrinks by exp(-theta t)."""
    goal = finite("goal", goal)
    result: Floats = goal + (finite("start", start) - goal) * np.exp(-positive("theta", theta) * not_negative(time))
    return result


def variance(time: ArrayLike, theta: ArrayLike, sigma: ArrayLike) -> Floats:
    """Var s_t, which grows from 0 to sigma^2 / (2 theta)."""
    theta, sigma = positive("theta", theta), positive("sigma", sigma)
    result: Floats = -np.expm1(-2.0 * theta * not_negative(time)) * np.square(sigma) / (2.0 * theta)
    return result


def step_fraction(theta: ArrayLike, time_step: ArrayLike) -> Floats:
    """The share of the way to the goal covered on average within one time step: 0 without drift, below 1 always."""
    result: Floats = -np.expm1(-positive("theta", theta) * positive("time_step", time_step))
    return result


def hitting_time_density(
    time: ArrayLike, start: ArrayLike, goal: ArrayLike, theta: ArrayLike, sigma: ArrayLike
) -> Floats:
    """The density of the first time at the goal itself; 0 everywhere if the process starts there."""
    start, level, theta = _normalise(start, goal, goal, theta, sigma)
    distance, clock = np.broadcast_arrays(start - level, theta * not_negative(time))
    # In logarithms: close to t = 0 one factor overflows while the other vanishes.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        exponent = np.log(distance) - clock - 1.5 * np.log(-np.expm1(-2.0 * clock))
        exponent -= np.square(distance) / (2.0 * np.expm1(2.0 * clock))
    density = math.sqrt(2.0 / math.pi) * np.exp(np.where((clock > 0) & (distance > 0), exponent, -np.inf))
    result: Floats = theta * density
    return result


def hitting_probability(
    time: ArrayLike, start: ArrayLike, goal: ArrayLike, theta: ArrayLike, sigma: ArrayLike
) -> Floats:
    """The probability that the goal itself has been met by `time`: the integral of `hitting_time_density`."""
    start, level, theta = _normalise(start, goal, goal, theta, sigma)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        probability = erfc((start - level) / np.sqrt(2.0 * np.expm1(2.0 * theta * not_negative(time))))
    result: Floats = np.where(start == level, 1.0, probability)
    return result


def expected_hitting_time(
    start: ArrayLike, goal: ArrayLike, theta: ArrayLike, sigma: ArrayLike, level: ArrayLike | None = None
) -> Floats:
    """The mean first time at `level`, by default the goal; a level beyond the goal may take more than a float holds.

    sqrt(pi) times the integral of erfcx from level to start (both normalised) is Siegert's formula with scale function
    and speed measure written out. Left of 0, where erfcx grows like exp(v^2), that growth is integrated in closed form.
    """
    start, level, theta = _normalise(start, goal, goal if level is None else level, theta, sigma)
    upper, lower = start / math.sqrt(2.0), level / math.sqrt(2.0)
    near, far = np.maximum(-upper, 0.0), np.maximum(-lower, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        growth = math.sqrt(math.pi) * (erfi(far) - erfi(near))
    growth = np.where(np.isnan(growth), np.inf, growth) - _integral_of_erfcx(near, far)
    total = growth + _integral_of_erfcx(np.maximum(lower, 0.0), np.maximum(upper, 0.0))
    result: Floats = np.where(start == level, 0.0, math.sqrt(math.pi) * total / theta)
    return result


def expected_ball_hitting_time(
    distance: ArrayLike, radius: ArrayLike, theta: ArrayLike, sigma: ArrayLike, dimension: int
) -> Floats:
    """The mean time until a process in `dimension` dimensions, `distance` away, is within `radius` of its goal.

    From two dimensions on a point is never met, so a goal needs a tolerance. `sigma` is the noise of each coordinate.
    """
    if dimension < 1:
        raise InputError(f"dimension is {dimension}, but a position has at least 1 coordinate")
    theta, radius = positive("theta", theta), positive("radius", radius)
    distance = np.maximum(not_negative(distance, "distance"), radius)
    unit = positive("sigma", sigma) / np.sqrt(2.0 * theta)
    half = 0.5 * np.log(distance / radius)[..., None]
    y = np.exp(np.log(radius / unit)[..., None] + half * (1.0 + NODES))
    # y^(2-d) exp(y^2/2) times the integral of v^(d-1) exp(-v^2/2) beyond y, by a recursion of positive terms.
    inner = np.ones_like(y) if dimension % 2 == 0 else math.sqrt(math.pi / 2.0) * y * erfcx(y / math.sqrt(2.0))
    for size in range(4 - dimension % 2, dimension + 1, 2):
        inner = 1.0 + (size - 2) * inner / np.square(y)
    result: Floats = (half * WEIGHTS * inner).sum(axis=-1) / theta
    return result


def level_hitting_time_density(
    horizon: float, start: float, goal: float, theta: float, sigma: float, level: float, points: int = 2000
) -> tuple[Floats, Floats]:
    """Times from 0 to `horizon` and the density of the first time at any `level`, for which no closed form exists.

    Solves g(t) = 2 psi(t) + 2 int_0^t g(t - u) kernel(u) du, the Volterra equation of Buonocore, Nobile and Ricciardi,
    whose kernel vanishes like sqrt(u) at 0 (and altogether at the goal, which leaves the closed form).
    """
    z, b, rate = (float(value) for value in _normalise(start, goal, level, theta, sigma))
    if z == b:
        raise InputError("the process starts at the level, so its first hitting time is 0 and has no density")
    end = rate * float(positive("horizon", horizon))
    # From close by the process is a Brownian motion of variance 2 t, whose density peaks at a sixth of (z - b)^2.
    needed = math.ceil(120.0 * end / min(end, (z - b) ** 2))
    if points < needed:
        raise InputError(f"{points} points are too few to resolve the density, give at least {needed}")
    clock, step = np.linspace(0.0, end, points + 1, retstep=True)
    later = clock[1:]
    spread = -np.expm1(-2.0 * later)
    psi = _normal((b - z * np.exp(-later)) / np.sqrt(spread)) * np.exp(-later) * spread**-1.5 * (z - b * np.cosh(later))
    half_turn = np.tanh(later / 2.0)
    kernel = 0.25 * b * _normal(b * np.sqrt(half_turn)) * (1.0 + half_turn) * np.sqrt(half_turn)
    # The trapezoidal rule misses -zeta(-1/2) h^(3/2) f(0) for sqrt(u) f(u); with it the error falls to h^(5/2).
    missed = -ZETA_MINUS_HALF * step**1.5 * 0.25 * b * _normal(0.0) / math.sqrt(2.0)
    density = np.zeros(points + 1)
    for index in range(1, points + 1):
        past = step * np.dot(density[1:index], kernel[: index - 1][::-1])
        density[index] = 2.0 * (psi[index - 1] + past) / (1.0 - 2.0 * missed)
    return clock / rate, rate * density


def simulate_hitting_times(
    rng: np.random.Generator,
    paths: int,
    start: float,
    goal: float,
    theta: float,
    sigma: float,
    *,
    horizon: float,
    step: float,
    level: float | None = None,
) -> Floats:
    """First hitting times of simulated paths, (paths,); inf for those that have not hit within `horizon`.

    On the clock u = exp(2 theta t) - 1 the process is a Brownian motion and a level is a curve b sqrt(1 + u). Whether
    and when the path crossed it between two positions is drawn from the law of the Brownian bridge, with the curve's
    chord in its place: exact at any step for the goal (b = 0), and of an error that falls with step^2 otherwise.
    """
    z, b, rate = (float(value) for value in _normalise(start, goal, goal if level is None else level, theta, sigma))
    end, width = rate * float(positive("horizon", horizon)), rate * float(positive("step", step))
    if paths < 1:
        raise InputError(f"paths is {paths}, but at least 1 path must be simulated")
    times = np.full(paths, np.inf)
    if z == b:
        return np.zeros(paths)
    running, position = np.arange(paths), np.full(paths, z)
    for index in range(math.ceil(end / width)):
        if len(running) == 0:
            break
        noise = rng.standard_normal(len(running))
        after = position * math.exp(-width) + math.sqrt(-math.expm1(-2.0 * width)) * noise
        closeness = np.maximum((position - b) * (after - b), 0.0) / math.sinh(width)
        hit = rng.random(len(running)) < np.exp(-closeness)
        duration = math.expm1(2.0 * width)
        gap, left = position[hit] - b, np.abs(after[hit] - b) * math.exp(width)
        ratio = _inverse_gaussian(rng, gap / np.maximum(left, 1e-12 * gap), np.square(gap) / duration)
        times[running[hit]] = index * width + 0.5 * np.log1p(duration * ratio / (1.0 + ratio))
        running, position = running[~hit], after[~hit]
    result: Floats = np.where(times > end, np.inf, times) / rate
    return result


def _normalise(
    start: ArrayLike, goal: ArrayLike, level: ArrayLike, theta: ArrayLike, sigma: ArrayLike
) -> tuple[Floats, Floats, Floats]:
    """Start and level in units of the long-run standard deviation around the goal, start on top, and theta.

    Then time theta t and position z give dz = -z dt + sqrt(2) dW, whose long-run variance is 1.
    """
    theta = positive("theta", theta)
    scale = np.sqrt(2.0 * theta) / positive("sigma", sigma)
    goal = finite("goal", goal)
    z, b = scale * (finite("start", start) - goal), scale * (finite("level", level) - goal)
    side = np.where(z < b, -1.0, 1.0)  # the process is the same seen in a mirror
    return side * z, side * b, theta


def _integral_of_erfcx(lower: Floats, upper: Floats) -> Floats:
    """The integral over [lower, upper], both >= 0, by Gauss-Legendre quadrature in w with v = sinh(w).

    erfcx(v) falls like 1 / v, so in w the integrand is smooth and nearly constant over any number of decades.
    """
    first, last = np.arcsinh(lower)[..., None], np.arcsinh(upper)[..., None]
    half = 0.5 * (last - first)
    w = first + half * (1.0 + NODES)
    result: Floats = (half * WEIGHTS * erfcx(np.sinh(w)) * np.cosh(w)).sum(axis=-1)
    return result


def _inverse_gaussian(rng: np.random.Generator, mean: Floats, shape: Floats) -> Floats:
    """Draws by Michael, Schucany and Haas, without the cancellation of the usual form at a large mean."""
    w = 0.5 * mean * np.square(rng.standard_normal(len(mean))) / shape
    smaller = mean / (1.0 + w + np.sqrt(w * (w + 2.0)))
    take_smaller = rng.random(len(mean)) * (mean + smaller) <= mean
    result: Floats = np.where(take_smaller, smaller, mean * (mean / smaller))
    return result


def _normal(x: ArrayLike) -> Floats:
    density: Floats = np.exp(-0.5 * np.square(np.asarray(x, np.float64))) / math.sqrt(2.0 * math.pi)
    return density


def finite(name: str, value: ArrayLike) -> Floats:
    """The value as an array, if all of it is finite."""
    array = np.asarray(value, np.float64)
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be a finite number")
    return array


def positive(name: str, value: ArrayLike) -> Floats:
    """The value as an array, if all of it is above 0."""
    array = finite(name, value)
    if (array <= 0.0).any():
        raise InputError(f"{name} must be greater than 0, but it is {array.min():g}")
    return array


def not_negative(value: ArrayLike, name: str = "time") -> Floats:
    """The value as an array, if none of it is below 0."""
    array = finite(name, value)
    if (array < 0.0).any():
        raise InputError(f"{name} must not be negative, but it is {array.min():g}")
    return array
