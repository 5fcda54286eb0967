"""Learning curves, of a user's runs and of the paper's figures.

In: the metrics of runs, by label. Out: a figure with a panel for each measure: the interquartile mean over seeds and
its 95 % bootstrap interval, against episodes, environment steps, or environment and TEST steps together.
"""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

from pchid.checkpoint import write_atomically
from pchid.errors import InputError
from pchid.experiments.statistics import interval, iqm
from pchid.methods import parse_method
from pchid.runs import RunDirectory

matplotlib.use("Agg")  # a file is what we make; no window, no display needed
import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter

AXES = {"env_steps": "environment steps", "all_steps": "environment + TEST steps", "episodes": "episodes"}
MEASURES = {
    "final_success": "final success",
    "any_success": "any success",
    "mean_return": "mean return",
    "steps_to_goal": "steps to goal",
    "test_accuracy": "accuracy of TEST",
    "test_recall": "recall of TEST",
}
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568", "#b7791f", "#0987a0", "#9b2c2c", "#276749")
WIDTH, HEIGHT = 5.0, 3.8
IN_A_ROW = 4
"""Panels, at most."""

Curves = Mapping[str, Sequence[list[dict[str, float]]]]
"""By label: for each seed, the rows of its metrics.csv."""
Line = NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """One picture: some curves, one measure, one axis."""

    measure: str = "final_success"
    axis: str = "env_steps"
    labels: tuple[str, ...] = ()
    """Which curves; all, if none is named."""
    published: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Points of somebody else's curves, as (x, y), by name."""
    title: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the legend calls a curve in place of its label; curves of one name look alike in all panels."""

    def name(self, label: str) -> str:
        """What a curve is called."""
        return self.names.get(label, label)


def plot_runs(paths: list[Path], out: Path, axis: str = "env_steps") -> Path:
    """One curve for each (environment, method) among the run directories: final success, and return."""
    groups: dict[str, list[list[dict[str, float]]]] = defaultdict(list)
    environments = {}
    for path in paths:
        directory = RunDirectory(path)
        config = directory.read_config()
        groups[_label(config)].append(directory.read_metrics())
        environments[config["env"]] = True
    return draw_panels(groups, [Panel(axis=axis), Panel("mean_return", axis)], ", ".join(environments), out)


def draw_panels(curves: Curves, panels: Sequence[Panel], title: str, out: Path) -> Path:
    """Draw the panels, with one legend for all, and save the picture."""
    # Where some runs are still missing, there may be nothing to draw in a panel.
    panels = [panel for panel in panels if not panel.labels or set(panel.labels) & set(curves)] or panels[:1]
    shown = {
        panel.name(label): None for label in curves for panel in panels if not panel.labels or label in panel.labels
    }
    styles: dict[str, dict[str, Any]] = {
        name: {"color": COLOURS[index % len(COLOURS)], "ls": ("-", "--", ":")[index // len(COLOURS) % 3]}
        for index, name in enumerate(shown)
    }
    rows = math.ceil(len(panels) / IN_A_ROW)
    columns = math.ceil(len(panels) / rows)
    size = (WIDTH * columns, HEIGHT * rows + 0.12 * len(shown))
    figure, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    drawn = list(grid.flat)
    for axes in drawn[len(panels) :]:
        axes.remove()
    for axes, panel in zip(drawn, panels, strict=False):
        for label in [name for name in curves if name in panel.labels or not panel.labels]:
            x, centre, low, high = curve(curves[label], panel.axis, panel.measure)
            name, seeds = panel.name(label), len(curves[label])
            # One name may stand for curves of several panels, which need not have the same seeds.
            entry = name if label in panel.names else f"{name} ({seeds} seed{'s' * (seeds > 1)})"
            axes.plot(x, centre, label=entry, marker="o", ms=3, **styles[name])
            axes.fill_between(x, low, high, color=styles[name]["color"], alpha=0.18, lw=0)
        for number, (name, points) in enumerate(panel.published.items()):
            style: dict[str, Any] = {"color": "#1a202c", "ls": ("--", ":", "-.")[number % 3], "lw": 1.2}
            axes.plot(*np.transpose(points), label=panel.name(name), marker="x", ms=5, **style)
        _dress(axes, panel)
    handles = {
        label: handle
        for axes in drawn[: len(panels)]
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(),
        handles,
        loc="outside lower center",
        ncols=min(columns + 1, len(handles)),
        frameon=False,
        fontsize=8,
    )
    figure.suptitle(title, fontsize=11)
    out.parent.mkdir(parents=True, exist_ok=True)
    save_picture(figure, out)
    return out


def plain(axes: Any) -> None:
    """Give axes the looks that all of ours have."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def save_picture(figure: Any, out: Path) -> None:
    """Write a picture, whole or not at all."""
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format=out.suffix.removeprefix(".") or "png")
    plt.close(figure)
    write_atomically(out, picture.getvalue())


def curve(runs: Sequence[list[dict[str, float]]], axis: str, measure: str) -> tuple[Line, Line, Line, Line]:
    """x, interquartile mean and its interval over runs, each interpolated on their common range of x."""
    xs = [np.array([_place(row, axis) for row in rows]) for rows in runs]
    ys = [np.array([row[measure] for row in rows]) for rows in runs]
    longest = max(xs, key=len)
    end = min(values[-1] for values in xs)
    if end < max(values[0] for values in xs):
        raise InputError("these runs have no step in common; plot them apart")
    x: Line = np.unique(np.append(longest[longest <= end], end))  # runs rarely stop at the very same step
    values = np.stack([np.interp(x, run_x, run_y) for run_x, run_y in zip(xs, ys, strict=True)], axis=-1)
    return x, iqm(values), *interval(values)


def _place(row: dict[str, float], axis: str) -> float:
    return row["env_steps"] + row["test_steps"] if axis == "all_steps" else row[axis]


def _dress(axes: Any, panel: Panel) -> None:
    axes.set(xlabel=AXES[panel.axis], ylabel=MEASURES[panel.measure], title=panel.title)
    if "success" in panel.measure or panel.measure.startswith("test"):
        axes.set(ylim=(-0.03, 1.03))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    plain(axes)


def _label(config: dict[str, Any]) -> str:
    method = str(config["method"])
    parts = parse_method(method)
    details = [] if parts.one_step or parts.module is None else [f"K={config['K_max']}"]
    if parts.base is None and details:
        details.append(str(config["test"]))
    if config["combine"] is not None:
        details.append(f"{config['combine']} {config['weight']:g}")
    options = [f"{name}={value}" for name, value in config["env_options"].items()]
    return " ".join([method, *details, *options])
