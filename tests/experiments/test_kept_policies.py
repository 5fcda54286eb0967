"""The policies that are committed with the results do what the results say, on maps that nobody has seen."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Outcome

RESULTS = Path(__file__).parents[2] / "results"
Call = Callable[..., Outcome]


@pytest.mark.slow
@pytest.mark.parametrize(("label", "seed"), [("16x16", 0), ("16x16", 5), ("8x8", 0), ("28x28", 0)])
def test_a_kept_policy_confirms_its_row(call: Call, tmp_path: Path, label: str, seed: int) -> None:
    with (RESULTS / "gridworld" / "runs.csv").open() as file:
        rows = {(row["label"], int(row["seed"])): float(row["final_success"]) for row in csv.DictReader(file)}
    policy = RESULTS / "gridworld" / "policies" / f"{label}-{seed}"
    words = ("evaluate", policy, "--episodes", 400, "--seed", 4321, "--json", tmp_path / "measures.json")
    assert call(*words).code == 0
    found = json.loads((tmp_path / "measures.json").read_text())["final_success"]
    assert found == pytest.approx(rows[label, seed], abs=0.04)  # four standard errors of 400 maps at .96
    assert sum(path.stat().st_size for path in policy.rglob("*") if path.is_file()) < 10_000
