"""The policies that are committed with the results do what the results say, on maps and goals that nobody has seen."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Outcome

RESULTS = Path(__file__).parents[2] / "results"
Call = Callable[..., Outcome]


def rows(name: str) -> dict[tuple[str, int], float]:
    """Final success by label and seed, as the results have it."""
    with (RESULTS / name / "runs.csv").open() as file:
        return {(row["label"], int(row["seed"])): float(row["final_success"]) for row in csv.DictReader(file)}


def confirmed(call: Call, folder: Path, policy: Path, episodes: int) -> float:
    """Final success of a kept policy on episodes of another seed."""
    words = ("evaluate", policy, "--episodes", episodes, "--seed", 4321, "--json", folder / "measures.json")
    assert call(*words).code == 0
    return float(json.loads((folder / "measures.json").read_text())["final_success"])


@pytest.mark.slow
@pytest.mark.parametrize(("label", "seed"), [("16x16", 0), ("16x16", 5), ("8x8", 0), ("28x28", 0)])
def test_a_kept_policy_confirms_its_row(call: Call, tmp_path: Path, label: str, seed: int) -> None:
    policy = RESULTS / "gridworld" / "policies" / f"{label}-{seed}"
    found = confirmed(call, tmp_path, policy, 400)
    assert found == pytest.approx(rows("gridworld")[label, seed], abs=0.04)  # four standard errors of 400 maps at .96
    assert sum(path.stat().st_size for path in policy.rglob("*") if path.is_file()) < 10_000


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((RESULTS / "table1" / "policies").glob("*-0")), ids=lambda path: path.name)
def test_a_kept_policy_of_an_arm_confirms_its_row(call: Call, tmp_path: Path, path: Path) -> None:
    label, seed = path.name.rsplit("-", 1)
    found = confirmed(call, tmp_path, path, 300)
    expected = rows("table1")[label, int(seed)]
    # Four standard errors of 300 episodes, and of the 1,000 behind the row; a row of 1.000 is not perfect for sure.
    share = min(max(expected, 0.01), 0.99)
    error = 4.0 * (share * (1.0 - share) * (1 / 300 + 1 / 1000)) ** 0.5
    assert found == pytest.approx(expected, abs=error)
    assert (path / "policy" / "agent.safetensors").stat().st_size < 1_000_000
