"""How much faster two workers are than one: the same short runs by the LocalEngine, as a ratio of times.

In: nothing. Out: a line for each round, and `results/throughput.json`. Each run is a process of its own that imports
torch, trains for some seconds and writes its files, as in an experiment. One and two workers take turns, each time in
fresh directories, so that what else the machine does hits both alike; two cores to itself are what it needs.
Usage: python benchmarks/throughput.py [--runs 8] [--episodes 300] [--rounds 2]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import tempfile
import time
from pathlib import Path

from pchid.experiments.declaration import Run
from pchid.experiments.engines import Job, LocalEngine, State
from pchid.runs import versions

WANTED = 0.6
"""The ratio that two workers should stay below; half the time would be 0.5."""


def jobs_in(folder: Path, runs: int, episodes: int) -> list[Job]:
    chosen = [Run("throughput", "BitFlip-v0", "hid", {"episodes": episodes}, seed) for seed in range(runs)]
    return [Job(f"seed {run.seed}", tuple(run.words()), run.directory(folder)) for run in chosen]


def succeed(job: Job, state: State) -> None:
    if state in ("again", "failed"):
        raise RuntimeError(f"{job.label}: {state}: {job.log.read_text()}")


def seconds(workers: int, runs: int, episodes: int) -> float:
    """The time for all runs."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        LocalEngine(workers).run(jobs_in(Path(folder), runs, episodes), succeed)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--episodes", type=int, default=300, help="of each run")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/throughput.json"))
    options = parser.parse_args()
    times: dict[int, list[float]] = {1: [], 2: []}
    for number in range(options.rounds):
        for workers in (1, 2):
            times[workers].append(round(seconds(workers, options.runs, options.episodes), 2))
        one, two = (taken[number] for taken in times.values())
        print(f"{options.runs} runs: {one:.1f} s by one worker, {two:.1f} s by two, ratio {two / one:.3f}", flush=True)
    ratio = round(sum(times[2]) / sum(times[1]), 3)
    print(f"ratio {ratio}, wanted at most {WANTED}")
    result = {
        "command": "python " + shlex.join(sys.argv),
        "runs": options.runs,
        "episodes": options.episodes,
        "seconds_by_one_worker": times[1],
        "seconds_by_two_workers": times[2],
        "ratio": ratio,
        "wanted": WANTED,
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "versions": versions(),
    }
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
