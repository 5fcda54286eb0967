"""Speed of the Fetch simulator, as ratios to raw MuJoCo, EnvPool and Gymnasium's vector environments, in one run.

In: nothing. Out: a table, and `results/simulator.json`. The limit is MuJoCo alone: the same robots under the same
controls, `mj_step` on all cores and nothing else, nothing read or reset. All sides play the same random actions and
take turns, round by round, so that what else the machine does hits all alike; a ratio is the median over the rounds.
Usage: python benchmarks/simulator.py [--tasks FetchPush-v4 ...] [--rounds 5]
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gymnasium as gym
import gymnasium_robotics
import mujoco
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from pchid.envs.fetch import FetchVectorEnv
from pchid.envs.make import restorable
from pchid.envs.parallel import Threads
from pchid.envs.single import SingleEnvsVectorEnv
from pchid.policies import GoalPolicy
from pchid.solvability import Probe

TASKS = [f"Fetch{name}-v4" for name in ("Reach", "Push", "Slide", "PickAndPlace")]
SLOTS = (1, 16, 64)
STEPS = 25  # half an episode; every side starts a round where its last one ended
PAIRS = 1500
ALONE = 60  # pairs that are tested one at a time, which is slow
LONGEST = 5

Round = Callable[[], int]
"""Plays a while; returns the environment steps that it took."""


def actions_for(slots: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (STEPS, slots, 4)).astype(np.float32)


def playing(env: Any) -> Round:
    """A round of a vector environment, resets included."""
    env.reset(seed=0) if not hasattr(env, "recv") else env.reset()
    slots = getattr(env, "num_envs", None) or env.config["num_envs"]
    actions = actions_for(slots)

    def play() -> int:
        for row in actions:
            env.step(row)
        return STEPS * slots

    return play


def raw(task: str, slots: int, threads: Threads) -> Round:
    """The limit: each thread replays the controls of its robots, one step of each in turn, and does nothing else."""
    env = FetchVectorEnv(task, slots, threads=1)
    env.reset(seed=0)
    robots, model, size = env._robots, env._model, env._state_size
    start = np.empty((slots, size))
    for robot, row in zip(robots, start, strict=True):
        mujoco.mj_getState(model, robot.data, row, mujoco.mjtState.mjSTATE_INTEGRATION)
    halves: list[list[Any]] = [[], []]  # of an episode: later steps have more contacts, and cost more
    for half in halves:
        for row in actions_for(slots):
            env.step(row)
            half.append([(r.mocap_pos.copy(), r.mocap_quat.copy(), r.ctrl.copy()) for r in robots])
        env.elapsed[:] = 0  # no reset in between
    played = 0

    def replay(share: int) -> None:
        mine = range(share, slots, threads.count)
        if played % 2 == 0:
            for index in mine:
                mujoco.mj_setState(model, robots[index].data, start[index], mujoco.mjtState.mjSTATE_INTEGRATION)
        for row in halves[played % 2]:
            for index in mine:
                robot = robots[index]
                robot.mocap_pos[:], robot.mocap_quat[:], robot.ctrl[:] = row[index]
                mujoco.mj_step(model, robot.data, nstep=robot.substeps)
                if robot.blocked_fingers is not None:
                    robot.blocked_fingers[:] = 0.0

    def play() -> int:
        nonlocal played
        threads.map(replay, range(threads.count))
        played += 1
        return STEPS * slots

    return play


def envpool_version() -> str | None:
    try:
        return version("envpool")
    except PackageNotFoundError:
        return None


def contenders(task: str, slots: int) -> dict[str, Round]:
    """Everything that is timed for one task and number of slots."""
    threads = Threads()
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    make = functools.partial(gym.make, task, disable_env_checker=True)
    found = {
        "limit": raw(task, slots, threads),
        "pchid": playing(FetchVectorEnv(task, slots)),
        "SyncVectorEnv": playing(SyncVectorEnv([make] * slots, **same_step)),
        "AsyncVectorEnv": playing(AsyncVectorEnv([make] * slots, **same_step)),
    }
    if envpool_version():
        import envpool

        workers = {"num_threads": min(threads.count, slots)}
        found["EnvPool"] = playing(envpool.make(task, env_type="gymnasium", num_envs=slots, **workers))
    return found


def race(sides: dict[str, Round], rounds: int) -> dict[str, list[float]]:
    """Steps a second of every side in every round, after a round to warm up."""
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, play in sides.items():
            began = time.perf_counter()
            steps = play()
            if number:
                speeds[name].append(steps / (time.perf_counter() - began))
    return speeds


def testing(task: str) -> tuple[dict[str, Round], dict[str, float]]:
    """TEST in a batch against one pair at a time, on pieces of random episodes; also the simulator alone.

    The second result is the number of steps that a pair takes on average, for each side.
    """
    env = FetchVectorEnv(task, 64)
    observations, _ = env.reset(seed=0)
    states, achieved = [env.get_state()], [observations["achieved_goal"]]
    for _ in range(STEPS):
        observations = env.step(env.action_space.sample())[0]
        states.append(env.get_state())
        achieved.append(observations["achieved_goal"])
    rng = np.random.default_rng(0)
    t, slot, k = (
        rng.integers(STEPS - LONGEST, size=PAIRS),
        rng.integers(64, size=PAIRS),
        rng.integers(1, LONGEST + 1, PAIRS),
    )
    start = np.stack(states)[t, slot]
    goal = np.stack(achieved)[t + k, slot] + rng.uniform(-0.1, 0.1, (PAIRS, 3))  # near, and mostly not reached
    policy = GoalPolicy(env.single_observation_space, env.single_action_space, lambda _: 1e-3)
    policy.normalise_by({"observation": states[0][:, -env._observation.shape[1] :], "desired_goal": goal})
    probes = {
        "batched": Probe(FetchVectorEnv(task, 64, autoreset_mode=AutoresetMode.DISABLED)),
        "one at a time": Probe(FetchVectorEnv(task, 1, autoreset_mode=AutoresetMode.DISABLED)),
        "gymnasium-robotics, one at a time": Probe(
            SingleEnvsVectorEnv([lambda: restorable(gym.make(task))], autoreset_mode=AutoresetMode.DISABLED)
        ),
    }
    # The wrapper saves other things than the simulator, so its states are made by itself.
    single = probes["gymnasium-robotics, one at a time"].simulator
    single.reset(seed=0)
    wrapped = np.repeat(single.get_state(), ALONE, axis=0)
    tried = {"batched": start, "one at a time": start[:ALONE], "gymnasium-robotics, one at a time": wrapped}

    def solve(name: str) -> int:
        count = len(tried[name])
        return probes[name].solves(policy, tried[name], goal[:count], k[:count])[1]

    sides: dict[str, Round] = {name: functools.partial(solve, name) for name in probes}
    lengths = {name: solve(name) / len(tried[name]) for name in probes}
    return {"simulator": playing(FetchVectorEnv(task, 64)), **sides}, lengths


def median_ratio(speeds: dict[str, list[float]], name: str, reference: str) -> float:
    return statistics.median(a / b for a, b in zip(speeds[name], speeds[reference], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/simulator.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    gym.register_envs(gymnasium_robotics)
    stepping, solving = [], []
    for task in options.tasks:
        for slots in SLOTS:
            speeds = race(contenders(task, slots), options.rounds)
            row: dict[str, Any] = {"task": task, "slots": slots}
            row["steps_per_second"] = {name: round(statistics.median(values)) for name, values in speeds.items()}
            row["pchid_to"] = {n: round(median_ratio(speeds, "pchid", n), 3) for n in speeds if n != "pchid"}
            stepping.append(row)
            ratios = "  ".join(f"{ratio:5.2f} x {name}" for name, ratio in row["pchid_to"].items())
            print(f"{task:21} {slots:3} slots {row['steps_per_second']['pchid']:6,} steps/s  {ratios}", flush=True)
        sides, lengths = testing(task)
        speeds = race(sides, options.rounds)
        batched = median_ratio(speeds, "batched", "simulator")
        pairs = {name: [speed / length for speed in speeds[name]] for name, length in lengths.items()}
        row = {"task": task, "batched_steps_to_simulator_steps": round(batched, 3)}
        row["batched_to"] = {n: round(median_ratio(pairs, "batched", n), 2) for n in pairs if n != "batched"}
        row["steps_per_second"] = {name: round(statistics.median(values)) for name, values in speeds.items()}
        row["pairs_per_second"] = {name: round(statistics.median(values)) for name, values in pairs.items()}
        solving.append(row)
        ratios = "  ".join(f"{ratio:.2f} x {name}" for name, ratio in row["batched_to"].items())
        print(f"{task:21} TEST keeps {batched:.2f} of the simulator's speed; pairs/s {ratios}", flush=True)
        result = {
            "command": "python " + shlex.join(sys.argv),
            "rounds": options.rounds,
            "cores": Threads().count,
            "machine": platform.machine(),
            "versions": {"mujoco": mujoco.__version__, "gymnasium": gym.__version__, "envpool": envpool_version()},
            "stepping": stepping,
            "test": solving,
        }
        options.out.parent.mkdir(exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
