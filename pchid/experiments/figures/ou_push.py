"""The Ornstein-Uhlenbeck view on a task with an object: does the drift of FetchPush policies grow in training?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter
from scipy import stats

from pchid.experiments.claims import Claim, NoFigureError, Word
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.figures.ou import measured
from pchid.experiments.figures.table1 import QUICK, SETTINGS, TASKS
from pchid.experiments.plots import COLOURS, plain, save_picture
from pchid.experiments.statistics import estimate
from pchid.training import trained_policy

if TYPE_CHECKING:
    from pchid.experiments.results import Results

LABEL = "PEHID, Push"
ROLLOUTS = 100


def study(results: Results, quick: bool) -> None:
    """The drift of the object under the policy of every evaluation, and how soon it meets its goal."""
    results.study = {
        "policies": [
            {
                "env_steps": int(row["env_steps"]),
                "seed": seed,
                **measured(trained_policy(path, int(row["env_steps"])), ROLLOUTS // (10 if quick else 1), ROW.env),
            }
            for seed, (path, rows) in enumerate(zip(results.directories[LABEL], results.curves[LABEL], strict=True))
            for row in rows
        ]
    }
    draw(results.study["policies"], results.folder / "ou-push.png")


def draw(points: list[dict[str, Any]], out: Path) -> None:
    """Drift and first hitting time during training, and one against the other."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4), layout="constrained")
    for seed in sorted({point["seed"] for point in points}):
        own = [point for point in points if point["seed"] == seed]
        steps, drift, times = (
            [point[name] for point in own] for name in ("env_steps", "step_fraction", "steps_to_goal")
        )
        colour = COLOURS[seed % len(COLOURS)]
        left.plot(steps, drift, "o-", ms=3, color=colour, label=f"seed {seed}")
        middle.plot(steps, times, "o-", ms=3, color=colour)
        right.plot(drift, times, "o", ms=4, color=colour)
    share, time = "share of the way covered in a step", "steps to the goal (at most 49)"
    left.set(xlabel="environment steps", ylabel=share)
    middle.set(xlabel="environment steps", ylabel=time)
    right.set(xlabel=share, ylabel=time)
    left.legend(frameon=False)
    for axes in (left, middle):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    for axes in (left, middle, right):
        plain(axes)
    figure.suptitle("The Ornstein-Uhlenbeck view on FetchPush: PEHID in training", fontsize=11)
    save_picture(figure, out)


def drift_grows(results: Results) -> tuple[Word, str]:
    """The drift is larger, and the goal met sooner, in the last evaluation than in the first."""
    points = results.study["policies"]
    times = {point["env_steps"] for point in points}
    ends = {
        name: [
            estimate([point[name] for point in points if point["env_steps"] == steps])
            for steps in (min(times), max(times))
        ]
        for name in ("step_fraction", "steps_to_goal")
    }
    (weak, strong), (late, soon) = ends.values()
    word: Word = "reproduced" if strong.low > weak.high and soon.high < late.low else "not reproduced"
    return word, f"share of the way in a step {weak}, at the end {strong}; steps to the goal {late}, then {soon}"


def sooner_with_drift(results: Results) -> tuple[Word, str]:
    """Over all policies of a run, more drift goes with an earlier hit: the rank correlation of each seed."""
    points = results.study["policies"]
    found = []
    for seed in sorted({point["seed"] for point in points}):
        own = [point for point in points if point["seed"] == seed]
        if len(own) < 3:
            raise NoFigureError("three policies of a run are needed to rank them")
        found.append(stats.spearmanr(*([point[name] for point in own] for name in ("step_fraction", "steps_to_goal"))))
    ranks = [float(one.statistic) for one in found]
    word: Word = "reproduced" if max(ranks) < 0 and estimate(ranks).high < 0 else "not reproduced"
    return word, f"rank correlation of drift and first hitting time {', '.join(f'{rank:.2f}' for rank in ranks)}"


ROW = Row(LABEL, TASKS["Push"], "pehid", {**SETTINGS, "steps": 100_000, "eval_every": 5_000})
"""The first steps of a run of Table 1, in which most of it is learned, looked at closely."""

OU_PUSH = Experiment(
    name="ou-push",
    shows="the Ornstein-Uhlenbeck view on FetchPush: the drift of PEHID's policies in training",
    rows=(ROW,),
    seeds=3,
    minutes=30,
    claims=(
        Claim("learning strengthens the drift, so that the goal is met sooner", drift_grows),
        Claim("the more drift, the sooner the goal is met", sooner_with_drift),
    ),
    panels=(),
    quick=QUICK,
    quick_seeds=1,
    study=study,
)
