"""The declared figures and tables: whether each can be run, judged and drawn."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from synthetic import results_of

from pchid.experiments import results as results_module
from pchid.experiments.claims import Word, judge
from pchid.experiments.declaration import Experiment
from pchid.experiments.figures import EXPERIMENTS, ou, ou_push, steps
from pchid.experiments.plots import AXES, MEASURES
from pchid.experiments.results import Results, read_results, write_results
from pchid.experiments.worker import train_in
from pchid.training import make_algorithm

OF_THE_PAPER = ("fig1a", "fig4a", "fig4b", "fig4cd", "fig5", "fig6a", "fig6b", "fig6c", "table1", "ou")
each = pytest.mark.parametrize("name", EXPERIMENTS)


def random_results(experiment: Experiment, folder: Path, seed: int = 0) -> Results:
    """As if all runs had ended, with random numbers."""
    rng = np.random.default_rng(seed)
    curves = {row.label: rng.uniform(size=(experiment.seeds, 4)).tolist() for row in experiment.rows}
    results = results_of(curves, folder, experiment)
    if experiment.study is not None:
        results.study = random_study(rng, experiment.seeds)
    return results


def random_study(rng: np.random.Generator, seeds: int) -> dict[str, Any]:
    """What `ou.study` finds, without the rollouts."""
    names = ("step_fraction", "steps_to_goal")
    return {
        "theory": [ou.theory(theta, 1000) for theta in ou.THETAS],
        "policies": [
            {"episodes": episodes, "env_steps": 50 * episodes, "seed": seed, **{name: rng.uniform() for name in names}}
            for episodes in ou.TRAINED
            for seed in range(seeds)
        ],
        "controllers": [{"gain": 0.0, "noise": 1.0, **{name: rng.uniform() for name in names}}],
    }


def test_the_figures_of_the_paper_are_there() -> None:
    assert tuple(EXPERIMENTS)[: len(OF_THE_PAPER)] == OF_THE_PAPER
    assert all(name == experiment.name for name, experiment in EXPERIMENTS.items())


@each
def test_it_says_what_it_shows_what_is_claimed_and_how_long_it_takes(name: str) -> None:
    experiment = EXPERIMENTS[name]
    assert len(experiment.shows) > 20
    assert experiment.claims
    assert experiment.minutes > 0
    assert experiment.seeds >= 3
    assert 1 <= experiment.quick_seeds < experiment.seeds


@each
def test_labels_claims_and_rows_are_unique(name: str) -> None:
    experiment = EXPERIMENTS[name]
    for found in ([row.label for row in experiment.rows], [claim.says for claim in experiment.claims]):
        assert len(set(found)) == len(found)
    folders = [run.directory(Path()) for run in experiment.runs(2)]
    assert len(set(folders)) == len(folders)


@each
def test_every_claim_can_be_judged(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]
    for seed in range(2):
        results = random_results(experiment, tmp_path, seed)
        for claim in experiment.claims:
            verdict = judge(claim, results, quick=False)
            assert verdict.verdict in set(get_args(Word)) - {"not judged"}
            assert len(re.findall(r"\d+\.?\d*", verdict.why)) >= 2, verdict.why
            assert "nan" not in verdict.why


@each
def test_the_panels_show_curves_that_exist(name: str) -> None:
    experiment = EXPERIMENTS[name]
    labels = {row.label for row in experiment.rows}
    assert experiment.panels or experiment.study is not None
    for panel in experiment.panels:
        assert set(panel.labels) <= labels
        assert panel.measure in MEASURES
        assert panel.axis in AXES
        for points in panel.published.values():
            assert np.shape(points)[1:] == (2,)


@each
def test_its_results_can_be_written(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]
    results = random_results(experiment, tmp_path)
    results.experiment = dataclasses.replace(experiment, study=None, policies=(), lasting=False)
    verdicts = write_results(results)
    assert len(verdicts) == len(experiment.claims)
    assert json.loads((tmp_path / "verdict.json").read_text())["name"] == name
    assert (tmp_path / f"{name}.png").exists() == bool(experiment.panels)


@each
def test_the_quick_version_is_another_one_and_smaller(name: str) -> None:
    experiment = EXPERIMENTS[name]
    full, quick = experiment.runs(), experiment.runs(quick=True)
    assert len(quick) < len(full)
    assert {run.label for run in quick} == {run.label for run in full}
    for run in quick:
        big = next(other for other in full if other.label == run.label).config()
        small = run.config()
        assert small["budget"] <= big["budget"]
        assert small["final_episodes"] <= big["final_episodes"]
        assert small["eval_every"] <= small["budget"]
    assert not {run.directory(Path()) for run in quick} & {run.directory(Path()) for run in full}


@pytest.mark.slow
@pytest.mark.parametrize("quick", [False, True])
@each
def test_what_it_trains_can_be_made(name: str, quick: bool) -> None:
    for run in EXPERIMENTS[name].runs(1, quick):
        make_algorithm(run.config())


@each
def test_a_small_version_says_so_where_it_cannot_tell(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]
    results = random_results(experiment, tmp_path)
    for claim in experiment.claims:
        verdict = judge(claim, results, quick=True).verdict
        assert (verdict == "not judged") == (not claim.quick)


def test_a_claim_rests_on_the_numbers() -> None:
    """Each verdict of Figure 5 can come out either way."""
    experiment = EXPERIMENTS["fig5"]
    words = []
    for low, high in ((0.0, 1.0), (1.0, 0.0)):
        hindsight = {row.label: high if "PCHID" in row.label else low for row in experiment.rows}
        curves = {label: [[0.0, value]] * 5 for label, value in hindsight.items()}
        results = results_of(curves, experiment=experiment)
        words.append([judge(claim, results, quick=False).verdict for claim in experiment.claims])
    assert words[0][:5] == ["reproduced", "reproduced", "better", "better", "reproduced"]
    assert words[1][:5] == ["not reproduced"] * 5


def test_steps_are_counted_to_the_first_evaluation_without_a_failure() -> None:
    results = results_of({"a": [[0.0, 0.5, 1.0, 0.9], [0.0, 0.2, 0.4, 0.6]]})
    assert steps.steps_to_success(results, "a") == [250.0, 375.0]  # environment and TEST steps; the second never


@pytest.mark.parametrize(("fast", "word"), [(1, "reproduced"), (2, "reproduced"), (3, "not reproduced")])
def test_half_of_the_steps_is_half_of_the_steps(fast: int, word: str) -> None:
    curves = {"fast": [[0.0] * fast + [1.0] * 3] * 3, "slow": [[0.0] * 4 + [1.0] * 3] * 3}
    found, why = steps.half_of("fast", "slow")(results_of(curves))
    assert found == word
    assert f"{125 * fast:,}" in why
    assert "500" in why


def test_a_seed_that_never_gets_there_is_named_and_counts_against_it() -> None:
    curves = {"fast": [[0.0, 1.0], [0.0, 1.0], [0.0, 0.9]], "slow": [[0.0] * 8 + [1.0]] * 3}
    word, why = steps.half_of("fast", "slow")(results_of(curves))
    assert word == "not reproduced"
    assert "never get there: 1 and 0" in why


def test_the_theory_is_not_borne_out_by_wrong_numbers(tmp_path: Path) -> None:
    results = random_results(EXPERIMENTS["ou"], tmp_path)
    assert ou.theory_holds(results)[0] == "reproduced"
    results.study["theory"][2]["simulated"] *= 2
    assert ou.theory_holds(results)[0] == "not reproduced"


def test_drift_grows_only_if_the_goal_is_met_sooner_too(tmp_path: Path) -> None:
    results = random_results(EXPERIMENTS["ou"], tmp_path)
    for sooner, word in ((True, "reproduced"), (False, "not reproduced")):
        for point in results.study["policies"]:
            point["step_fraction"] = 0.01 * point["episodes"]
            point["steps_to_goal"] = 50.0 - point["episodes"] * sooner
        assert ou.drift_grows(1, 10)(results)[0] == word


@pytest.mark.parametrize("grows", [True, False])
@pytest.mark.parametrize("sooner", [True, False])
def test_on_push_drift_must_grow_and_go_with_an_earlier_hit(tmp_path: Path, grows: bool, sooner: bool) -> None:
    results = random_results(EXPERIMENTS["ou-push"], tmp_path)
    for point in results.study["policies"]:
        point["step_fraction"] = 1e-4 * point["env_steps"] * (1 if grows else -1)
        point["steps_to_goal"] = 50.0 - 0.01 * point["env_steps"] * (1 if sooner else -1)
    assert (ou_push.drift_grows(results)[0] == "reproduced") == (grows and sooner)
    assert (ou_push.sooner_with_drift(results)[0] == "reproduced") == (grows == sooner)


def test_the_pictures_of_the_studies_are_drawn(tmp_path: Path) -> None:
    found = random_study(np.random.default_rng(0), 2)
    ou.draw(found, tmp_path / "ou.png")
    ou_push.draw(found["policies"], tmp_path / "ou-push.png")
    for path in tmp_path.glob("*.png"):
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
def test_the_drift_on_push_is_that_of_the_runs_own_policies(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["ou-push"]
    run = experiment.runs(quick=True)[0]
    assert train_in(run.directory(tmp_path), run.words()) == 0
    results = read_results(experiment, [run], tmp_path, tmp_path / "results")
    write_results(results, quick=True)
    assert [point["env_steps"] for point in results.study["policies"]] == [0, 1600]
    assert (tmp_path / "results" / "ou-push.png").exists()


@pytest.mark.slow
def test_a_controller_that_is_stronger_covers_more_of_the_way_and_arrives_sooner() -> None:
    weak, strong = (ou.measured(ou.controller(gain, 0.0), 10) for gain in (1.0, 10.0))
    assert strong["step_fraction"] > weak["step_fraction"]
    assert strong["steps_to_goal"] < weak["steps_to_goal"]
    assert strong["reached"] == 1.0
    json.dumps([weak, strong], allow_nan=False)


@pytest.mark.slow
def test_many_rollouts_are_as_long_as_few() -> None:
    """More than a probe has slots: a policy that stands still fails to reach a goal for 49 steps, not for twice 49."""
    still = ou.measured(lambda observations: np.zeros((len(observations["observation"]), 4), np.float32), 70)
    assert still["reached"] < 0.2
    assert 40 < still["steps_to_goal"] <= 49
    assert still["steps"] <= 70 * 49


def test_each_measure_of_the_table_has_its_name() -> None:
    assert set(results_module.MEASURES) <= set(MEASURES)
