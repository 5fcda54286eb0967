"""Beyond the paper: how far PCHID gets on GridWorld without the ground truth, by path length and map size, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from pchid.envs.make import make_probe
from pchid.envs.randomness import slot_seeds
from pchid.evaluation import Act, evaluate
from pchid.experiments.claims import Claim, above, reaches
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.plots import COLOURS, Panel, plain, save_picture
from pchid.runs import RunDirectory
from pchid.training import load_policy

if TYPE_CHECKING:
    from pchid.experiments.results import Results

ENV = "GridWorld-v0"
SETTINGS = {"episodes": 500, "eval_every": 50, "test": "interaction"}
SIZES: dict[int, dict[str, Any]] = {
    16: {},
    8: {"env.size": 8, "env.n_obstacles": 30},
    28: {"env.size": 28, "env.n_obstacles": 64, "env.horizon": 100},
}
"""With obstacles that block about 65 % of the interior everywhere; paths are 4.8, 2 and 10 moves long on average."""
FRESH_SEED = 7
"""Of the maps that the policies are measured on once more: neither those of training nor of its evaluations."""
QUICK = {"episodes": 24, "eval_every": 12, "eval_episodes": 20, "final_episodes": 50, "policy.iterations": 12}


def label(size: int) -> str:
    """The row of a map size."""
    return f"{size}x{size}"


def study(results: Results, quick: bool) -> None:
    """Success against the length of the shortest path, on the size of training and on the others."""
    maps = 50 if quick else 1000
    found: dict[str, Any] = {}
    for trained in SIZES:
        for size, options in SIZES.items():
            environment = {name[4:]: value for name, value in options.items() if name.startswith("env.")}
            outcomes = [
                by_length(policy_for_any_size(path), environment, maps) for path in results.directories[label(trained)]
            ]
            found[f"trained on {label(trained)}, tested on {label(size)}"] = summary(outcomes)
    results.study = found
    draw(found, results.folder / "gridworld-lengths.png")


def policy_for_any_size(path: Path) -> Act:
    """The policy of a run, without the check that maps have the size of training."""
    directory = RunDirectory(path)
    agent: Any = load_policy(directory, directory.read_config())
    act: Act = agent.policy.act
    return act


def by_length(act: Act, environment: dict[str, Any], maps: int) -> dict[int, tuple[int, int]]:
    """For each length of the shortest path: how many fresh maps have it, and how many of them were solved."""
    probe: Any = make_probe(ENV, maps, **environment)
    solved = evaluate(act, probe, maps, FRESH_SEED).final_success
    probe.reset(seed=slot_seeds(FRESH_SEED, maps))
    lengths: NDArray[np.int64] = probe.distance(probe.get_state(), probe.observe()["desired_goal"]).astype(np.int64)
    return {int(n): (int((lengths == n).sum()), int(solved[lengths == n].sum())) for n in np.unique(lengths)}


def summary(outcomes: list[dict[int, tuple[int, int]]]) -> dict[str, Any]:
    """Over all seeds, which share their maps: success in all, and for each length."""
    maps = {length: count for length, (count, _) in outcomes[0].items()}
    of_seeds = [sum(solved for _, solved in found.values()) / sum(maps.values()) for found in outcomes]
    return {
        "final_success": float(np.mean(of_seeds)),
        "of_seeds": of_seeds,
        "maps_by_length": maps,
        "success_by_length": {n: float(np.mean([found[n][1] / found[n][0] for found in outcomes])) for n in maps},
    }


def draw(found: dict[str, Any], out: Path) -> None:
    """Success against length; lengths of which there are few maps are joined to the next."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for colour, size in zip(COLOURS, SIZES, strict=False):
        of_size = found[f"trained on {label(size)}, tested on {label(size)}"]
        x, y = joined(of_size["maps_by_length"], of_size["success_by_length"])
        axes.plot(x, y, "o-", color=colour, ms=3, label=f"{label(size)}: {of_size['final_success']:.3f}")
    axes.set(xlabel="moves on the shortest path", ylabel="final success", ylim=(-0.03, 1.03))
    axes.legend(frameon=False, title="trained and tested on")
    plain(axes)
    figure.suptitle("GridWorld: success by the length of the shortest path", fontsize=11)
    save_picture(figure, out)


def joined(maps: dict[int, int], success: dict[int, float], least: int = 10) -> tuple[list[float], list[float]]:
    """Mean length and success of groups of neighbouring lengths, each with enough maps to mean something."""
    x, y, group = [], [], []
    for length in sorted(maps):
        group.append(length)
        count = sum(maps[n] for n in group)
        if count >= least or length == max(maps):
            x.append(sum(n * maps[n] for n in group) / count)
            y.append(sum(success[n] * maps[n] for n in group) / count)
            group = []
    return x, y


GRIDWORLD = Experiment(
    name="gridworld",
    shows="GridWorld, 500 episodes, no ground truth: success on unseen maps of three sizes",
    rows=tuple(Row(label(size), ENV, "pchid", {**SETTINGS, **options}) for size, options in SIZES.items()),
    seeds=10,
    minutes=32,
    claims=(
        Claim("16x16: .61, the best of the authors' networks (on their maps)", reaches("16x16", 0.61, whose="theirs")),
        *(
            Claim(
                f"{name}: {value:g}, as a VIN that imitates 5,000 solved maps (on other maps)",
                reaches(name, value, whose="the imitating VIN's"),
            )
            for name, value in (("16x16", 0.970), ("8x8", 0.997), ("28x28", 0.911))
        ),
    ),
    panels=(Panel("final_success", "episodes"), Panel("final_success", "all_steps")),
    quick=QUICK,
    quick_seeds=1,
    policies=tuple(label(size) for size in SIZES),
    study=study,
)

CHANGES: dict[str, dict[str, Any]] = {
    "as recommended": {},
    "5 % random moves": {"exploration": 0.05},
    "30 % random moves": {"exploration": 0.3},
    "60 % random moves": {"exploration": 0.6},
    "K up to 5": {"K_max": 5},
    "K up to 10": {"K_max": 10},
    "K up to 15": {"K_max": 15},
    "K grows more slowly": {"convergence.pairs": 16, "convergence.patience": 10},
    "all k at once": {"method": "pehid"},
    "5 updates an episode": {"updates_per_episode": 5},
    "30 updates an episode": {"updates_per_episode": 30},
    "20 iterations": {"policy.iterations": 20},
    "80 iterations": {"policy.iterations": 80},
    "no averaging": {"policy.averaging": 0},
    "no symmetry": {"policy.symmetric": False, "policy.hidden_channels": 20},
    "no symmetry, learning rate 1e-3": {
        "policy.symmetric": False,
        "policy.hidden_channels": 20,
        "learning_rate": 1e-3,
    },
    "no symmetry, learning rate 1e-3, 32 q-channels": {
        "policy.symmetric": False,
        "policy.hidden_channels": 20,
        "policy.q_channels": 32,
        "learning_rate": 1e-3,
    },
    "every optimal label": {"other_labels": True},
    "ground truth": {"test": "ground-truth"},
    "no TEST": {"test": "none"},
    "RND": {"test": "rnd"},
}

TOGETHER = (
    ("ground truth", "no TEST", "RND"),
    ("K up to 5", "K up to 10", "K grows more slowly", "60 % random moves", "all k at once"),
    ("no symmetry", "no symmetry, learning rate 1e-3", "80 iterations", "no averaging"),
)
"""Rows that are drawn in one panel; the others differ too little to be told apart."""

ABLATIONS = Experiment(
    name="gridworld-ablations",
    shows="GridWorld 16x16, 500 episodes: the recommended settings, one of them changed at a time",
    rows=tuple(
        Row(
            name,
            ENV,
            changes.get("method", "pchid"),
            {**SETTINGS, **{key: value for key, value in changes.items() if key != "method"}},
        )
        for name, changes in CHANGES.items()
    ),
    seeds=3,
    minutes=75,
    claims=tuple(
        Claim(f"the symmetry of the network matters ({other})", above("as recommended", other))
        for other in ("no symmetry", "no symmetry, learning rate 1e-3")
    ),
    panels=tuple(Panel("final_success", "episodes", labels=("as recommended", *names)) for names in TOGETHER),
    quick={**QUICK, "env.size": 8},
    quick_seeds=1,
)
