"""Run experiments and write their results: `pchid reproduce` and `pchid sweep`.

In: experiments, an engine, and folders for runs and results. Out: `results/NAME/`. Finished runs are never repeated,
stopped ones go on; what failed is named at the end, with its log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from pchid.errors import at_least
from pchid.experiments.claims import Verdict
from pchid.experiments.declaration import Experiment
from pchid.experiments.engines import Engine, Job
from pchid.experiments.progress import RunsDisplay
from pchid.experiments.results import Results, read_results, table, take_up, write_results


@dataclass(frozen=True)
class Plan:
    """How experiments are carried out."""

    engine: Engine
    runs: Path
    out: Path
    seeds: int | None = None
    """Instead of the number that each experiment declares."""
    quick: bool = False
    resume: bool = False
    """Count runs that the results keep as done, also where their directories are not here."""
    so_far: bool = False
    """Run nothing, and write what the finished runs show."""


def reproduce(experiments: Sequence[Experiment], plan: Plan, console: Console) -> list[Job]:
    """Carry out the experiments one after the other; returns the jobs that failed."""
    at_least(1, **{"--seeds": plan.seeds})
    for experiment in experiments:  # what is wrong with the last one should be known before the first one runs
        for run in experiment.runs(1, plan.quick):
            run.config()
    failed: list[Job] = []
    for experiment in experiments:
        failed += _carry_out(experiment, plan, console)
    failed = list({job.directory: job for job in failed}.values())  # two figures may need the same run
    for job in failed:
        what = escape(f"{job.label}: {_last_line(job.log)} (log: {job.log})")
        console.print(f"[red]failed[/]: {what}", highlight=False, soft_wrap=True)
    return failed


def _carry_out(experiment: Experiment, plan: Plan, console: Console) -> list[Job]:
    runs = experiment.runs(plan.seeds, plan.quick)
    folder = plan.runs.absolute()
    if plan.resume:
        take_up(experiment, runs, folder, plan.out / experiment.name)
    jobs = {
        run.directory(folder): Job(f"{run.label}, seed {run.seed}", tuple(run.words()), run.directory(folder))
        for run in runs
    }
    left = [] if plan.so_far else [job for job in jobs.values() if not job.finished]
    with RunsDisplay(experiment.name, list(jobs.values()), plan.engine.workers, console) as display:
        plan.engine.run(left, display.report)
    results = read_results(experiment, runs, folder, plan.out / experiment.name)
    verdicts = write_results(results, plan.quick)
    show(results, verdicts, console)
    return [job for job in left if not job.finished]


def show(results: Results, verdicts: list[Verdict], console: Console) -> None:
    """The table and the verdicts, on the terminal."""
    console.print(
        f"\n[bold]{results.experiment.name}[/]: {escape(results.experiment.shows)}", highlight=False, soft_wrap=True
    )
    lines = [line for line in table(results).splitlines() if line.startswith("|")]
    if len(lines) > 2:
        heads, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:]))
        grid = Table(*(Column(head, overflow="fold") for head in heads), box=None, header_style="bold")
        for row in rows:
            grid.add_row(*map(escape, row))
        console.print(grid)
    colours = {"reproduced": "green", "better": "green", "not reproduced": "red", "not judged": "yellow"}
    for verdict in verdicts:
        word = f"[{colours[verdict.verdict]}]{verdict.verdict}[/]"
        console.print(f"  {word}: {escape(f'{verdict.claim} ({verdict.why})')}", highlight=False, soft_wrap=True)
    console.print(f"  written to {escape(str(results.folder))}", highlight=False, soft_wrap=True)


def listing(experiments: Sequence[Experiment]) -> Table:
    """What each experiment shows, what is claimed, and how long it takes."""
    heads = ("name", "shows, and what is claimed", "seeds", "time, 2 cores")
    grid = Table(*(Column(head, overflow="fold") for head in heads), header_style="bold")
    for experiment in experiments:
        claims = "".join(f"\n- {claim.says}" for claim in experiment.claims)
        hours = experiment.minutes / 60
        time = f"{hours:.0f} h" if hours >= 2 else f"{experiment.minutes:.0f} min"
        grid.add_row(experiment.name, f"{experiment.shows}{claims}", str(experiment.seeds), time)
    return grid


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else "it left no message"
