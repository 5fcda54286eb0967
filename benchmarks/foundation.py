"""The README's experiments: every run by `pchid train`, several seeds, one table.

In: the list below. Out: `results/foundation/<name>.csv` (one row a seed, from each run's summary), `curves/` (the
metrics.csv of each seed), `table.md` (mean and 95 % interval over seeds) and the plots in `docs/images/`. A run that is
finished is not repeated; one that was stopped is resumed.
Usage: python benchmarks/foundation.py [names...] [--workers 2] [--runs runs/foundation]
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

from pchid.plots import plot_runs

OUT = Path("results/foundation")
EXPERIMENTS: dict[str, tuple[list[str], int]] = {
    # name: (arguments of `pchid train`, number of seeds)
    "bitflip-11-hid": (["BitFlip-v0", "--method", "hid", "--episodes", "300"], 5),
    "bitflip-11-id": (["BitFlip-v0", "--method", "id", "--episodes", "300"], 5),
    "bitflip-50-hid": (["BitFlip-v0", "--method", "hid", "--episodes", "3000", "--env.n_bits", "50"], 5),
    "bitflip-50-hid-plain": (
        ["BitFlip-v0", "--method", "hid", "--episodes", "3000", "--env.n_bits", "50", "--policy.agreement", "False"],
        2,
    ),
    "bitflip-50-hid-10-updates": (
        ["BitFlip-v0", "--method", "hid", "--episodes", "3000", "--env.n_bits", "50", "--updates-per-episode", "10"],
        1,
    ),
    "fetchreach-pchid": (["FetchReach-v4", "--method", "pchid", "--episodes", "10"], 10),
    "fetchreach-pchid-hold": (["FetchReach-v4", "--method", "pchid", "--episodes", "10", "--hold-goal"], 10),
    "fetchreach-id": (["FetchReach-v4", "--method", "id", "--episodes", "10"], 3),
    "hanoi-pchid": (["Hanoi-v0", "--method", "pchid"], 3),
    "hanoi-hid": (["Hanoi-v0", "--method", "hid"], 1),
    "gridworld-hid": (["GridWorld-v0", "--method", "hid", "--episodes", "500"], 2),
    "gridworld-pchid-ground-truth": (["GridWorld-v0", "--episodes", "500", "--test", "ground-truth"], 2),
    "gridworld-pchid-interaction": (["GridWorld-v0", "--episodes", "500", "--test", "interaction"], 3),
    "gridworld-pchid-rnd": (["GridWorld-v0", "--episodes", "500", "--test", "rnd"], 2),
}
PLOTS = {
    "fetchreach": ["fetchreach-pchid"],
    "hanoi-curves": ["hanoi-pchid", "hanoi-hid"],
    "gridworld-curves": [
        "gridworld-hid",
        *(f"gridworld-pchid-{test}" for test in ("ground-truth", "interaction", "rnd")),
    ],
}
COLUMNS = (
    *("seed", "episodes", "env_steps", "test_steps", "final_success", "any_success", "mean_return", "steps_to_goal"),
    *("K", "test_accuracy", "test_recall", "wall_seconds"),
)


def run(name: str, seed: int, folder: Path) -> Path:
    """One run, from the start or from where it was stopped."""
    out = folder / f"{name}-{seed}"
    if not (out / "summary.json").exists():
        words = [sys.executable, "-m", "pchid.cli", "train", *EXPERIMENTS[name][0], "--seed", str(seed)]
        words += ["--out", str(out), "--quiet"] + (["--resume"] if (out / "config.json").exists() else [])
        subprocess.run(words, check=True)
    print(f"{name} seed {seed}: {json.loads((out / 'summary.json').read_text())['final_success']:.3f}", flush=True)
    return out


def collect(name: str, outs: list[Path]) -> str:
    """Keep what the table and the plots need; returns the table's row."""
    summaries = [json.loads((out / "summary.json").read_text()) for out in outs]
    with (OUT / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(summaries)
    (OUT / "curves").mkdir(exist_ok=True)
    for seed, out in enumerate(outs):
        shutil.copy(out / "metrics.csv", OUT / "curves" / f"{name}-{seed}.csv")
    command = "`pchid train " + " ".join(EXPERIMENTS[name][0]) + "`"
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
    cells += [str(max(summary["K"] for summary in summaries))]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Run what was asked for, then write the table of all that is finished."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(EXPERIMENTS)}")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--runs", type=Path, default=Path("runs/foundation"), help="where the runs live")
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    jobs = [(name, seed) for name in arguments.names or EXPERIMENTS for seed in range(EXPERIMENTS[name][1])]
    with ThreadPoolExecutor(arguments.workers) as pool:
        list(pool.map(lambda job: run(*job, arguments.runs), jobs))
    heads = [
        "name",
        "command",
        "seeds",
        "final success",
        "return",
        "env steps",
        "TEST steps",
        "worst seed",
        "K reached",
    ]
    rows = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    finished = {}
    for name, (_, seeds) in EXPERIMENTS.items():
        outs = [arguments.runs / f"{name}-{seed}" for seed in range(seeds)]
        if all((out / "summary.json").exists() for out in outs):
            finished[name] = outs
            rows.append(collect(name, outs))
    for picture, names in PLOTS.items():
        if all(name in finished for name in names):
            plot_runs([out for name in names for out in finished[name]], Path(f"docs/images/{picture}.png"))
    text = "Mean over seeds ± half of the 95 % t-interval; success and return on the last evaluation.\n\n"
    (OUT / "table.md").write_text(text + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
