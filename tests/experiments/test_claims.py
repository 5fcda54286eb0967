"""The paper's claims, judged on results that were made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import a_run, constant, results_of

from pchid.errors import InputError
from pchid.experiments.claims import Claim, Judge, about_equal, above, difference, judge, reaches, stays_below
from pchid.experiments.statistics import estimate

SPREAD = (0.40, 0.45, 0.50, 0.55, 0.60)


@pytest.mark.parametrize(
    ("value", "word"), [(0.2, "better"), (0.48, "reproduced"), (0.55, "reproduced"), (0.9, "not reproduced")]
)
def test_a_value_is_reached_if_the_interval_does(value: float, word: str) -> None:
    found, why = reaches("a", value)(results_of({"a": constant(*SPREAD)}))
    assert found == word
    assert f"{value:g}" in why
    assert str(estimate(list(SPREAD))) in why


def test_exactly_the_value_is_reproduced_and_not_better() -> None:
    assert reaches("a", 1.0)(results_of({"a": constant(1.0, 1.0, 1.0)}))[0] == "reproduced"
    assert reaches("a", 0.99)(results_of({"a": constant(1.0, 1.0, 1.0)}))[0] == "better"


@pytest.mark.parametrize(("value", "word"), [(0.2, "not reproduced"), (0.5, "not reproduced"), (0.7, "reproduced")])
def test_it_stays_below_only_if_all_of_the_interval_does(value: float, word: str) -> None:
    found, why = stays_below("a", value)(results_of({"a": constant(*SPREAD)}))
    assert found == word
    assert f"at most {value:g}" in why


@pytest.mark.parametrize(("gap", "word"), [(0.3, "reproduced"), (0.02, "not reproduced"), (-0.3, "not reproduced")])
def test_one_row_is_above_another_by_more_than_chance(gap: float, word: str) -> None:
    results = results_of({"a": constant(*(value + gap for value in SPREAD)), "b": constant(*SPREAD)})
    found, why = above("a", "b")(results)
    assert found == word
    low, high = difference(results.values("a", "final_success"), results.values("b", "final_success"))
    assert low < gap < high
    assert f"[{low:.3f}, {high:.3f}]" in why


@pytest.mark.parametrize(
    ("gap", "within", "word"),
    [
        (0.0, 0.2, "reproduced"),
        (0.3, 0.2, "not reproduced"),
        (-0.3, 0.2, "not reproduced"),
        (0.0, 0.01, "not reproduced"),
    ],
)
def test_rows_are_about_equal_if_all_of_the_interval_is_near_nought(gap: float, within: float, word: str) -> None:
    results = results_of({"a": constant(*(value + gap for value in SPREAD)), "b": constant(*SPREAD)})
    assert about_equal("a", "b", within)(results)[0] == word


def test_rows_without_spread_may_be_exactly_equal() -> None:
    results = results_of({"a": constant(1.0, 1.0), "b": constant(1.0, 1.0), "c": constant(0.9, 0.9)})
    assert about_equal("a", "b", 0.0)(results)[0] == "reproduced"
    assert about_equal("a", "c", 0.0)(results)[0] == "not reproduced"


def test_one_seed_is_compared_as_it_is() -> None:
    assert difference([0.5], [0.25, 0.25]) == (0.25, 0.25)
    assert difference([0.5], [0.25]) == (0.25, 0.25)
    assert above("a", "b")(results_of({"a": constant(0.5), "b": constant(0.4)}))[0] == "reproduced"


def test_one_seed_against_several_that_differ_leaves_their_spread() -> None:
    spread = [0.2, 0.4, 0.6]
    low, high = difference([0.5], spread)
    assert low == pytest.approx(-0.1, abs=0.02)
    assert high == pytest.approx(0.3, abs=0.02)
    assert difference(spread, [0.5]) == pytest.approx((-high, -low))
    results = results_of({"a": constant(0.5), "b": constant(*spread)})
    assert above("a", "b")(results)[0] == above("b", "a")(results)[0] == "not reproduced"


def test_the_difference_is_the_same_each_time_and_changes_its_sign() -> None:
    one, two = [0.1, 0.4, 0.3, 0.8], [0.2, 0.9, 0.5]
    low, high = difference(one, two)
    assert (low, high) == difference(one, two)
    assert difference(two, one) == pytest.approx((-high, -low), abs=0.05)


def test_a_claim_may_be_about_the_end_all_of_training_or_a_moment() -> None:
    results = results_of({"fast": [[0.0, 1.0, 1.0]] * 2, "slow": [[0.0, 0.0, 1.0]] * 2})
    assert above("fast", "slow", when="end")(results)[0] == "not reproduced"
    assert above("fast", "slow", when="training")(results)[0] == "reproduced"
    word, why = above("fast", "slow", when=10)(results)
    assert word == "reproduced"
    assert "after 10 episodes" in why
    assert above("fast", "slow", when=20)(results)[0] == "not reproduced"
    with pytest.raises(InputError, match="no evaluation after 15 episodes"):
        above("fast", "slow", when=15)(results)


def test_a_claim_may_be_about_another_measure() -> None:
    results = results_of({"a": constant(0.5, 0.5)})  # returns of -5
    assert reaches("a", -5.0, "mean_return")(results)[0] == "reproduced"
    assert "mean return of a at the end is -5.000" in reaches("a", -5.0, "mean_return")(results)[1]
    assert stays_below("a", -6.0, "mean_return")(results)[0] == "not reproduced"


@pytest.mark.parametrize(
    "claimed", [reaches("a", 0.1), stays_below("a", 0.9), above("a", "b"), about_equal("a", "b", 1.0)]
)
def test_missing_runs_leave_the_claims_about_their_row_open(claimed: Judge) -> None:
    results = results_of({"a": constant(0.5, 0.5), "b": constant(0.1, 0.1), "c": constant(0.2, 0.2)})
    results.missing = [a_run("c")]
    assert judge(Claim("it is so", claimed), results, quick=False).verdict in ("reproduced", "better")
    results.missing = [a_run("c"), a_run("a")]
    verdict = judge(Claim("it is so", claimed, quick=True), results, quick=False)
    assert (verdict.claim, verdict.verdict, verdict.why) == ("it is so", "not judged", "runs of a are missing")


def test_a_study_needs_all_runs() -> None:
    results = results_of({"a": constant(0.5, 0.5), "b": constant(0.1, 0.1)})
    results.experiment = replace(results.experiment, study=lambda found, quick: None)
    results.missing = [a_run("b")]
    verdict = judge(Claim("it is so", reaches("a", 0.1)), results, quick=False)
    assert (verdict.verdict, verdict.why) == ("not judged", "1 runs are missing")


def test_a_row_without_any_run_leaves_its_claim_open() -> None:
    results = results_of({"b": constant(0.1, 0.1)})
    results.missing = [a_run("a")]
    assert judge(Claim("it is so", above("a", "b")), results, quick=False).verdict == "not judged"


def test_a_small_version_judges_only_what_it_can_tell() -> None:
    results = results_of({"a": constant(0.5, 0.5)})
    open_claim, told = Claim("it is so", reaches("a", 0.5)), Claim("it is so", reaches("a", 0.5), quick=True)
    assert judge(open_claim, results, quick=True).verdict == "not judged"
    assert "too small" in judge(open_claim, results, quick=True).why
    assert judge(told, results, quick=True).verdict == "reproduced"
    assert judge(open_claim, results, quick=False).verdict == "reproduced"


def test_the_reason_is_told_where_it_was_not_reproduced_and_only_there() -> None:
    results = results_of({"a": constant(0.5, 0.5)})
    missed, met = (Claim("it is so", reaches("a", value), "too few episodes") for value in (0.9, 0.5))
    assert judge(missed, results, quick=False).why.endswith("; too few episodes")
    assert "too few" not in judge(met, results, quick=False).why
