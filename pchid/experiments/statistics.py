"""What several seeds say together: interquartile mean, and a stratified bootstrap interval (Agarwal et al., 2021).

In: one number for each seed, perhaps for several tasks. Out: mean, interquartile mean and its 95 % interval. SciPy has
both the trimmed mean and the bootstrap, so nothing more needs to be installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

RESAMPLES = 2000
LEVEL = 0.95
SEED = 0
"""The same runs always give the same interval."""


@dataclass(frozen=True)
class Estimate:
    """What is known about a quantity after several seeds."""

    mean: float
    iqm: float
    low: float
    high: float
    """The 95 % interval of the interquartile mean; both equal to it if there is only one seed."""
    seeds: int

    def __str__(self) -> str:
        return f"{self.iqm:.3f} [{self.low:.3f}, {self.high:.3f}]"


def iqm(*tasks: ArrayLike, axis: int = -1) -> NDArray[np.float64]:
    """The mean of the middle half of all values, those of several tasks taken together."""
    values: NDArray[np.float64] = np.asarray(
        stats.trim_mean(np.concatenate([np.asarray(task, float) for task in tasks], axis=axis), 0.25, axis=axis)
    )
    return values


def interval(*tasks: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The 95 % interval of the interquartile mean over seeds, which are the last axis of each task.

    Stratified: each task's seeds are drawn again among that task's own.
    """
    arrays: list[NDArray[np.float64]] = [np.asarray(task, float) for task in tasks]
    centre = iqm(*arrays)
    if min(array.shape[-1] for array in arrays) < 2 or np.isnan(centre).all():
        return centre, centre
    rng = np.random.default_rng(SEED)
    result: Any = stats.bootstrap(
        arrays, iqm, axis=-1, n_resamples=RESAMPLES, confidence_level=LEVEL, method="percentile", rng=rng
    )
    return np.asarray(result.confidence_interval.low), np.asarray(result.confidence_interval.high)


def estimate(*tasks: Sequence[float]) -> Estimate:
    """All there is to say about a quantity: its value for each seed, of one task or of several."""
    low, high = interval(*tasks)
    values = np.concatenate([np.asarray(task, float) for task in tasks])
    return Estimate(float(values.mean()), float(iqm(*tasks)), float(low), float(high), min(len(task) for task in tasks))
