"""How long a whole training takes, as a ratio to what MuJoCo alone would take for all the steps that it simulated.

In: finished runs of the Fetch tasks by PCHID or PEHID, made on this machine with its cores to themselves. Out: a line
for each, and `results/whole_run.json`. The limit is that of benchmarks/simulator.py (`mj_step` on all cores, random
actions), measured here and now: how fast MuJoCo is differs between machines by more than anything else, and from hour
to hour. Steps of evaluations and of the continuation measure are simulated too, and count.
Usage: pchid train FetchSlide-v4 --method pehid --steps 1250000 --threads 2 --out runs/slide
       python benchmarks/whole_run.py runs/slide [--rounds 20]
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

import mujoco
from simulator import race, raw

from pchid.envs.parallel import Threads
from pchid.runs import RunDirectory

HORIZON = 50


def simulated(run: RunDirectory) -> dict[str, int]:
    """All steps of the simulator in a finished run, by what they were for."""
    config, rows = run.read_config(), run.read_metrics()
    evaluated = config["eval_episodes"] * (len(rows) - 1) + config["final_episodes"]
    last = rows[-1]
    counts = {name: int(last[f"{name}_steps"]) for name in ("env", "test", "diagnostic")}
    return {**counts, "evaluation": HORIZON * evaluated}


def measured(folder: Path, rounds: int) -> dict[str, Any]:
    """What a run took, and what MuJoCo alone would take."""
    run = RunDirectory(folder)
    config, summary = run.read_config(), run.read_summary()
    steps = simulated(run)
    threads = Threads()
    speed = statistics.median(race({"limit": raw(config["env"], config["num_envs"], threads)}, rounds)["limit"])
    minutes, alone = summary["wall_seconds"] / 60, sum(steps.values()) / speed / 60
    return {
        "env": config["env"],
        "method": config["method"],
        "seed": config["seed"],
        "test_budget": config["test_budget"],
        "threads": config["threads"],
        "simulated_steps": steps,
        "minutes": round(minutes, 1),
        "limit_steps_per_second": round(speed),
        "limit_minutes": round(alone, 1),
        "ratio": round(minutes / alone, 2),
        "any_success": summary["any_success"],
        "final_success": summary["final_success"],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("results/whole_run.json"))
    options = parser.parse_args()
    found = []
    for folder in options.runs:
        row = measured(folder, options.rounds)
        found.append(row)
        print(
            f"{row['env']} {row['method']} {sum(row['simulated_steps'].values()):,} simulated steps in "
            f"{row['minutes']} minutes, {row['ratio']} x MuJoCo alone",
            flush=True,
        )
    result = {
        "command": "python " + shlex.join(sys.argv),
        "cores": Threads().count,
        "machine": platform.machine(),
        "mujoco": mujoco.__version__,
        "runs": found,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
