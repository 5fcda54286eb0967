"""How long until FetchReach is solved: `pchid train FetchReach-v4 --episodes 10` against SB3's SAC with HER.

In: nothing. Out: a table, and `results/time_to_goal.json`. Both are timed in one run, seed by seed, on one thread.
Solved means that all 20 evaluation episodes end at their goal, the same episodes for all; the clock stops while a
policy is evaluated (after every episode, or every five of SAC). Usage: python benchmarks/time_to_goal.py [--seeds 5]
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from scipy import stats
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback

import pchid.envs
from pchid.config import new_config
from pchid.envs.make import make_probe
from pchid.evaluation import evaluate
from pchid.training import make_algorithm, predictor

TASK = "FetchReach-v4"
HORIZON = 50
EVALUATION_EPISODES = 20
EVALUATION_SEED = 1_000_003
GIVE_UP = 20_000  # environment steps


class StopWhenSolved(BaseCallback):
    """Evaluates every so many steps with the clock stopped, and ends the training at the first perfect score."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = every
        self.probe = make_probe(TASK, EVALUATION_EPISODES)
        self.result: dict[str, Any] = {"solved": False}

    def _on_training_start(self) -> None:
        self.began = time.perf_counter()

    def _on_rollout_start(self) -> None:
        # Between two rollouts: what was collected has been learned from, here and there.
        steps = self.model.num_timesteps
        if steps == 0 or steps % self.every or self.result["solved"]:
            return
        stopped = time.perf_counter()
        measures = evaluate(predictor(self.model), self.probe, EVALUATION_EPISODES, EVALUATION_SEED).measures()
        if measures.final_success == 1.0:
            self.result = {"solved": True, "seconds": stopped - self.began, "env_steps": steps}
            self.result |= {"mean_return": measures.mean_return}
        self.began += time.perf_counter() - stopped

    def _on_step(self) -> bool:
        return not self.result["solved"]


def by_pchid(seed: int) -> dict[str, Any]:
    """The same as the command line: its settings for this task."""
    given = {"env": TASK, "episodes": 10, "seed": seed, "env_options": {}, "policy_options": {}}
    algorithm = make_algorithm(new_config(given))
    watch = StopWhenSolved(HORIZON)
    algorithm.learn(10 * HORIZON + 1, watch)  # one step more, so that what the last episode taught is looked at
    return {**watch.result, "test_steps": algorithm.learner.test.steps}


def by_sac(seed: int, layers: list[int]) -> dict[str, Any]:
    """SAC+HER of Stable-Baselines3, with one gradient step for each environment step."""
    model = SAC(
        "MultiInputPolicy",
        gym.make(TASK),
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
        learning_starts=1_000,
        learning_rate=1e-3,
        gamma=0.95,
        batch_size=256,
        policy_kwargs={"net_arch": layers},
        seed=seed,
        device="cpu",
    )
    watch = StopWhenSolved(5 * HORIZON)
    model.learn(GIVE_UP, watch)
    return {**watch.result, "test_steps": 0}


METHODS: dict[str, Callable[[int], dict[str, Any]]] = {
    "pchid": by_pchid,
    "sac+her, 3x256": lambda seed: by_sac(seed, [256, 256, 256]),
    "sac+her, 2x64": lambda seed: by_sac(seed, [64, 64]),
}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and 95 % interval (Student's t) over the seeds that were solved."""
    solved = [row for row in rows if row["solved"]]
    result: dict[str, Any] = {"seeds": len(rows), "solved": len(solved)}
    for name in ("seconds", "env_steps", "test_steps", "mean_return"):
        values = np.array([row[name] for row in solved])
        half = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1) if len(values) > 1 else float("nan")
        result[name] = {"mean": round(float(values.mean()), 3), "half_interval": round(float(half), 3)}
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=["pchid", "sac+her, 3x256"], choices=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path("results/time_to_goal.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    pchid.envs.register_robotics()
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in options.methods}
    for seed in range(options.seeds):
        for name in options.methods:
            runs[name].append({"seed": seed, **METHODS[name](seed)})
            print(name, runs[name][-1], flush=True)
    means = {name: summary(rows) for name, rows in runs.items()}
    ratios = {
        name: {of: round(means[name][of]["mean"] / means["pchid"][of]["mean"], 1) for of in ("seconds", "env_steps")}
        for name in options.methods
        if name != "pchid"
    }
    for name, ratio in ratios.items():
        print(f"{name}: {ratio['seconds']} x the seconds and {ratio['env_steps']} x the environment steps of pchid")
    result = {"command": "python " + shlex.join(sys.argv), "ratios_to_pchid": ratios, "means": means, "runs": runs}
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
