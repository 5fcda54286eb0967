"""How policies of FetchPush, FetchSlide and FetchPickAndPlace fail, and what holding the goal is worth.

In: directories of runs. Out: for each, any and final success with the null action at the goal (pi_0) and without it;
where the object was at the end of the episodes that failed, after it had been at its goal or not; how fast it came to
goals that were kept and to those that were lost again, and how long these held; success where the goal is in the air.
Usage: python examples/lost_goals.py DIR... [--episodes 500] [--seed 7] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pchid import make_probe
from pchid.envs.randomness import slot_seeds
from pchid.goals import success_function
from pchid.runs import RunDirectory, set_threads
from pchid.training import load_policy, predictor, trusted_env

TABLE = 0.4
"""The height, in metres, below which an object has left the table."""
NEAR = 0.1
LIFTED = 0.475
"""The height above which a goal cannot be met from the table, whose objects are at 0.425."""
STEP = 0.04
"""Seconds of an environment step."""


def ways(agent: Any, env: Any, episodes: int, seed: int) -> NDArray[np.float64]:
    """The object's way relative to its goal, and its height: (episodes, steps, 4)."""
    act, found, slots = predictor(agent), [], env.num_envs
    seeds = slot_seeds(seed, -(-episodes // slots) * slots)  # the goals that `pchid evaluate` plays for
    for first in range(0, episodes, slots):
        seen, _ = env.reset(seed=seeds[first : first + slots])
        steps = []
        for _ in range(env.horizon):
            seen, *_ = env.step(act(seen))
            steps.append(
                np.concatenate([seen["achieved_goal"] - seen["desired_goal"], seen["achieved_goal"][:, 2:]], axis=1)
            )
        found.append(np.stack(steps, axis=1))
    return np.concatenate(found)[:episodes]


def success(way: NDArray[np.float64], env: Any) -> dict[str, float]:
    """Both measures."""
    reached = at_goal(way, env)
    return {"any_success": float(reached.any(axis=1).mean()), "final_success": float(reached[:, -1].mean())}


def at_goal(way: NDArray[np.float64], env: Any) -> NDArray[np.bool_]:
    """(episodes, steps): whether the goal holds."""
    apart = way[..., :3].reshape(-1, 3)
    return success_function(env)(apart, np.zeros_like(apart)).reshape(way.shape[:2])


def failures(way: NDArray[np.float64], env: Any) -> dict[str, int]:
    """Where the object ended, by whether it had been at its goal."""
    reached = at_goal(way, env)
    failed, had = ~reached[:, -1], reached.any(axis=1)
    off, near = way[:, -1, 3] < TABLE, np.linalg.norm(way[:, -1, :3], axis=1) < NEAR
    ends = {"off the table": off, "nearer than 10 cm": ~off & near, "farther": ~off & ~near}
    return {
        f"{name}, {end}": int((failed & chosen & where).sum())
        for name, chosen in (("after the goal", had), ("goal never met", ~had))
        for end, where in ends.items()
    }


def arrivals(way: NDArray[np.float64], env: Any) -> dict[str, Any]:
    """How fast the object met its goal, and for how many steps it stayed; without episodes that begin at their goal."""
    reached = at_goal(way, env)
    first = reached.argmax(axis=1)
    met = reached.any(axis=1) & (first > 0)
    moved = np.linalg.norm(np.diff(way[..., :3], axis=1), axis=-1)
    speed = moved[np.arange(len(way)), first - 1] / STEP
    return {
        name: {
            "episodes": int(chosen.sum()),
            "median speed": _median(speed[chosen]),
            "median steps at the goal": _median(reached.sum(axis=1)[chosen]),
        }
        for name, chosen in (("kept", met & reached[:, -1]), ("lost again", met & ~reached[:, -1]))
    }


def _median(values: NDArray[Any]) -> float | None:
    return float(np.median(values)) if len(values) else None


def in_the_air(way: NDArray[np.float64], env: Any) -> dict[str, float]:
    """Success with goals that an object on the table cannot be at."""
    lifted = way[way[:, 0, 3] - way[:, 0, 2] > LIFTED]
    return {"goals": len(lifted), **success(lifted, env)} if len(lifted) else {}


def study(path: Path, episodes: int, seed: int) -> dict[str, Any]:
    """One policy, played with and without pi_0."""
    run = RunDirectory(path)
    config = run.read_acting()
    trusted_env(config["env"], None)
    agent: Any = load_policy(run, config)
    env = make_probe(config["env"], episodes, **config["env_options"])
    way = ways(agent, env, episodes, seed)
    found: dict[str, Any] = {**success(way, env), "failures": failures(way, env), "arrivals": arrivals(way, env)}
    if lifted := in_the_air(way, env):
        found["in the air"] = lifted
    if getattr(agent, "hold_goal", False):
        agent._null_action = None
        found["goal not held"] = success(ways(agent, env, episodes, seed), env)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    set_threads(1)
    found: dict[str, Any] = {}
    for path in options.runs:
        if path.name in found:
            parser.error(f"two runs are called {path.name}, so their results would be mixed up: call once for each")
        found[path.name] = study(path, options.episodes, options.seed)
        print(path.name, json.dumps(found[path.name]), flush=True)
    if options.out is not None:
        result = {"episodes": options.episodes, "seed": options.seed, "policies": found}
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
