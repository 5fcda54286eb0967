"""The drift of a real policy towards its goals, in the sense of the Ornstein-Uhlenbeck view (supplement).

In: positions along rollouts and their goals. Out: the process that fits them best, and when each first met its goal.
`docs/ornstein_uhlenbeck.md` says what to read into it and what not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pchid.errors import InputError
from pchid.ornstein_uhlenbeck import Floats, not_negative, positive


@dataclass(frozen=True)
class HittingTimes:
    """When E rollouts first met their goals; one that did not is censored, not left out."""

    time: Floats
    """(E,): the first time within the tolerance, or the end of the rollout if there was none."""
    reached: NDArray[np.bool_]
    """(E,): whether `time` is a hit."""

    @property
    def restricted_mean(self) -> float:
        """The mean of min(hitting time, end of the rollout): a lower bound of the mean hitting time."""
        return float(self.time.mean())


def first_hitting_times(
    achieved: ArrayLike, goals: ArrayLike, *, time_step: float, tolerance: float, length: ArrayLike | None = None
) -> HittingTimes:
    """When rollouts, (E, T+1, d), first came closer than `tolerance` to their goals, (E, d).

    `length` (E,) says how many steps of each rollout are real. What happens between two steps is not seen: times are
    rounded up to whole steps.
    """
    positive("tolerance", tolerance)
    step = float(positive("time_step", time_step))
    error, steps = _errors(achieved, goals, length)
    inside = np.linalg.norm(error, axis=2) < tolerance
    inside &= np.arange(error.shape[1]) <= steps[:, None]
    reached = inside.any(axis=1)
    return HittingTimes(np.where(reached, inside.argmax(axis=1), steps) * step, reached)


@dataclass(frozen=True)
class Drift:
    """The Ornstein-Uhlenbeck process that fits a policy's rollouts best."""

    theta: float
    """Per unit of time; negative if the policy leads away from the goal, inf if its mean step ends beyond it."""
    theta_error: float
    """The standard error of theta."""
    sigma: float
    """The noise of each coordinate per square root of time; nan where theta is inf."""
    step_fraction: float
    """The share of the way covered in one step, the paper's epsilon; may pass 1."""
    step_fraction_error: float
    """Its standard error."""
    step_noise: float
    """The standard deviation of what the drift leaves unexplained of one step in one coordinate."""
    steps: int
    """How many steps were fitted."""


def measure_drift(
    achieved: ArrayLike, goals: ArrayLike, *, time_step: float, tolerance: float, length: ArrayLike | None = None
) -> Drift:
    """Fit one theta and sigma to rollouts, (E, T+1, d), towards goals (E, d), up to each one's first hit.

    Observed every `time_step` the process is autoregressive, x_{n+1} - g = a (x_n - g) + noise with a = exp(-theta dt),
    and a is found by least squares. The step that enters the tolerance counts: without it the slow steps remain. Those
    after it do not, since a policy that rests there no longer shows its drift. The standard errors allow any dependence
    within a rollout. A `tolerance` of 0 fits all steps.
    """
    step = float(positive("time_step", time_step))
    before, after, rollout = _approach(achieved, goals, tolerance, length)
    power = float(np.square(before).sum())
    kept = float((before * after).sum()) / power
    residual = after - kept * before
    freedom = before.size - 1
    noise = math.sqrt(float(np.square(residual).sum()) / max(freedom, 1))
    scores = np.bincount(rollout, (before * residual).sum(axis=1))
    count = len(np.unique(rollout))
    error = math.sqrt(count / (count - 1) * float(np.square(scores).sum())) / power
    theta, theta_error, sigma = math.inf, math.nan, math.nan
    if kept > 0.0:
        theta, theta_error = -math.log(kept) / step, error / (kept * step)
        # noise^2 = sigma^2 (1 - a^2) / (2 theta), which tends to sigma^2 dt as theta vanishes.
        exponent = 2.0 * theta * step
        sigma = noise / math.sqrt(step * (-math.expm1(-exponent) / exponent if exponent else 1.0))
    return Drift(theta, theta_error, sigma, 1.0 - kept, error, noise, len(rollout))


def proportional_share(
    achieved: ArrayLike, goals: ArrayLike, *, tolerance: float, length: ArrayLike | None = None
) -> float:
    """How much of the progress per step grows with the distance: 1 for the process, 0 for a constant speed.

    Fits progress = speed + fraction * distance and returns the second term's part of the mean progress; nan if there is
    no progress or all distances are equal. Near 0, actions are saturated and theta is a speed over a typical distance.
    """
    before, after, _ = _approach(achieved, goals, tolerance, length)
    distance = np.linalg.norm(before, axis=1)
    progress = ((before - after) * before).sum(axis=1) / distance
    centred = distance - distance.mean()
    if progress.mean() <= 0.0 or np.ptp(distance) <= 1e-12 * distance.max():
        return math.nan
    fraction = float((centred * progress).sum() / np.square(centred).sum())
    return fraction * float(distance.mean() / progress.mean())


def _approach(
    achieved: ArrayLike, goals: ArrayLike, tolerance: float, length: ArrayLike | None
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Offsets from the goal before and after each step up to the first hit, (N, d) each, and whose step it is, (N,)."""
    tolerance = float(not_negative(tolerance, "tolerance"))
    error, steps = _errors(achieved, goals, length)
    distance = np.linalg.norm(error, axis=2)
    # At the goal exactly there is no direction to it, and no step from there says anything about drift.
    outside = (distance >= tolerance) & (distance > 0.0)
    approaching = np.logical_and.accumulate(outside, axis=1)[:, :-1] if tolerance else outside[:, :-1]
    rollout, time = np.nonzero(approaching & (np.arange(error.shape[1] - 1) < steps[:, None]))
    if len(np.unique(rollout)) < 2:
        raise InputError("a drift needs at least 2 rollouts that take a step from outside the tolerance of their goal")
    return error[rollout, time], error[rollout, time + 1], rollout


def _errors(achieved: ArrayLike, goals: ArrayLike, length: ArrayLike | None) -> tuple[Floats, NDArray[np.int64]]:
    """Offsets from the goal, (E, T+1, d) with 0 beyond each rollout's end, and the checked lengths, (E,)."""
    achieved, goals = np.asarray(achieved, np.float64), np.asarray(goals, np.float64)
    if achieved.ndim != 3 or achieved.shape[1] < 2 or min(achieved.shape) < 1:
        raise InputError(f"positions must be (rollouts, steps + 1, coordinates), but their shape is {achieved.shape}")
    if goals.shape != (achieved.shape[0], achieved.shape[2]):
        raise InputError(f"goals of shape {goals.shape} do not go with positions of shape {achieved.shape}")
    horizon = achieved.shape[1] - 1
    steps = np.full(len(goals), horizon) if length is None else np.asarray(length)
    if steps.shape != (len(goals),) or steps.dtype.kind not in "iu" or steps.min() < 0 or steps.max() > horizon:
        raise InputError(f"length must give each of the {len(goals)} rollouts a number of steps from 0 to {horizon}")
    real = np.arange(horizon + 1) <= steps[:, None]
    error = np.where(real[..., None], achieved - goals[:, None], 0.0)
    if not np.isfinite(error).all():
        raise InputError("positions and goals must be finite numbers")
    return error, steps.astype(np.int64)
