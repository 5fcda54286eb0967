"""What lies in a folder of results, read and checked.

In: `results/`, as `pchid reproduce` and `pchid sweep` write it. Out: plain data for the page, or one sentence that
names the file that is wrong.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from pchid.errors import InputError
from pchid.experiments.claims import Verdict, Word
from pchid.experiments.declaration import Experiment
from pchid.experiments.figures import EXPERIMENTS
from pchid.experiments.results import CLOCK, COUNTS, DETAILS, MEASURES, Results

WORDS: tuple[Word, ...] = get_args(Word)
COLUMNS = ("label", "seed", *COUNTS, *MEASURES, *DETAILS)
PARTS = {"shows": str, "quick": bool, "missing_runs": int, "claims": list, "commands": dict, "versions": dict}
"""What verdict.json holds."""


@dataclass(frozen=True)
class Found:
    """An experiment as it lies in its folder."""

    results: Results
    verdicts: list[Verdict]
    quick: bool = False
    missing_runs: int = 0
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the folder, under which `pchid reproduce` knows it."""
        return self.results.experiment.name

    @property
    def declared(self) -> bool:
        """Whether it is one of ours, and not a user's sweep."""
        return self.name in EXPERIMENTS

    def pictures(self) -> list[Path]:
        """What is drawn besides learning curves; the file named after the experiment holds these, if it has any."""
        drawn = sorted(self.results.folder.glob("*.png"))
        return [path for path in drawn if path.stem != self.name or not self.results.experiment.panels]


def collect(folder: Path) -> list[Found]:
    """All experiments of a folder: those of the paper in its order, then others by name."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}; name one by --results, or make it: pchid reproduce fig5")
    names = sorted(path.parent.name for path in folder.glob("*/verdict.json"))
    if not names:
        raise InputError(f"{folder} holds no results of experiments; make some first: pchid reproduce fig5")
    known = [name for name in EXPERIMENTS if name in names]
    return [read_experiment(folder / name) for name in [*known, *(name for name in names if name not in known)]]


def read_experiment(folder: Path) -> Found:
    """The experiment in a folder."""
    path = folder / "verdict.json"
    verdict = read_json(path)
    if not isinstance(verdict, dict):
        raise InputError(f"{path} is not a verdict of an experiment: it is not an object")
    for part, kind in PARTS.items():
        if not isinstance(verdict.get(part), kind):
            raise InputError(f"{path} is not a verdict of an experiment: '{part}' is {verdict.get(part)!r}")
    known = EXPERIMENTS.get(folder.name) or Experiment(folder.name, shows="", rows=(), seeds=0, minutes=0.0)
    experiment = replace(known, shows=verdict["shows"])  # as it was when it ran
    results = Results(experiment, folder, commands={str(k): str(v) for k, v in verdict["commands"].items()})
    for row in read_rows(folder / "runs.csv", (*COLUMNS, CLOCK)):
        results.summaries.setdefault(row["label"], []).append(row)
    for label, curve in _curves(read_rows(folder / "curves.csv", COLUMNS)):
        results.curves.setdefault(label, []).append(curve)
    versions = {str(name): str(version) for name, version in verdict["versions"].items()}
    verdicts = [_verdict(path, claim) for claim in verdict["claims"]]
    return Found(results, verdicts, verdict["quick"], verdict["missing_runs"], versions)


def read_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of a CSV file: a label, and numbers, with NaN for an empty cell."""
    reader = csv.DictReader(io.StringIO(read_text(path)))
    missing = [name for name in columns if name not in (reader.fieldnames or ())]
    if missing:
        raise InputError(f"{path} has no column '{missing[0]}'")
    rows = []
    for row in reader:
        try:
            numbers = {name: float(row[name] or math.nan) for name in columns if name != "label"}
            rows.append({"label": row["label"], **numbers})
        except ValueError as error:
            raise InputError(f"{path}, line {reader.line_num}: {error}") from None
    return rows


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from None


def read_text(path: Path) -> str:
    """What a file says."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def _curves(points: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, float]]]]:
    """The evaluations of each run, which has a label and a seed."""
    runs: dict[tuple[str, float], list[dict[str, float]]] = {}
    for point in points:
        runs.setdefault((point["label"], point["seed"]), []).append(point)
    for (label, _), curve in runs.items():
        yield label, curve


def _verdict(path: Path, claim: Any) -> Verdict:
    try:
        verdict = Verdict(**claim)
    except TypeError:
        raise InputError(f"{path} holds a claim that is none: {claim!r}") from None
    if verdict.verdict not in WORDS:
        raise InputError(f"{path}: a verdict is one of {', '.join(WORDS)}, not {verdict.verdict!r}")
    return verdict
