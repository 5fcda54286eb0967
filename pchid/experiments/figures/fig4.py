"""Figure 4: GridWorld. Methods (a), TEST functions (b), accuracy and recall of TEST (c, d)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt

from pchid.experiments.claims import Claim, about_equal, above, reaches
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.plots import COLOURS, MEASURES, Panel, plain, save_picture
from pchid.experiments.statistics import estimate

if TYPE_CHECKING:
    from pchid.experiments.results import Results

ENV = "GridWorld-v0"
# As in the paper: the network of Tamar et al., the same for every method, and K up to 5.
NETWORK = {
    "policy.symmetric": False,
    "policy.hidden_channels": 20,
    "policy.iterations": 20,
    "policy.averaging": 0,
}
LEARNING = {
    "learning_rate": 1e-3,
    "updates_per_episode": 5,
    "exploration": 0.3,
    "convergence.pairs": 16,
    "convergence.patience": 10,
}
ONE_STEP: dict[str, Any] = {"episodes": 500, "eval_every": 50, **LEARNING, **NETWORK}
SETTINGS: dict[str, Any] = {**ONE_STEP, "K_max": 5}
QUICK = {
    "episodes": 24,
    "eval_every": 12,
    "eval_episodes": 20,
    "final_episodes": 50,
    "env.size": 8,
    "policy.iterations": 10,
    "convergence.pairs": 4,
    "convergence.patience": 2,
}
QUANTILES = (0.25, 0.5, 0.75, 0.9)

FIG4A = Experiment(
    name="fig4a",
    shows="GridWorld 16x16, 500 episodes, VIN: DQN with and without HER and PCHID",
    rows=(
        Row("DQN", ENV, "dqn", SETTINGS),
        Row("DQN+HER", ENV, "dqn+her", SETTINGS),
        Row("DQN+PCHID-1", ENV, "dqn+hid", ONE_STEP),
        Row("DQN+PCHID-5", ENV, "dqn+pchid", SETTINGS),
        Row("DQN+HER+PCHID-1", ENV, "dqn+her+hid", ONE_STEP),
        Row("DQN+HER+PCHID-5", ENV, "dqn+her+pchid", SETTINGS),
    ),
    seeds=10,
    minutes=45,
    claims=(
        Claim("HER is a little above DQN", above("DQN+HER", "DQN", when="training")),
        Claim("PCHID-1 learns faster than DQN", above("DQN+PCHID-1", "DQN", when="training")),
        Claim("PCHID-5 is much better", above("DQN+PCHID-5", "DQN+PCHID-1")),
        Claim("with PCHID, HER makes no difference", about_equal("DQN+HER+PCHID-5", "DQN+PCHID-5", 0.05)),
        Claim("HER with PCHID-5 reaches .58 (the authors' networks)", reaches("DQN+HER+PCHID-5", 0.58, whose="theirs")),
    ),
    panels=(Panel("final_success", "episodes"), Panel("final_success", "all_steps")),
    quick=QUICK,
    quick_seeds=1,
)

FIG4B = Experiment(
    name="fig4b",
    shows="GridWorld 16x16, 500 episodes: PCHID alone under each TEST",
    rows=(
        Row("ground truth", ENV, "pchid", {**SETTINGS, "test": "ground-truth"}),
        Row("interaction", ENV, "pchid", {**SETTINGS, "test": "interaction"}),
        Row("RND", ENV, "pchid", {**SETTINGS, "test": "rnd"}),
        Row("one step", ENV, "hid", ONE_STEP),
    ),
    seeds=10,
    minutes=16,
    claims=(
        Claim("interaction is near the ground truth", about_equal("interaction", "ground truth", 0.05)),
        Claim("interaction is above one step", above("interaction", "one step")),
        Claim("RND is above one step", above("RND", "one step")),
    ),
    panels=(Panel("final_success", "episodes"), Panel("final_success", "all_steps")),
    quick=QUICK,
    quick_seeds=1,
)


def by_k(results: Results, quick: bool) -> None:
    """Accuracy and recall of each TEST for each k, over a whole training."""
    lengths = range(2, SETTINGS["K_max"] + 1)
    results.study = {
        label: {
            measure: {k: of_k(results, label, f"{measure}_{k}") for k in lengths}
            for measure in ("test_accuracy", "test_recall")
        }
        for label in results.summaries
    }
    draw_by_k(results.study, results.folder / "fig4cd-by-k.png")


def of_k(results: Results, label: str, measure: str) -> dict[str, float] | None:
    """A measure at the end with its interval, over the seeds that came to have pairs of this length."""
    known = [value for value in results.values(label, measure) if value == value]
    return vars(estimate(known)) if known else None


def draw_by_k(found: dict[str, Any], out: Path) -> None:
    """A panel for accuracy and one for recall; a line for each TEST."""
    figure, drawn = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axes, measure in zip(drawn, ("test_accuracy", "test_recall"), strict=True):
        for colour, (label, measures) in zip(COLOURS, found.items(), strict=False):
            points = {k: point for k, point in measures[measure].items() if point is not None}
            centre, low, high = ([point[name] for point in points.values()] for name in ("iqm", "low", "high"))
            axes.plot(points.keys(), centre, "o-", color=colour, ms=4, label=label)
            axes.fill_between(list(points), low, high, color=colour, alpha=0.18, lw=0)
        axes.set(xlabel="k", ylabel=MEASURES[measure], ylim=(-0.03, 1.03), xticks=range(2, SETTINGS["K_max"] + 1))
        plain(axes)
    drawn[0].legend(frameon=False, fontsize=8)
    figure.suptitle("GridWorld: how right TEST is, by the length of the piece", fontsize=11)
    save_picture(figure, out)


def rnd(quantile: float) -> str:
    """RND with a threshold; under its plain name where that is its own, so that the runs are those of Figure 4b."""
    return "rnd" if quantile == 0.5 else f"rnd:{quantile}"


FIG4CD = Experiment(
    name="fig4cd",
    shows="GridWorld 16x16: accuracy and recall of interaction, and of RND by its threshold, against the ground truth",
    rows=(
        Row("interaction", ENV, "pchid", {**SETTINGS, "test": "interaction"}),
        *(
            Row(f"RND, quantile {quantile:g}", ENV, "pchid", {**SETTINGS, "test": rnd(quantile)})
            for quantile in QUANTILES
        ),
    ),
    seeds=10,
    minutes=27,
    claims=(
        Claim(
            "interaction judges more accurately than RND",
            above("interaction", "RND, quantile 0.5", "test_accuracy"),
        ),
        Claim("interaction finds more of the true pairs", above("interaction", "RND, quantile 0.5", "test_recall")),
    ),
    panels=(Panel("test_accuracy", "episodes"), Panel("test_recall", "episodes")),
    quick=QUICK,
    quick_seeds=1,
    study=by_k,
)
