"""Speed of the value iteration network, as ratios to the same network in plain torch.

In: nothing. Out: a table, and `results/vin.json`. The two sides take turns in the same process, on the same pairs, and
a ratio is that of their median times: of processor time on one thread, which other programs disturb least, and of time
that passes on two. Usage: python benchmarks/vin.py
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from pchid.envs.grid_world import GridWorldVectorEnv
from pchid.networks import planning
from pchid.networks.planning import EVERYTHING, ValueIterationNetwork

ROUNDS = 25
BATCH, SIZE = 128, 16
Run = Callable[[], Any]


def pairs(count: int, sharing: int = 1) -> tuple[Tensor, Tensor]:
    """Maps with agents, and goals; each map and goal is shared by `sharing` agents."""
    seen, _ = GridWorldVectorEnv(count, size=SIZE).reset(seed=0)
    observation, goal = torch.as_tensor(seen["observation"]), torch.as_tensor(seen["desired_goal"])
    owner = torch.arange(count) // sharing
    return torch.stack([observation[owner, 0], observation[:, 1]], dim=1), goal[owner]


def forward(function: Callable[..., Tensor], *inputs: Tensor) -> Run:
    """On maps that are new each time: what a network remembers of them is forgotten first."""
    network: Any = getattr(function, "__self__", function)

    def run() -> None:
        network.forget()
        with torch.no_grad():
            function(*inputs)

    return run


def forward_and_backward(function: Callable[..., Tensor], *inputs: Tensor) -> Run:
    return lambda: function(*inputs).square().mean().backward()


def patched(name: str, replacement: Callable[..., Any], run: Run) -> Run:
    """The same with another function in `pchid.networks.planning`."""

    def with_patch() -> None:
        with mock.patch.object(planning, name, replacement):
            run()

    return with_patch


def in_turns(slow: Run, fast: Run) -> tuple[float, float]:
    """Median milliseconds of each."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS + 1):
        for run, taken in zip((slow, fast), times, strict=True):
            start = clock()
            run()
            taken.append(1e3 * (clock() - start))
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])  # the first round compiles


def main() -> None:
    network = ValueIterationNetwork(8, hidden_channels=150, q_channels=10, iterations=20, shifts=True)
    rows = []

    def compare(what: str, against: str, slow: Run, fast: Run) -> None:
        before, after = in_turns(slow, fast)
        row = {
            "what": what,
            "against": against,
            "threads": torch.get_num_threads(),
            "ratio": round(before / after, 2),
            "milliseconds": round(after, 2),
        }
        rows.append(row)
        print(f"{what:42} {row['threads']} threads {after:8.2f} ms {before / after:7.1f} x {against}", flush=True)

    kinds = {"forward": forward, "forward and backward": forward_and_backward}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for name, kind in kinds.items():
            batch = pairs(BATCH)
            compare(name, "plain torch", kind(network.forward_reference, *batch), kind(network, *batch))
    torch.set_num_threads(1)
    for name, kind in kinds.items():
        batch = pairs(BATCH)
        without_numba = patched("compiled_kernel", lambda: None, kind(network, *batch))
        compare(f"{name}, without numba", "plain torch", kind(network.forward_reference, *batch), without_numba)
    one = pairs(1)
    compare("forward of 1 pair", "plain torch", forward(network.forward_reference, *one), forward(network, *one))
    for sharing in (1, 2, 4, 8):
        for name, kind in kinds.items():
            run = kind(network, *pairs(BATCH, sharing))
            each = patched("shared_maps", lambda *_: (EVERYTHING, EVERYTHING), run)
            compare(f"{name}, {sharing} of a map and goal", "each alone", each, run)
    observation, goal = pairs(4 * SIZE * SIZE, SIZE * SIZE)
    maps, goals = observation[:: SIZE * SIZE, 0], goal[:: SIZE * SIZE]
    every_cell = forward(network.forward_reference, observation, goal)
    compare("table of 4 maps", "plain torch, a pair a cell", every_cell, forward(network.table, maps, goals))
    Path("results").mkdir(exist_ok=True)
    Path("results/vin.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
