"""Results that no run has made, for tests of what is done with results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pchid.experiments.declaration import Experiment, Row, Run
from pchid.experiments.results import Results

Curve = Sequence[float]
"""Final success at each evaluation, ten episodes apart."""


def experiment_of(*labels: str, **fields: Any) -> Experiment:
    """An experiment with a row for each label."""
    rows = tuple(Row(label, "BitFlip-v0", "hid", {"episodes": 10 + number}) for number, label in enumerate(labels))
    return Experiment(**{"name": "made-up", "shows": "nothing", "rows": rows, "seeds": 3, "minutes": 1.0, **fields})


def results_of(
    curves: Mapping[str, Sequence[Curve]], folder: Path = Path("nowhere"), experiment: Experiment | None = None
) -> Results:
    """What runs with these curves, one for each seed, would have given."""
    results = Results(experiment or experiment_of(*curves), folder)
    for label, seeds in curves.items():
        results.curves[label] = [[evaluation(index, value) for index, value in enumerate(curve)] for curve in seeds]
        results.summaries[label] = [
            {**rows[-1], "seed": seed, "versions": {"pchid": "0"}} for seed, rows in enumerate(results.curves[label])
        ]
        results.directories[label] = [folder / f"{label}-{seed}" for seed in range(len(seeds))]
        results.commands[label] = f"pchid train {label}"
    return results


def evaluation(index: int, success: float) -> dict[str, float]:
    """A row of metrics.csv."""
    return {
        "episodes": 10.0 * index,
        "env_steps": 100.0 * index,
        "test_steps": 25.0 * index,
        "final_success": success,
        "any_success": success,
        "mean_return": -10.0 * (1.0 - success),
        "steps_to_goal": 10.0 - 5.0 * success,
        "K": 1.0,
        "test_accuracy": success,
        "test_recall": success,
        "wall_seconds": 60.0 * index,
    }


def constant(*values: float) -> list[Curve]:
    """A curve for each seed that is flat."""
    return [[value] * 3 for value in values]


def a_run(label: str = "a") -> Run:
    """One that never ran."""
    return Run(label, "BitFlip-v0", "hid", {"episodes": 10}, 0)
