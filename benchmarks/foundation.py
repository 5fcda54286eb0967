"""The README's experiments: PCHID alone, on every domain.

In: the list below. Out: `results/foundation/` and plots (see `declared.py`).
Usage: python benchmarks/foundation.py [names...] [--workers 2] [--runs runs/foundation]
"""

from __future__ import annotations

from declared import Experiments, main

# The plain network and slow growth of K: what was recommended before `pchid reproduce gridworld`.
PLAIN_VIN = [
    "--policy.symmetric",
    "False",
    "--policy.hidden_channels",
    "20",
    "--policy.iterations",
    "20",
    "--policy.averaging",
    "0",
    "--learning-rate",
    "1e-3",
    "--updates-per-episode",
    "5",
    "--exploration",
    "0.3",
    "--convergence.pairs",
    "32",
    "--convergence.patience",
    "50",
]
GRIDWORLD = ["GridWorld-v0", "--episodes", "500", *PLAIN_VIN]

EXPERIMENTS: Experiments = {
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
    "pointmaze-pchid": (["PointMaze_UMaze-v3", "--method", "pchid"], 3),
    "hanoi-pchid": (["Hanoi-v0", "--method", "pchid"], 3),
    "hanoi-hid": (["Hanoi-v0", "--method", "hid"], 1),
    "gridworld-hid": ([*GRIDWORLD, "--method", "hid"], 2),
    "gridworld-pchid-ground-truth": ([*GRIDWORLD, "--K-max", "5", "--test", "ground-truth"], 2),
    "gridworld-pchid-interaction": ([*GRIDWORLD, "--K-max", "5", "--test", "interaction"], 3),
    "gridworld-pchid-rnd": ([*GRIDWORLD, "--K-max", "5", "--test", "rnd"], 2),
}
PLOTS = {
    "fetchreach": ["fetchreach-pchid"],
    "pointmaze-curves": ["pointmaze-pchid"],
    "hanoi-curves": ["hanoi-pchid", "hanoi-hid"],
    "gridworld-curves": [
        "gridworld-hid",
        *(f"gridworld-pchid-{test}" for test in ("ground-truth", "interaction", "rnd")),
    ],
}

if __name__ == "__main__":
    main("foundation", EXPERIMENTS, PLOTS)
