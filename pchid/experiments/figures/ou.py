"""The supplement's Ornstein-Uhlenbeck view: hitting times against the drift, in theory and for policies in training."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from pchid.drift import first_hitting_times, measure_drift, proportional_share
from pchid.envs.make import make_vector
from pchid.errors import InputError
from pchid.evaluation import evaluate
from pchid.experiments.claims import Claim, Judge, Word
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.plots import COLOURS, plain, save_picture
from pchid.experiments.statistics import estimate
from pchid.ornstein_uhlenbeck import expected_ball_hitting_time, expected_hitting_time, simulate_hitting_times
from pchid.training import trained_policy

if TYPE_CHECKING:
    from pchid.experiments.results import Results

ENV = "FetchReach-v4"
TRAINED = (1, 2, 3, 4, 6, 8, 10)
"""After how many episodes a policy's drift is measured."""
TOLERANCE = 0.05
ROLLOUTS, ROLLOUT_SEED = 50, 11
THETAS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
START, SIGMA, PATHS = 2.0, 1.0, 20_000
CONTROLLERS = ((0.0, 1.0), (2.0, 0.2), (5.0, 0.0), (20.0, 0.0), (1000.0, 0.0))
"""Gain and noise of clip(gain (g - m(s)) + noise, -1, 1): what drift looks like where it is known."""


def study(results: Results, quick: bool) -> None:
    """Theory against simulation, and the drift of each run's policy; drawn side by side."""
    paths = PATHS // 20 if quick else PATHS
    results.study = {
        "theory": [theory(theta, paths) for theta in THETAS],
        "policies": [
            {"episodes": episodes, "seed": seed, **measured(trained_policy(path), ROLLOUTS // (5 if quick else 1))}
            for episodes in TRAINED
            for seed, path in enumerate(results.directories[label(episodes)])
        ],
        "controllers": [
            {"gain": gain, "noise": noise, **measured(controller(gain, noise), ROLLOUTS // 2)}
            for gain, noise in CONTROLLERS
        ],
    }
    draw(results.study, results.folder / "ou.png")


def theory(theta: float, paths: int) -> dict[str, float]:
    """The expected first hitting time of the goal: closed form, and the mean of simulated ones."""
    rng = np.random.default_rng(round(100 * theta))
    times = simulate_hitting_times(rng, paths, START, 0.0, theta, SIGMA, horizon=60.0 / theta, step=0.5 / theta)
    return {
        "theta": theta,
        "expected": float(expected_hitting_time(START, 0.0, theta, SIGMA)),
        "simulated": float(times.mean()),
        "standard_error": float(times.std(ddof=1) / np.sqrt(len(times))),
    }


def measured(act: Callable[[dict[str, Any]], NDArray[Any]], rollouts: int, env: str = ENV) -> dict[str, Any]:
    """Roll a policy out and fit the process to it; times count in steps."""
    seen: list[dict[str, NDArray[Any]]] = []

    def watched(observations: dict[str, NDArray[Any]]) -> NDArray[Any]:
        seen.append({key: values.copy() for key, values in observations.items()})
        return act(observations)

    # A slot for each: rollouts that came one after the other would be seen as one long one.
    with contextlib.closing(make_vector(env, rollouts, autoreset=False)) as environment:
        evaluate(watched, environment, rollouts, ROLLOUT_SEED)
    achieved = np.stack([observations["achieved_goal"] for observations in seen], axis=1)
    goals = seen[0]["desired_goal"]
    times = first_hitting_times(achieved, goals, time_step=1.0, tolerance=TOLERANCE)
    found = measure_drift(achieved, goals, time_step=1.0, tolerance=TOLERANCE)
    starts = np.linalg.norm(achieved[:, 0] - goals, axis=1)
    outside = starts[starts > TOLERANCE]
    try:
        needed = expected_ball_hitting_time(outside, TOLERANCE, found.theta, found.sigma, dimension=3)
        of_process = float(needed.sum() / len(starts))
    except InputError:  # a policy that leads away from the goal, or beyond it in one step, is no such process
        of_process = None
    return {
        **{name: _finite(value) for name, value in asdict(found).items()},
        "proportional_share": _finite(proportional_share(achieved, goals, tolerance=TOLERANCE)),
        "steps_to_goal": times.restricted_mean,
        "steps_to_goal_of_the_process": of_process,
        "reached": float(times.reached.mean()),
    }


def controller(gain: float, noise: float) -> Callable[[dict[str, Any]], NDArray[Any]]:
    """A proportional controller of the gripper."""
    rng = np.random.default_rng(0)

    def act(observations: dict[str, Any]) -> NDArray[Any]:
        gap = observations["desired_goal"] - observations["achieved_goal"]
        moves = np.clip(gain * gap + noise * rng.standard_normal(gap.shape), -1.0, 1.0)
        return np.concatenate([moves, np.zeros((len(moves), 1))], axis=1).astype(np.float32)

    return act


def draw(found: dict[str, Any], out: Path) -> None:
    """Expected hitting time against drift; drift during training; hitting time against drift, measured."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4), layout="constrained")
    thetas = np.geomspace(THETAS[0], THETAS[-1], 60)
    left.plot(thetas, expected_hitting_time(START, 0.0, thetas, SIGMA), color=COLOURS[0], label="closed form")
    left.errorbar(
        *([point[name] for point in found["theory"]] for name in ("theta", "simulated")),
        yerr=[1.96 * point["standard_error"] for point in found["theory"]],
        fmt="o",
        color=COLOURS[1],
        label="simulated",
    )
    left.set(xscale="log", yscale="log", xlabel="drift theta", ylabel="expected first hitting time")
    left.legend(frameon=False)
    for point in found["policies"]:
        middle.plot(point["episodes"], point["step_fraction"], "o", color=COLOURS[0], alpha=0.5, ms=5)
        right.plot(point["step_fraction"], point["steps_to_goal"], "o", color=COLOURS[0], alpha=0.5, ms=5)
    by_episodes = {
        episodes: np.mean([point["step_fraction"] for point in found["policies"] if point["episodes"] == episodes])
        for episodes in TRAINED
    }
    middle.plot(by_episodes.keys(), by_episodes.values(), color=COLOURS[0], label="mean over seeds")
    middle.set(xlabel="training episodes", ylabel="share of the way covered in a step")
    middle.legend(frameon=False)
    for point in found["controllers"]:
        right.plot(point["step_fraction"], point["steps_to_goal"], "x", color=COLOURS[1], ms=7)
    right.plot([], [], "o", color=COLOURS[0], label="PCHID in training")
    right.plot([], [], "x", color=COLOURS[1], label="proportional controllers")
    right.set(xlabel="share of the way covered in a step", ylabel="steps to the goal (at most 50)")
    right.legend(frameon=False)
    for axes in (left, middle, right):
        plain(axes)
    figure.suptitle("The Ornstein-Uhlenbeck view: theory, and FetchReach", fontsize=11)
    save_picture(figure, out)


def theory_holds(results: Results) -> tuple[Word, str]:
    """Closed form and simulation agree, and the expectation falls with the drift."""
    points = results.study["theory"]
    away = max(abs(point["expected"] - point["simulated"]) / point["standard_error"] for point in points)
    falls = all(one["expected"] > two["expected"] for one, two in itertools.pairwise(points))
    word: Word = "reproduced" if away < 3.5 and falls else "not reproduced"
    return word, f"simulated means are within {away:.1f} standard errors of the closed form at {len(points)} drifts"


def drift_grows(first: int, last: int) -> Judge:
    """The measured drift is larger after `last` episodes than after `first`, and the goal is met sooner."""

    def verdict(results: Results) -> tuple[Word, str]:
        found = {
            (episodes, name): estimate([p[name] for p in results.study["policies"] if p["episodes"] == episodes])
            for episodes in (first, last)
            for name in ("step_fraction", "steps_to_goal")
        }
        stronger = found[last, "step_fraction"].low > found[first, "step_fraction"].high
        sooner = found[last, "steps_to_goal"].high < found[first, "steps_to_goal"].low
        return (
            "reproduced" if stronger and sooner else "not reproduced",
            f"share of the way in a step {found[first, 'step_fraction']} after {first} episodes, "
            f"{found[last, 'step_fraction']} after {last}; steps to the goal {found[first, 'steps_to_goal']}, "
            f"then {found[last, 'steps_to_goal']}",
        )

    return verdict


def label(episodes: int) -> str:
    """The row of the policies trained for so long."""
    return f"PCHID, {episodes} episode{'s' * (episodes > 1)}"


def _finite(value: float | int) -> float | None:
    return float(value) if np.isfinite(value) else None


OU = Experiment(
    name="ou",
    shows="the Ornstein-Uhlenbeck view: hitting times against the drift, and the drift of FetchReach policies",
    rows=tuple(
        Row(label(n), ENV, "pchid", {"episodes": n, "eval_every": n, "eval_episodes": 10, "final_episodes": 50})
        for n in TRAINED
    ),
    seeds=5,
    minutes=5,
    claims=(
        Claim("the expected first hitting time falls as the drift grows", theory_holds, quick=True),
        Claim("learning strengthens the drift, so that the goal is met sooner", drift_grows(1, 10)),
    ),
    panels=(),
    quick={"final_episodes": 10},
    study=study,
)
