"""Draw the pictures of docs/method.md: one real episode, real verdicts of TEST, and curves from `results/`.

Usage: python docs/pictures/method.py [names...]. Pictures go to docs/images/method-NAME.png.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

from pchid import PCHID, PEHID, GoalVecEnv, Interaction, make_probe
from pchid.algorithms import MAX_STEPS
from pchid.curriculum import Convergence
from pchid.episodes import Episodes, Recorder
from pchid.goals import success_function
from pchid.hindsight import HindsightPairs, hindsight_pairs
from pchid.ornstein_uhlenbeck import expected_hitting_time, mean
from pchid.runs import RunDirectory
from pchid.training import load_policy

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
RESULTS = ROOT / "results"

INK, MUTED, FAINT, WALL, FLOOR = "#343c4a", "#6d7480", "#c9d3e0", "#5c6678", "#ffffff"
STATE, GOAL, WRONG, RIGHT, POLICY = "#2e6cb0", "#e29226", "#d34e42", "#2f855a", "#7b4bb3"
GRID = {"size": 9, "n_obstacles": 9, "horizon": 12}
SLOTS, CHOSEN = 2000, 743
"""Of so many random episodes, the one that is drawn: it holds a kept piece, a dropped one and a loop."""
BLUES = LinearSegmentedColormap.from_list("blues", ["#eef3f9", "#9dbfe3", "#2e6cb0", "#173a63"])

plt.rcParams |= {
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#9aa1ac",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.titlesize": 10.5,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def main(names: Sequence[str]) -> None:
    """Draw the named pictures, or all."""
    for name in names or PICTURES:
        PICTURES[name](IMAGES / f"method-{name}.png")


def save(figure: Any, out: Path) -> None:
    """Write a picture with few colours, which keeps it small."""
    figure.savefig(out, dpi=180, facecolor="white")
    plt.close(figure)
    with Image.open(out) as picture:
        small = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small.save(out, optimize=True)
    print(f"{out.relative_to(ROOT)}  {out.stat().st_size / 1000:.0f} kB")


# One episode, and what hindsight makes of it.


def random_episode() -> tuple[GoalVecEnv, Episodes]:
    """An episode of random moves on a small map that misses its goal."""
    env = GoalVecEnv.make("GridWorld-v0", num_envs=SLOTS, **GRID)
    recorder = Recorder(env.observation_space, env.action_space, SLOTS)
    rng = np.random.default_rng(0)
    env.seed(0)
    recorder.start(env.reset())
    episodes = None
    for _ in range(GRID["horizon"]):
        states = env.vector.get_state()
        actions = rng.integers(8, size=SLOTS)
        episodes = recorder.record(actions, *env.step(actions), states)
    assert episodes is not None
    return env, replace(episodes, **{f.name: getattr(episodes, f.name)[CHOSEN : CHOSEN + 1] for f in fields(Episodes)})


def way_of(episode: Episodes) -> NDArray[np.int64]:
    """The cells of the episode, (T+1, 2), as (row, column)."""
    way: NDArray[np.int64] = episode.achieved_goal[0]
    return way


def draw_map(axes: Any, episode: Episodes) -> None:
    """The map, one unit a cell, rows downwards."""
    blocked = episode.observation[0, 0, 0] != 0
    size = len(blocked)
    axes.add_patch(Rectangle((-0.5, -0.5), size, size, color=WALL, lw=0))
    for row, column in np.argwhere(~blocked):
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=FLOOR, edgecolor="#dcd8cf", lw=0.8))
    axes.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), aspect="equal")
    axes.axis("off")


def draw_way(axes: Any, cells: NDArray[np.int64], colour: str, width: float = 3.0, **style: Any) -> None:
    """A line through cells."""
    axes.plot(
        cells[:, 1], cells[:, 0], color=colour, lw=width, solid_capstyle="round", solid_joinstyle="round", **style
    )


def draw_goal(axes: Any, cell: NDArray[np.int64], colour: str = GOAL, alpha: float = 1.0) -> None:
    """A target."""
    for radius, filled in ((0.4, False), (0.15, True)):
        axes.add_patch(
            Circle(
                cell[::-1],
                radius,
                facecolor=colour if filled else "none",
                edgecolor=colour,
                lw=2.2,
                alpha=alpha,
                zorder=4,
            )
        )


def draw_agent(axes: Any, cell: NDArray[np.int64], colour: str = STATE) -> None:
    """A disc."""
    axes.add_patch(Circle(cell[::-1], 0.25, color=colour, zorder=5, lw=0))


def draw_arrow(axes: Any, start: NDArray[np.int64], end: NDArray[np.int64], colour: str) -> None:
    """The move from one cell to the next."""
    arrow = FancyArrowPatch(
        start[::-1],
        end[::-1],
        arrowstyle="-|>,head_width=4.5,head_length=6",
        lw=3.2,
        color=colour,
        zorder=6,
        shrinkA=0,
        shrinkB=2,
    )
    axes.add_patch(arrow)


def note(axes: Any, text: str, colour: str = INK, **style: Any) -> None:
    """A line or two under a map."""
    axes.text(
        0.5,
        -0.035,
        text,
        transform=axes.transAxes,
        ha="center",
        va="top",
        color=colour,
        fontsize=9,
        linespacing=1.45,
        **style,
    )


def relabelling(out: Path) -> None:
    """A failed episode, and three of its pieces with the goals that they reached."""
    _, episode = random_episode()
    way = way_of(episode)
    figure, panels = plt.subplots(1, 4, figsize=(8.6, 2.95))
    figure.subplots_adjust(left=0.008, right=0.992, top=0.91, bottom=0.215, wspace=0.06)
    whole, *pieces = panels
    draw_map(whole, episode)
    draw_way(whole, way, STATE)
    draw_agent(whole, way[0])
    draw_goal(whole, episode.desired_goal[0])
    whole.plot(*way[-1][::-1], "x", color=WRONG, ms=9, mew=2.6, zorder=6)
    whole.set_title("an episode that fails")
    note(whole, "twelve random moves,\nfrom ● to ×: the goal ◎\nis missed, no reward")
    for axes, (time, k) in zip(pieces, ((8, 1), (8, 2), (0, 4)), strict=True):
        pair = the_pair(episode, time, k)
        draw_map(axes, episode)
        draw_way(axes, way, FAINT, 2.0)
        draw_way(axes, way[time : time + k + 1], STATE, 3.2)
        draw_goal(axes, pair.goal[0])
        draw_agent(axes, pair.achieved[0])
        draw_arrow(axes, way[time], way[time + 1], STATE)
        axes.set_title(f"k = {k}")
        pair_name = f"(s$_{{{time}}}$, m(s$_{{{time + k}}}$))"
        what = {1: "one move", 2: "two moves", 4: "four moves"}[k]
        note(axes, f"pair {pair_name},\nreached in {what};\nlabel: the first, a$_{{{time}}}$")
    save(figure, out)


def the_pair(episode: Episodes, time: int, k: int) -> HindsightPairs:
    """The pair of the piece that starts at `time` and takes k steps, as the library relabels it."""
    pairs = hindsight_pairs(episode, [k])
    starts = np.flatnonzero((pairs.state == episode.state[0, time]).all(axis=1))  # type: ignore[index]
    return pairs.select(starts[:1])


# TEST.


class Watched:
    """A policy that remembers where it was asked."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.cells: list[NDArray[np.int64]] = []

    def act(self, observations: dict[str, Any]) -> Any:
        """As the policy does."""
        self.cells.append(observations["achieved_goal"][0].copy())
        return self.policy.act(observations)


def verdicts(out: Path) -> None:
    """Three pieces of four moves: one has a loop, one is solved in fewer moves, one is kept."""
    env, episode = random_episode()
    way, k = way_of(episode), 4
    directory = RunDirectory(RESULTS / "gridworld" / "policies" / "16x16-0")
    agent: Any = load_policy(directory, directory.read_config())
    test = Interaction(lambda: make_probe("GridWorld-v0", 1, **GRID))
    shortest = hindsight_pairs(episode, [1, k], is_success=success_function(env.vector))
    figure, panels = plt.subplots(1, 3, figsize=(8.6, 3.9))
    figure.subplots_adjust(left=0.01, right=0.99, top=0.93, bottom=0.235, wspace=0.06)
    for axes, time in zip(panels, (5, 1, 0), strict=True):
        pair = the_pair(episode, time, k)
        draw_map(axes, episode)
        draw_way(axes, way, FAINT, 2.0)
        candidate = ((shortest.state == pair.state[0]).all(axis=1) & (shortest.k == k)).any()  # type: ignore[index,union-attr]
        piece = way[time : time + k + 1]
        if candidate:
            draw_way(axes, piece, STATE, 3.2)
        else:  # to and fro: bent, or it could not be seen
            for start, end, bend in zip(piece[:-1], piece[1:], (0.75, 0.75, 0.0, 0.0), strict=True):
                style = {"connectionstyle": f"arc3,rad={bend}", "shrinkA": 0, "shrinkB": 0, "zorder": 3}
                axes.add_patch(FancyArrowPatch(start[::-1], end[::-1], arrowstyle="-", lw=2.6, color=STATE, **style))
        draw_goal(axes, pair.goal[0])
        draw_agent(axes, pair.achieved[0])
        if not candidate:
            axes.set_title("a loop: dropped before TEST", color=WRONG, weight="bold")
            note(axes, "It goes to and fro, so it is no shortest\nway. To see that costs no step.")
            continue
        watched, before = Watched(agent.policy), test.steps
        kept = bool(test(pair, watched, np.array([k - 1]))[0])  # type: ignore[arg-type]
        tried = test.steps - before
        end = test.probe.simulator.observe()["achieved_goal"][0]
        attempt = np.array([*watched.cells, end])
        draw_way(axes, attempt, POLICY, 2.4, ls=(0, (2.2, 1.4)), zorder=4)
        axes.plot(*attempt[-1][::-1], "o", color=POLICY, ms=7, zorder=7)
        if kept:
            axes.set_title(r"TEST passes: it goes into B$_4$", color=RIGHT, weight="bold")
            note(axes, f"In {k - 1} moves the policy does not get\nthere: it needs four. {tried} TEST steps.")
        else:
            axes.set_title("TEST fails: dropped", color=WRONG, weight="bold")
            note(axes, f"The policy gets there in {tried} moves,\nnot four. {tried} TEST steps.")
    handles = [
        plt.Line2D([], [], color=STATE, lw=3.2, label="the piece, four moves"),
        plt.Line2D([], [], color=POLICY, lw=2.4, ls=(0, (2.2, 1.4)), label="the policy's attempt, at most three"),
        plt.Line2D([], [], color=GOAL, marker="o", mfc="none", mew=2.2, ms=9, lw=0, label="the goal it reached"),
    ]
    figure.legend(handles=handles, loc="lower center", ncols=3, frameon=False, handlelength=2.4, fontsize=9)
    save(figure, out)


# K grows, or is complete from the start.


def read_rows(path: Path) -> list[dict[str, Any]]:
    """A CSV file, as it is."""
    with path.open() as file:
        return list(csv.DictReader(file))


def continuation(out: Path) -> None:
    """K in training, and what stays solved meanwhile."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.4), layout="constrained", width_ratios=(1, 1.1))
    runs = defaultdict(list)
    for row in read_rows(RESULTS / "gridworld" / "curves.csv"):
        if row["label"] == "16x16":
            runs[row["seed"]].append([float(row[name]) for name in ("episodes", "K", "final_success")])
    curves = [np.array(rows).T for rows in runs.values()]
    for episodes, K, _ in curves:
        left.plot(episodes, K, color=STATE, alpha=0.35, lw=1.3)
    at = np.arange(0, 501, 50)
    average = np.mean([np.interp(at, episodes, K) for episodes, K, _ in curves], axis=0)
    success = np.mean([np.interp(at, episodes, reached) for episodes, _, reached in curves], axis=0)
    left.plot(at, average, color=STATE, lw=2.8)
    left.set(xlabel="training episodes", ylabel="K, the longest k", ylim=(0, 21), xlim=(0, 500))
    left.yaxis.label.set_color(STATE)
    other = left.twinx()
    other.plot(at, success, color=GOAL, lw=2.8)
    other.set(ylabel="final success on unseen maps", ylim=(0, 1.05))
    other.yaxis.label.set_color("#b06f14")
    other.spines["right"].set_visible(True)
    left.set_title(f"GridWorld 16x16: K grows ({len(curves)} seeds)")
    left.set_yticks([1, 5, 10, 15, 20])
    other.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    left.grid(alpha=0.2)
    left.text(215, 14.2, "K (thin: each seed)", color=STATE)
    left.annotate(
        "final success", (275, 18.9), (300, 16.2), color="#b06f14", arrowprops={"arrowstyle": "-", "color": "#b06f14"}
    )

    run = json.loads((RESULTS / "hanoi" / "study.json").read_text())["seed 0"]
    episodes = run["episodes"][1:]
    solved = np.array([run[f"continuation_{k}"][1:] for k in range(1, 16)], float)
    image = right.imshow(solved, origin="lower", aspect="auto", cmap=BLUES, vmin=0.5, vmax=1.0)
    right.set(xlabel="training episodes", ylabel="i, the steps of a pair")
    right.set_xticks(range(len(episodes)), [f"{round(count / 1000)}k" for count in episodes])
    right.set_yticks(range(0, 15, 2), [str(k) for k in range(1, 16, 2)])
    right.spines[["left", "bottom"]].set_visible(False)
    right.tick_params(length=0)
    right.text(-0.42, 13.2, "not learned\nyet", color=MUTED, style="italic", va="center")
    figure.colorbar(image, ax=right, label="share solved in i steps", pad=0.02, extend="min")
    right.set_title("Hanoi: what was learned stays solved")
    save(figure, out)


def kept_pairs(kind: type[PCHID] | type[PEHID], episodes: NDArray[np.int64], K_max: int) -> NDArray[np.float64]:
    """For each k and block of episodes, the pairs that went into a buffer, for each episode."""
    env = GoalVecEnv.make("Hanoi-v0", num_envs=16, n_discs=3)
    model = kind(
        "GoalPolicy",
        env,
        K_max=K_max,
        updates_per_episode=4,
        exploration=0.1,
        noise=0.5,
        buffer_size=1_000_000,
        convergence=Convergence(pairs=8, patience=10),
        seed=0,
    )
    counts = [np.zeros(K_max + 1)]
    for until in episodes:
        model.learn(MAX_STEPS - model.num_timesteps, total_episodes=int(until), reset_num_timesteps=False)
        stored = [buffer.everything().k for buffer in model.learner.buffers.buffers.values()]
        counts.append(np.bincount(np.concatenate(stored), minlength=K_max + 1).astype(float))
    kept: NDArray[np.float64] = np.diff(counts, axis=0).T[1:] / np.diff([0, *episodes])
    return kept


def evolution(out: Path) -> None:
    """Which pairs are kept when: one k after the other, or all at once until they are learned."""
    blocks, K_max = np.arange(50, 1001, 50), 7
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.0), layout="constrained", sharey=True)
    image = None
    titles = {
        PCHID: "PCHID: k joins when k − 1 has converged",
        PEHID: "PEHID: all k, until the policy can do them",
    }
    for axes, (kind, title) in zip(panels, titles.items(), strict=True):
        kept = kept_pairs(kind, blocks, K_max)
        image = axes.imshow(
            np.where(kept > 0, kept, np.nan),
            origin="lower",
            aspect="auto",
            cmap=BLUES,
            norm=LogNorm(0.05, 10),
            extent=(0, blocks[-1], 0.5, K_max + 0.5),
        )
        axes.set(xlabel="training episodes", title=title)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.tick_params(length=0)
        for k in range(2, K_max + 1):
            axes.axhline(k - 0.5, color="white", lw=1.5)
    panels[0].set(ylabel="k")
    bar = figure.colorbar(image, ax=panels, label="pairs kept, per episode", pad=0.015)
    bar.set_ticks([0.1, 1, 10], labels=["0.1", "1", "10"])
    save(figure, out)


# The Ornstein-Uhlenbeck view.


def drift(out: Path) -> None:
    """Paths with weak and strong drift, the first hitting time, and policies in training."""
    study = json.loads((RESULTS / "ou" / "study.json").read_text())
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(8.6, 3.1), layout="constrained")
    rng = np.random.default_rng(3)
    time = np.linspace(0.0, 8.0, 401)
    for theta, colour in ((0.1, GOAL), (1.0, STATE)):
        path = [2.0]
        decay = np.exp(-theta * time[1])
        spread = np.sqrt((1.0 - decay**2) / (2.0 * theta)) * 0.45
        for noise in rng.standard_normal(len(time) - 1):
            path.append(path[-1] * decay + spread * noise)
        hit = int(np.argmax(np.array(path) <= 0.0)) if min(path) <= 0.0 else len(path) - 1
        left.plot(time[: hit + 1], path[: hit + 1], color=colour, lw=1.3)
        left.plot(time, mean(time, 2.0, 0.0, theta), color=colour, lw=1.5, ls="--", alpha=0.7)
        if path[hit] <= 0.0:
            left.plot(time[hit], 0.0, "o", color=colour, ms=7, zorder=5)
    left.axhline(0.0, color=MUTED, lw=1.0)
    left.text(7.95, -0.2, "goal", color=MUTED, ha="right")
    left.text(2.6, 2.3, "weak pull, θ = 0.1", color="#b06f14")
    left.text(0.75, -0.55, "strong pull, θ = 1", color=STATE)
    left.set(xlabel="time", ylabel="position", ylim=(-0.75, 3.0), xlim=(0, 8))
    left.set_title("pulled, and shaken")

    thetas = np.geomspace(0.09, 5.6, 80)
    middle.plot(thetas, expected_hitting_time(2.0, 0.0, thetas, 1.0), color=STATE, lw=2, label="closed form")
    points = study["theory"]
    middle.plot(
        [point["theta"] for point in points],
        [point["simulated"] for point in points],
        "o",
        color=GOAL,
        ms=6.5,
        label="simulated",
    )
    middle.set(xscale="log", yscale="log", xlabel="drift θ", ylabel="mean time to the goal")
    middle.set_xticks([0.1, 1], ["0.1", "1"])
    middle.set_yticks([0.5, 1, 2, 5], ["0.5", "1", "2", "5"])
    middle.minorticks_off()
    middle.legend(frameon=False)
    middle.set_title("more drift, sooner there")

    policies = study["policies"]
    shown = right.scatter(
        [point["step_fraction"] for point in policies],
        [point["steps_to_goal"] for point in policies],
        c=[point["episodes"] for point in policies],
        cmap=LinearSegmentedColormap.from_list("age", [GOAL, "#8f7f8f", STATE]),
        s=44,
        edgecolors="white",
        linewidths=0.6,
        zorder=3,
    )
    right.set(xlabel="share of the way in a step", ylabel="steps to the goal", ylim=(0, 28))
    figure.colorbar(shown, ax=right, label="training episodes", pad=0.02, ticks=[1, 4, 7, 10])
    right.set_title("PCHID on FetchReach")
    for axes in (left, middle, right):
        axes.grid(alpha=0.2)
    save(figure, out)


# The whole in one picture.


def loop(out: Path) -> None:
    """The way of the data."""
    figure, axes = plt.subplots(figsize=(8.6, 2.75))
    figure.subplots_adjust(0, 0, 1, 1)
    axes.set(xlim=(0, 106), ylim=(0, 32))
    axes.axis("off")
    top, bottom, width, height = 22.5, 7.0, 17.0, 7.4
    columns = [1.0 + 21.75 * column for column in range(5)]
    boxes = {
        "environment": (columns[0], top, "environment", "with a behaviour policy", "#eaf1f9"),
        "episodes": (columns[1], top, "episodes", "most of them fail", "#eaf1f9"),
        "pairs": (columns[2], top, "hindsight pairs", r"(s$_t$, m(s$_{t+k}$), a$_t$), k in K", "#fdf1de"),
        "test": (columns[3], top, "TEST", "does it need k steps?", "#fdf1de"),
        "buffers": (columns[4], top, r"buffers B$_k$", "pairs worth learning", "#fdf1de"),
        "steps": (columns[4], bottom, "supervised steps", r"(s$_t$, m(s$_{t+k}$)) → a$_t$", "#e6f3eb"),
        "policy": (columns[3], bottom, "policy π(s, g)", "one network for all k", "#e6f3eb"),
        "curriculum": (columns[2], bottom, "K = [1, 2, …]", "grows at convergence", "#e6f3eb"),
    }
    for x, y, name, what, colour in boxes.values():
        shape = FancyBboxPatch((x, y), width, height, "round,pad=0,rounding_size=1.2", fc=colour, ec="#aeb6c2", lw=1.1)
        axes.add_patch(shape)
        axes.text(x + width / 2, y + height * 0.64, name, ha="center", va="center", weight="bold", fontsize=9.2)
        axes.text(x + width / 2, y + height * 0.28, what, ha="center", va="center", fontsize=7.4, color=MUTED)

    def connect(*corners: tuple[float, float], colour: str = INK) -> None:
        axes.plot(*zip(*corners[:-1], strict=True), color=colour, lw=1.5, solid_joinstyle="round")
        style = "-|>,head_width=3.5,head_length=6"
        axes.add_patch(FancyArrowPatch(*corners[-2:], arrowstyle=style, lw=1.5, color=colour, shrinkA=0, shrinkB=1))

    middle = [x + width / 2 for x in columns]
    for column in range(4):
        connect((columns[column] + width, top + height / 2), (columns[column + 1], top + height / 2))
    connect((middle[4], top), (middle[4], bottom + height))
    connect((columns[4], bottom + height / 2), (columns[3] + width, bottom + height / 2))
    connect((columns[3], bottom + height / 2), (columns[2] + width, bottom + height / 2))
    connect((middle[2], bottom + height), (middle[2], top))
    connect((middle[3], bottom + height), (middle[3], top), colour=POLICY)
    connect((middle[3], bottom), (middle[3], 3.0), (middle[0], 3.0), (middle[0], top))
    for x, y, words, colour in (
        (middle[3] + 1, 18.4, "tries each pair", POLICY),
        (middle[2] + 1, 18.4, "which k", MUTED),
        (middle[0] + 1, 12.0, "acts, with noise", MUTED),
    ):
        axes.text(x, y, words, color=colour, fontsize=8.5, style="italic", va="center")
    save(figure, out)


PICTURES: dict[str, Callable[[Path], None]] = {
    "loop": loop,
    "relabelling": relabelling,
    "test": verdicts,
    "continuation": continuation,
    "evolution": evolution,
    "drift": drift,
}

if __name__ == "__main__":
    main(sys.argv[1:])
