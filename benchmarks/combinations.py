"""Hindsight beside Stable-Baselines3 (Sec. 4.2 and 4.3): what it adds to PPO, DQN, SAC and TD3.

In: the list below. Out: `results/combinations/` and plots (see `declared.py`). `reach-*` is like Figure 5, `flip-*`
like Figure 1(a), `maze-*` and the reach runs of three strategies like Figure 6; `steps-*` compares the steps that SAC
and TD3 need until all evaluation episodes end at the goal.
Usage: python benchmarks/combinations.py [names...] [--workers 2] [--runs runs/combinations]
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

from declared import Experiments, main

REACH = ["FetchReach-v4", "--episodes", "100", "--eval-every", "10", "--eval-episodes", "20"]
TEN = ["--env.success_reward", "10"]
FLIP = ["BitFlip-v0", "--episodes", "300", "--eval-every", "25", "--final-episodes", "500"]
MAZE = ["GridWorld-v0", "--env.size", "8", "--policy.iterations", "10", "--episodes", "300", "--eval-every", "50"]
STEPS = ["FetchReach-v4", "--eval-every", "2", "--eval-episodes", "30", "--final-episodes", "30"]
SMALL = ["--sb3.policy_kwargs", "{'net_arch': [64, 64]}"]

EXPERIMENTS: Experiments = {
    "reach-ppo": ([*REACH, "--method", "ppo"], 5),
    "reach-ppo-10": ([*REACH, "--method", "ppo", *TEN], 5),
    "reach-ppo-her": ([*REACH, "--method", "ppo+her"], 5),
    "reach-pchid-1": ([*REACH, "--method", "hid"], 5),
    "reach-pchid-5": ([*REACH, "--method", "pchid"], 5),
    "reach-pchid-5-10": ([*REACH, "--method", "pchid", *TEN], 5),
    "reach-ppo-pchid": ([*REACH, "--method", "ppo+pchid"], 5),
    "reach-ppo-her-pchid": ([*REACH, "--method", "ppo+her+pchid"], 5),
    "reach-ppo-pchid-average": ([*REACH, "--method", "ppo+pchid", "--combine", "average"], 5),
    "reach-ppo-pchid-intrinsic": ([*REACH, "--method", "ppo+pchid", "--combine", "intrinsic", "--weight", "1"], 5),
    "flip-dqn-her": ([*FLIP, "--method", "dqn+her"], 10),
    **{
        f"flip-dqn-her-hid-{weight}": (
            [*FLIP, "--method", "dqn+her+hid", "--combine", "average", "--weight", weight],
            10,
        )
        for weight in ("0.01", "0.1", "0.5", "1")
    },
    "flip-hid": ([*FLIP, "--method", "hid"], 10),
    "maze-dqn-her": ([*MAZE, "--method", "dqn+her"], 5),
    "maze-joint": ([*MAZE, "--method", "dqn+her+pchid", "--combine", "joint"], 5),
    "maze-average": ([*MAZE, "--method", "dqn+her+pchid", "--combine", "average"], 5),
    "maze-intrinsic": ([*MAZE, "--method", "dqn+her+pchid", "--combine", "intrinsic", "--weight", "1"], 5),
    **{
        f"steps-{base}-her{module}": (
            [*STEPS, "--method", f"{base}+her{module.replace('-', '+')}", "--episodes", episodes, *SMALL],
            5,
        )
        for base in ("sac", "td3")
        for module, episodes in (("", "160"), ("-pchid", "40"))
    },
}
PLOTS = {
    "reach-combinations": [
        *("reach-ppo", "reach-ppo-10", "reach-ppo-her", "reach-pchid-1", "reach-pchid-5"),
        *("reach-ppo-pchid", "reach-ppo-her-pchid"),
    ],
    "reach-strategies": ["reach-ppo", "reach-ppo-pchid", "reach-ppo-pchid-average", "reach-ppo-pchid-intrinsic"],
    "flip-combinations": [name for name in EXPERIMENTS if name.startswith("flip")],
    "maze-strategies": [name for name in EXPERIMENTS if name.startswith("maze")],
}


def steps_to_success(runs: Path) -> None:
    """Write, for each `steps-*` run, the steps at its first evaluation without a failure."""
    found: dict[str, list[dict[str, int | None]]] = {}
    for name, (_, seeds) in EXPERIMENTS.items():
        for seed in range(seeds):
            metrics = runs / f"{name}-{seed}" / "metrics.csv"
            if not name.startswith("steps") or not metrics.exists():
                continue
            rows = list(csv.DictReader(metrics.open()))
            first = next((row for row in rows if float(row["final_success"]) == 1.0), None)
            env, test = (int(first["env_steps"]), int(first["test_steps"])) if first else (None, None)
            found.setdefault(name, []).append({"seed": seed, "env_steps": env, "test_steps": test})
    Path("results/combinations/steps_to_success.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    steps_to_success(main("combinations", EXPERIMENTS, PLOTS, axis="episodes"))
