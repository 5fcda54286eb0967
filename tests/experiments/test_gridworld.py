"""The study of GridWorld: success by the length of the shortest path, and on other map sizes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pchid.envs.make import make_probe
from pchid.evaluation import evaluate
from pchid.experiments.engines import LocalEngine
from pchid.experiments.figures import EXPERIMENTS, gridworld
from pchid.experiments.figures.fig4 import by_k
from pchid.experiments.reproduce import Plan, reproduce
from pchid.experiments.results import Results
from pchid.training import trained_policy

SIZE = {"size": 8, "n_obstacles": 30}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small experiments, run."""
    folder = tmp_path_factory.mktemp("gridworld")
    plan = Plan(LocalEngine(1), folder / "runs", folder / "results", quick=True)
    assert reproduce([EXPERIMENTS["gridworld"], EXPERIMENTS["fig4cd"]], plan, Console(quiet=True)) == []
    return folder


def run_of(folder: Path, size: int) -> Path:
    configs = {path: json.loads((path / "config.json").read_text()) for path in sorted((folder / "runs").iterdir())}
    return next(
        path
        for path, config in configs.items()
        if config["env_options"].get("size", 16) == size and config["policy_settings"]["symmetric"]
    )


@pytest.mark.slow
def test_lengths_and_successes_are_those_of_the_evaluated_maps(folder: Path) -> None:
    path = run_of(folder, 8)
    found = gridworld.by_length(gridworld.policy_for_any_size(path), SIZE, 60)
    outcomes = evaluate(trained_policy(path), make_probe("GridWorld-v0", 60, **SIZE), 60, gridworld.FRESH_SEED)
    assert sum(count for count, _ in found.values()) == 60
    assert sum(solved for _, solved in found.values()) == outcomes.final_success.sum()
    assert min(found) >= 1
    shortest = min(length for length, (_, solved) in found.items() if solved)
    assert outcomes.steps_to_goal[outcomes.final_success].min() >= shortest


@pytest.mark.slow
def test_the_study_covers_every_pair_of_sizes(folder: Path) -> None:
    written = json.loads((folder / "results" / "gridworld" / "study.json").read_text())
    assert len(written) == len(gridworld.SIZES) ** 2
    for found in written.values():
        maps, success = found["maps_by_length"], found["success_by_length"]
        total = sum(maps[n] * success[n] for n in maps) / sum(maps.values())
        assert total == pytest.approx(found["final_success"])
    assert (folder / "results" / "gridworld" / "gridworld-lengths.png").exists()


@pytest.mark.slow
def test_the_policies_are_kept_and_are_those_of_the_runs(folder: Path) -> None:
    kept = folder / "results" / "gridworld" / "policies" / "8x8-0"
    assert sorted(path.name for path in kept.rglob("*") if path.is_file()) == [
        "agent.safetensors",
        "config.json",
        "metrics.csv",
        "summary.json",
    ]
    probe = make_probe("GridWorld-v0", 30, **SIZE)
    one, two = (evaluate(trained_policy(path), probe, 30, 3).steps_to_goal for path in (kept, run_of(folder, 8)))
    assert one.tolist() == two.tolist()


@pytest.mark.slow
def test_verdicts_of_test_are_told_for_each_k(folder: Path) -> None:
    written = json.loads((folder / "results" / "fig4cd" / "study.json").read_text())
    assert set(written) == {row.label for row in EXPERIMENTS["fig4cd"].rows}
    accuracy = written["interaction"]["test_accuracy"]
    assert list(accuracy) == ["2", "3", "4", "5"]
    assert 0.0 <= accuracy["2"]["mean"] <= 1.0


def test_lengths_with_few_maps_are_joined_and_nothing_is_lost() -> None:
    rng = np.random.default_rng(0)
    maps = {n: int(rng.integers(1, 20)) for n in range(1, 30)}
    success = {n: float(rng.uniform()) for n in maps}
    x, y = gridworld.joined(maps, success)
    assert x == sorted(x)
    assert len(x) < len(maps)
    assert min(success.values()) <= min(y) <= max(y) <= max(success.values())
    assert gridworld.joined({3: 50, 5: 20}, {3: 0.5, 5: 1.0}) == ([3.0, 5.0], [0.5, 1.0])


def test_a_k_without_pairs_is_left_out(tmp_path: Path) -> None:
    results = Results(EXPERIMENTS["fig4cd"], tmp_path)
    for row in EXPERIMENTS["fig4cd"].rows:
        known = {f"{name}_{k}": 0.5 for name in ("test_accuracy", "test_recall") for k in (2, 3)}
        missing = {f"{name}_{k}": None for name in ("test_accuracy", "test_recall") for k in (4, 5)}
        results.summaries[row.label] = [{**known, **missing}, {**known, **missing, "test_accuracy_3": 0.7}]
    by_k(results, quick=False)
    found = results.study["interaction"]["test_accuracy"]
    assert found[2]["mean"] == 0.5
    assert found[3]["mean"] == pytest.approx(0.6)
    assert found[4] is found[5] is None
    assert (tmp_path / "fig4cd-by-k.png").exists()
