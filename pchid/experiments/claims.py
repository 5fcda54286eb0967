"""The paper's claims, judged: reproduced, better, not reproduced (and why), or not judged.

In: the results of an experiment. Out: a verdict with the figures that it rests on. A comparison of two rows looks at
the bootstrap interval of the difference of their interquartile means, not at the means alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import stats

from pchid.experiments.statistics import LEVEL, RESAMPLES, SEED, Estimate, estimate, iqm

if TYPE_CHECKING:
    from pchid.experiments.results import Results

Word = Literal["reproduced", "better", "not reproduced", "not judged"]
Judge = Callable[["Results"], tuple[Word, str]]
When = Literal["end", "training"] | int
"""The last evaluation, the mean over all evaluations, or the evaluation at so many episodes."""


@dataclass(frozen=True)
class Claim:
    """A sentence that the results may bear out or not."""

    says: str
    judge: Judge
    because: str = ""
    """What is known about the reason, where it was not reproduced."""
    quick: bool = False
    """Whether a small version can tell."""


@dataclass(frozen=True)
class Verdict:
    """What came out."""

    claim: str
    verdict: Word
    why: str


class NoFigureError(Exception):
    """A measure that some run does not have, or a row that lacks runs."""


class CompleteRows(dict[str, Any]):
    """What belongs to each row, for rows that lack no run."""

    def __missing__(self, label: str) -> Any:
        raise NoFigureError(f"runs of {label} are missing")


def judge(claim: Claim, results: Results, quick: bool) -> Verdict:
    """The verdict on a claim; a small version leaves open what it cannot tell, and so does a row with missing runs."""
    if quick and not claim.quick:
        return Verdict(claim.says, "not judged", "the quick version is too small to tell")
    if results.missing and results.experiment.study is not None:
        return Verdict(claim.says, "not judged", f"{len(results.missing)} runs are missing")
    try:
        word, why = claim.judge(results.complete())
    except NoFigureError as missing:
        return Verdict(claim.says, "not judged", str(missing))
    if word == "not reproduced" and claim.because:
        why = f"{why}; {claim.because}"
    return Verdict(claim.says, word, why)


def reaches(
    label: str, value: float, measure: str = "final_success", when: When = "end", whose: str = "the paper's"
) -> Judge:
    """As high as the paper's value (or somebody else's); better, if the whole interval lies above it."""

    def verdict(results: Results) -> tuple[Word, str]:
        found = estimate(_values(results, label, measure, when))
        word: Word = "better" if found.low > value else "reproduced" if found.high >= value else "not reproduced"
        return word, f"{_named(label, measure, when)} is {found}, {whose} {value:g}"

    return verdict


def stays_below(
    label: str, value: float, measure: str = "final_success", when: When = "end", whose: str = "the paper's"
) -> Judge:
    """A method that does not get off the ground."""

    def verdict(results: Results) -> tuple[Word, str]:
        found = estimate(_values(results, label, measure, when))
        word: Word = "reproduced" if found.high <= value else "not reproduced"
        return word, f"{_named(label, measure, when)} is {found}, {whose} at most {value:g}"

    return verdict


def above(label: str, other: str, measure: str = "final_success", when: When = "end") -> Judge:
    """One row above another, by more than chance."""

    def verdict(results: Results) -> tuple[Word, str]:
        one, two = _values(results, label, measure, when), _values(results, other, measure, when)
        low, high = difference(one, two)
        word: Word = "reproduced" if low > 0 else "not reproduced"
        return word, _compared(label, other, measure, when, estimate(one), estimate(two), low, high)

    return verdict


def about_equal(label: str, other: str, within: float, measure: str = "final_success", when: When = "end") -> Judge:
    """Two rows that differ by no more than `within`."""

    def verdict(results: Results) -> tuple[Word, str]:
        one, two = _values(results, label, measure, when), _values(results, other, measure, when)
        low, high = difference(one, two)
        word: Word = "reproduced" if -within <= low and high <= within else "not reproduced"
        return word, _compared(label, other, measure, when, estimate(one), estimate(two), low, high)

    return verdict


def identical(
    label: str, other: str, measures: tuple[str, ...] = ("final_success", "any_success", "steps_to_goal")
) -> Judge:
    """Two rows that are the same seed by seed, not only on the whole."""

    def verdict(results: Results) -> tuple[Word, str]:
        differing = [name for name in measures if results.values(label, name) != results.values(other, name)]
        if differing:
            return "not reproduced", f"{label} and {other} differ in {', '.join(differing)}"
        return "reproduced", f"{label} and {other} have the same {', '.join(measures)}, seed by seed"

    return verdict


def difference(one: list[float], two: list[float]) -> tuple[float, float]:
    """The 95 % interval of the difference of interquartile means; a single seed is taken as it is."""
    if min(len(one), len(two)) < 2:
        first, second = estimate(one), estimate(two)
        return first.low - second.high, first.high - second.low
    found: Any = stats.bootstrap(
        (np.asarray(one), np.asarray(two)),
        lambda first, second, axis=-1: iqm(first, axis=axis) - iqm(second, axis=axis),
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(SEED),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def _values(results: Results, label: str, measure: str, when: When) -> list[float]:
    values = results.values(label, measure, when)
    if np.isnan(values).any():
        raise NoFigureError(f"there is no {_named(label, measure, when)}")
    return values


def _named(label: str, measure: str, when: When) -> str:
    moment = {"end": "at the end", "training": "over training"}.get(str(when), f"after {when} episodes")
    return f"{measure.replace('_', ' ')} of {label} {moment}"


def _compared(
    label: str, other: str, measure: str, when: When, one: Estimate, two: Estimate, low: float, high: float
) -> str:
    return f"{_named(label, measure, when)} is {one}, of {other} {two}, difference in [{low:.3f}, {high:.3f}]"
