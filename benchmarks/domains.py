"""Speed of the array domains, as ratios to Gymnasium's SyncVectorEnv over the same single environments.

In: nothing. Out: a table, and `results/domains.json`. Both sides run in the same process, one after the other, with the
same random actions. Usage: python benchmarks/domains.py
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from pchid import make_vector

SECONDS = 1.0
SLOTS = (1, 64, 1024)


def steps_per_second(env: Any) -> float:
    """Environment steps a second, autoresets included, over about `SECONDS`."""
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(env.single_action_space.n, size=(64, env.num_envs))
    rounds, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < SECONDS:
        env.step(actions[rounds % 64])
        rounds += 1
    return rounds * env.num_envs / elapsed


def main() -> None:
    rows = []
    for env_id in ("BitFlip-v0", "GridWorld-v0", "Hanoi-v0"):
        for slots in SLOTS:
            single = [lambda env_id=env_id: gym.make(env_id, disable_env_checker=True)] * slots
            reference = steps_per_second(SyncVectorEnv(single, autoreset_mode=AutoresetMode.SAME_STEP))
            ours = steps_per_second(make_vector(env_id, slots))
            rows.append(
                {"env": env_id, "slots": slots, "ratio": round(ours / reference, 2), "steps_per_second": int(ours)}
            )
            print(
                f"{env_id:14} {slots:5} slots  {ours:12,.0f} steps/s  {ours / reference:7.1f} x SyncVectorEnv",
                flush=True,
            )
    Path("results").mkdir(exist_ok=True)
    Path("results/domains.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
