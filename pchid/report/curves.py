"""Learning curves as numbers that a page can draw.

In: the evaluations of all runs of an experiment. Out: for each row, measure and axis the interquartile mean over seeds
and its 95 % interval, as in every other plot; and what the paper reports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pchid.errors import InputError
from pchid.experiments.plots import AXES, MEASURES, Panel, curve
from pchid.experiments.results import Results

Points = list[dict[str, float]]
DIGITS = 5
"""Of each number: more cannot be seen, and would make the page larger."""


def chart(results: Results) -> dict[str, Any]:
    """All curves of an experiment, and which of them to show first."""
    panels = results.experiment.panels or (Panel(),)
    return {
        "name": results.experiment.name,
        "rows": [_row(results, label) for label in results.curves],
        "comparable": comparable(panels),
        "published": [
            {"name": name, "measure": panel.measure, "axis": panel.axis, "points": [list(point) for point in points]}
            for panel in panels
            for name, points in panel.published.items()
        ],
        "measure": panels[0].measure,
        "axis": panels[0].axis,
    }


def _row(results: Results, label: str) -> dict[str, Any]:
    runs = results.curves[label]
    try:
        return {"label": label, "seeds": len(runs), "curves": lines(runs)}
    except InputError as error:
        raise InputError(f"{results.folder / 'curves.csv'}, row {label}: {error}") from None


def comparable(panels: Sequence[Panel]) -> dict[str, list[str]]:
    """By measure the rows that figures compare, where they leave some out: those count in another coin, say."""
    found: dict[str, list[str]] = {}
    for measure in {panel.measure for panel in panels}:
        labels = [panel.labels for panel in panels if panel.measure == measure]
        if all(labels):
            found[measure] = [label for some in labels for label in some]
    return found


def lines(runs: list[Points]) -> dict[str, dict[str, Any]]:
    """The curve of a row by measure and axis, where all its runs have the measure."""
    found: dict[str, dict[str, Any]] = {}
    for measure in MEASURES:
        # What TEST gets right, say, is not known before it has been asked.
        known = [[point for point in points if not math.isnan(point[measure])] for points in runs]
        if not all(known):
            continue
        found[measure] = {}
        for axis in AXES:
            parts = zip(("x", "centre", "low", "high"), curve(known, axis, measure), strict=True)
            found[measure][axis] = {name: [rounded(number) for number in part] for name, part in parts}
    return found


def measures_of(charts: list[dict[str, Any]]) -> dict[str, str]:
    """The measures that any of the rows has, in their order, with the words for them."""
    found = {measure for chart in charts for row in chart["rows"] for measure in row["curves"]}
    return {measure: words for measure, words in MEASURES.items() if measure in found}


def rounded(number: float) -> float:
    """The number with as many digits as are shown."""
    value = float(f"{number:.{DIGITS}g}")
    if not math.isfinite(value):
        raise InputError(f"{number} is not a number that can be drawn")
    return int(value) if value.is_integer() else value
