"""What the experiments share: every run is a `pchid train`, with several seeds, and gives one row of a table.

In: declared experiments. Out: `results/<set>/<name>.csv` (one row a seed, from each run's summary), `curves/` (the
metrics.csv of each seed), `table.md` (mean and 95 % interval over seeds) and the plots in `docs/images/`. A run that is
finished is not repeated; one that was stopped is resumed.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from scipy import stats

from pchid.experiments.plots import plot_runs

Experiments = dict[str, tuple[list[str], int]]
"""By name: the arguments of `pchid train`, and the number of seeds."""
COLUMNS = (
    *("seed", "episodes", "env_steps", "test_steps", "final_success", "any_success", "mean_return", "steps_to_goal"),
    *("K", "test_accuracy", "test_recall", "wall_seconds"),
)


def run(name: str, arguments: list[str], seed: int, folder: Path) -> Path:
    """One run, from the start or from where it was stopped."""
    out = folder / f"{name}-{seed}"
    if not (out / "summary.json").exists():
        words = [sys.executable, "-m", "pchid.cli", "train", *arguments, "--seed", str(seed)]
        words += ["--out", str(out), "--quiet"] + (["--resume"] if (out / "config.json").exists() else [])
        subprocess.run(words, check=True)
    print(f"{name} seed {seed}: {json.loads((out / 'summary.json').read_text())['final_success']:.3f}", flush=True)
    return out


def collect(name: str, arguments: list[str], outs: list[Path], results: Path) -> str:
    """Keep what the table and the plots need; returns the table's row."""
    summaries = [json.loads((out / "summary.json").read_text()) for out in outs]
    with (results / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(summaries)
    (results / "curves").mkdir(exist_ok=True)
    for seed, out in enumerate(outs):
        shutil.copy(out / "metrics.csv", results / "curves" / f"{name}-{seed}.csv")
    command = "`pchid train " + " ".join(arguments) + "`"
    cells = [name, command, str(len(outs))]
    for column, form in (
        ("final_success", ".3f"),
        ("mean_return", ".2f"),
        ("env_steps", ",.0f"),
        ("test_steps", ",.0f"),
    ):
        values = np.array([summary[column] for summary in summaries], float)
        cell = f"{values.mean():{form}}"
        if column in ("final_success", "mean_return") and len(values) > 1:
            half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
            cell += f" ± {half:{form}}"
        cells.append(cell)
    cells += [f"{min(summary['final_success'] for summary in summaries):.3f}"]
    reached = [summary["K"] for summary in summaries if summary["K"] is not None]
    cells += [str(max(reached)) if reached else "–"]
    return "| " + " | ".join(cells) + " |"


def main(name: str, experiments: Experiments, plots: dict[str, list[str]], axis: str = "env_steps") -> Path:
    """Run what was asked for, then write the table of all that is finished, and plots; returns where the runs are."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(experiments)}")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--runs", type=Path, default=Path("runs") / name, help="where the runs live")
    arguments = parser.parse_args()
    results = Path("results") / name
    results.mkdir(parents=True, exist_ok=True)
    chosen = arguments.names or list(experiments)
    # Seed by seed, so that every experiment has some results early.
    jobs = [(n, s) for s in range(max(experiments[n][1] for n in chosen)) for n in chosen if s < experiments[n][1]]
    with ThreadPoolExecutor(arguments.workers) as pool:
        list(pool.map(lambda job: run(job[0], experiments[job[0]][0], job[1], arguments.runs), jobs))
    heads = [
        *("name", "command", "seeds", "final success", "return", "env steps", "TEST steps", "worst seed", "K reached"),
    ]
    rows = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    finished = {}
    for experiment, (words, seeds) in experiments.items():
        outs = [arguments.runs / f"{experiment}-{seed}" for seed in range(seeds)]
        if all((out / "summary.json").exists() for out in outs):
            finished[experiment] = outs
            rows.append(collect(experiment, words, outs, results))
    for picture, names in plots.items():
        if all(experiment in finished for experiment in names):
            outs = [out for experiment in names for out in finished[experiment]]
            plot_runs(outs, Path(f"docs/images/{picture}.png"), axis)
    text = "Mean over seeds ± half of the 95 % t-interval; success and return on the last evaluation.\n\n"
    (results / "table.md").write_text(text + "\n".join(rows) + "\n")
    return arguments.runs
