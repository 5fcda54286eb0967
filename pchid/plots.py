"""Learning curves of runs.

In: the metrics.csv of run directories. Out: a figure: final success and return against steps, seeds averaged.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pchid.errors import InputError
from pchid.methods import parse_method
from pchid.runs import RunDirectory

matplotlib.use("Agg")  # a file is what we make; no window, no display needed
import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter

AXES = {"env_steps": "environment steps", "all_steps": "environment + TEST steps", "episodes": "episodes"}
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568")


def plot_runs(paths: list[Path], out: Path, axis: str = "env_steps") -> Path:
    """One curve for each (environment, method), with the 95 % interval over its seeds; saved as a picture."""
    groups: dict[str, list[list[dict[str, float]]]] = defaultdict(list)
    environments = {}
    for path in paths:
        directory = RunDirectory(path)
        config, rows = directory.read_config(), directory.read_metrics()
        for row in rows:
            row["all_steps"] = row["env_steps"] + row["test_steps"]
        groups[_label(config)].append(rows)
        environments[config["env"]] = True
    figure, (success, reward) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for colour, (label, runs) in zip(COLOURS * (1 + len(groups) // len(COLOURS)), groups.items(), strict=False):
        for axes, column in ((success, "final_success"), (reward, "mean_return")):
            x, mean, half = curve(runs, axis, column)
            axes.plot(
                x, mean, color=colour, label=f"{label} ({len(runs)} seed{'s' * (len(runs) > 1)})", marker="o", ms=3
            )
            axes.fill_between(x, mean - half, mean + half, color=colour, alpha=0.18, lw=0)
    success.set(ylabel="final success", ylim=(-0.03, 1.03))
    reward.set(ylabel="mean return")
    success.legend(frameon=False, fontsize=9)
    for axes in (success, reward):
        axes.set(xlabel=AXES[axis])
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(", ".join(environments))
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
    plt.close(figure)
    return out


def curve(
    runs: list[list[dict[str, float]]], axis: str, column: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """x, mean and half-width of the 95 % t-interval over runs, each interpolated on their common range of x.

    Fewer than three runs have no interval worth drawing: it is 0.
    """
    xs: list[NDArray[np.float64]] = [np.array([row[axis] for row in rows]) for rows in runs]
    ys: list[NDArray[np.float64]] = [np.array([row[column] for row in rows]) for rows in runs]
    longest = max(xs, key=len)
    x = longest[longest <= min(values[-1] for values in xs)]
    if len(x) == 0:
        raise InputError("these runs have no step in common; plot them apart")
    values: Any = np.stack([np.interp(x, run_x, run_y) for run_x, run_y in zip(xs, ys, strict=True)])
    mean = values.mean(axis=0)
    if len(runs) < 3:
        return x, mean, np.zeros_like(mean)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(runs))
    return x, mean, stats.t.ppf(0.975, len(runs) - 1) * error


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
