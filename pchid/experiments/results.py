"""From finished runs to what is committed: `results/NAME/` with rows, curves, a table, plots and verdicts.

In: the directories of an experiment's runs. Out: runs.csv (one row a run), curves.csv (every evaluation), table.md,
NAME.png, verdict.json, and the runs that are kept. But for wall-clock they depend on the runs alone, not on the engine
or the order.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pchid.checkpoint import write_atomically
from pchid.errors import InputError
from pchid.experiments.claims import CompleteRows, Verdict, When, judge
from pchid.experiments.declaration import Experiment, Run
from pchid.experiments.plots import draw_panels
from pchid.experiments.statistics import Estimate, estimate
from pchid.runs import RunDirectory
from pchid.saving import in_half_precision

COUNTS = ("episodes", "env_steps", "test_steps")
MEASURES = ("final_success", "any_success", "mean_return", "steps_to_goal")
DETAILS = ("K", "test_accuracy", "test_recall")
CLOCK = "wall_seconds"
KEPT = 1_000_000
"""Bytes that the file of a policy may have before its weights are rounded to half precision."""


@dataclass
class Results:
    """What the finished runs of an experiment gave, by row."""

    experiment: Experiment
    folder: Path
    """Where they are written."""
    directories: dict[str, list[Path]] = field(default_factory=dict)
    summaries: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    curves: dict[str, list[list[dict[str, float]]]] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    missing: list[Run] = field(default_factory=list)
    study: dict[str, Any] = field(default_factory=dict)
    """What the experiment's own study found; written to study.json."""

    def values(self, label: str, measure: str, when: When = "end") -> list[float]:
        """A measure of a row, one value for each seed."""
        if when == "end":
            found = [summary[measure] for summary in self.summaries[label]]
            return [float("nan") if value is None else float(value) for value in found]
        if when == "training":
            return [float(np.mean([row[measure] for row in rows])) for rows in self.curves[label]]
        return [_at(rows, when, measure) for rows in self.curves[label]]

    def estimate(self, label: str, measure: str, when: When = "end") -> Estimate:
        """The same with its interval."""
        return estimate(self.values(label, measure, when))

    def complete(self) -> Results:
        """The same without the rows that lack runs; asked for one of those, it says so."""
        lacking = {run.label for run in self.missing}

        def kept(by_row: dict[str, Any]) -> CompleteRows:
            return CompleteRows({label: found for label, found in by_row.items() if label not in lacking})

        return replace(
            self, directories=kept(self.directories), summaries=kept(self.summaries), curves=kept(self.curves)
        )


def read_results(experiment: Experiment, runs: list[Run], folder: Path, out: Path) -> Results:
    """Read what is finished among the runs."""
    results = Results(experiment, out)
    for run in runs:
        directory = RunDirectory(run.directory(folder))
        if not directory.finished:
            results.missing.append(run)
            continue
        results.directories.setdefault(run.label, []).append(directory.path)
        results.summaries.setdefault(run.label, []).append(directory.read_summary())
        results.curves.setdefault(run.label, []).append(directory.read_metrics())
        results.commands[run.label] = run.command()
    return results


def write_results(results: Results, quick: bool = False) -> list[Verdict]:
    """Write everything; returns the verdicts."""
    experiment, out = results.experiment, results.folder
    out.mkdir(parents=True, exist_ok=True)
    if experiment.study is not None and not results.missing:
        experiment.study(results, quick)
    verdicts = [judge(claim, results, quick) for claim in experiment.claims]
    columns = ("label", "seed", *COUNTS, *MEASURES, *DETAILS)
    rows = [{"label": label, **summary} for label, summaries in results.summaries.items() for summary in summaries]
    _write_csv(out / "runs.csv", (*columns, CLOCK), rows)
    points = [
        {"label": label, "seed": summary["seed"], **{name: row.get(name) for name in columns[2:]}}
        for label, summaries in results.summaries.items()
        for summary, curve in zip(summaries, results.curves[label], strict=True)
        for row in curve
    ]
    _write_csv(out / "curves.csv", columns, points)
    write_atomically(out / "table.md", (table(results) + verdict_table(verdicts)).encode())
    keep_runs(results)
    if results.study:
        _write_json(out / "study.json", results.study)
    if results.curves and experiment.panels:
        draw_panels(results.curves, experiment.panels, experiment.shows, out / f"{experiment.name}.png")
    _write_json(
        out / "verdict.json",
        {
            "name": experiment.name,
            "shows": experiment.shows,
            "quick": quick,
            "missing_runs": len(results.missing),
            "claims": [asdict(verdict) for verdict in verdicts],
            "commands": results.commands,
            "versions": next((found[0]["versions"] for found in results.summaries.values()), {}),
        },
    )
    return verdicts


def keep_runs(results: Results) -> None:
    """Copy what makes a finished run, its settings and figures, and of some rows what acts, which must stay small."""
    experiment = results.experiment
    for label in experiment.policies if not experiment.lasting else results.directories:
        for run in map(RunDirectory, results.directories.get(label, [])):
            config = run.read_config()
            kept = kept_run(experiment, results.folder, label, config["seed"])
            kept.path.mkdir(parents=True, exist_ok=True)
            if label in experiment.policies:
                kept.policy.parent.mkdir(exist_ok=True)
                whole = run.policy.read_bytes()
                write_atomically(kept.policy, whole if len(whole) <= KEPT else in_half_precision(run.policy))
            kept.write_config(config)
            write_atomically(kept.metrics, run.metrics.read_bytes())
            kept.write_summary(run.read_summary())


def kept_run(experiment: Experiment, folder: Path, label: str, seed: int) -> RunDirectory:
    """Where the results in a folder keep a run, with what acts or without."""
    return RunDirectory(folder / ("policies" if label in experiment.policies else "figures") / f"{label}-{seed}")


def take_up(experiment: Experiment, runs: list[Run], folder: Path, out: Path) -> None:
    """Put finished runs whose results keep them into the folder of runs, if their settings are those of now."""
    for run in runs:
        kept, place = kept_run(experiment, out, run.label, run.seed), run.directory(folder)
        if not place.exists() and kept.exists and kept.finished and kept.read_config() == run.config():
            shutil.copytree(kept.path, place)


def table(results: Results) -> str:
    """The rows as Markdown: interquartile means with their intervals, both step counts."""
    heads = ["", "seeds", "final success", "any success", "return", "steps to goal", "env steps", "TEST steps", "min"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for label, summaries in results.summaries.items():
        cells = [label, str(len(summaries))]
        for measure in MEASURES:
            found = results.estimate(label, measure)
            form = ".3f" if "success" in measure else ".1f"
            cells.append(f"{found.iqm:{form}} [{found.low:{form}}, {found.high:{form}}]")
        cells += [f"{np.mean(results.values(label, name)):,.0f}" for name in COUNTS[1:]]
        cells.append(f"{np.mean(results.values(label, CLOCK)) / 60:.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    notes = {row.label: f" ({row.note})" for row in results.experiment.rows if row.note}
    commands = [f"- {label}{notes.get(label, '')}: `{command}`" for label, command in results.commands.items()]
    text = (
        "Interquartile mean over seeds with its 95 % stratified bootstrap interval, at the last evaluation:\n"
        "deterministic policy, fresh goals. Steps and minutes are means.\n\n"
    )
    return text + "\n".join([*lines, "", *commands]) + "\n"


def verdict_table(verdicts: list[Verdict]) -> str:
    """The claims and what became of them, as Markdown."""
    if not verdicts:
        return ""
    lines = [f"| {verdict.claim} | {verdict.verdict} | {verdict.why} |" for verdict in verdicts]
    return "\n".join(["", "| claim | verdict | figures |", "|---|---|---|", *lines]) + "\n"


def _at(rows: list[dict[str, float]], episodes: int, measure: str) -> float:
    for row in rows:
        if row["episodes"] == episodes:
            return row[measure]
    raise InputError(f"no evaluation after {episodes} episodes; choose --eval-every so that there is one")


def _write_csv(path: Path, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(name, row.get(name)) for name in columns})
    write_atomically(path, text.getvalue().encode())


def _cell(name: str, value: Any) -> Any:
    if value is None or value != value:
        return ""
    return int(value) if name in (*COUNTS, "K") else value


def _write_json(path: Path, value: dict[str, Any]) -> None:
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())
