"""What TEST is worth to PEHID on FetchSlide, where it is dearest: the recommended budget, and a third of it."""

from __future__ import annotations

from typing import Any

from pchid.experiments.claims import Claim, above, reaches
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.figures.table1 import QUICK, SETTINGS, TASKS
from pchid.experiments.plots import Panel

RECOMMENDED = "as recommended"
"""The very runs of Table 1: where its folder of runs is at hand, they are not repeated."""
THIRD = "a third of the TEST budget"
# Rarely looked at: an evaluation with its continuation measure simulates some 25,000 steps here.
CHEAP: dict[str, Any] = {**SETTINGS, "eval_every": 125_000, "test_budget": 1.2}

SLIDE_BUDGET = Experiment(
    name="slide-budget",
    shows="PEHID on FetchSlide, 1.25M steps: with the recommended TEST budget, and with a third of it",
    rows=(Row(RECOMMENDED, TASKS["Slide"], "pehid", SETTINGS), Row(THIRD, TASKS["Slide"], "pehid", CHEAP, 2)),
    seeds=3,
    minutes=240,
    claims=(
        Claim("a third of the TEST budget: 0.38, the paper's", reaches(THIRD, 0.38, "any_success")),
        Claim("the recommended TEST budget is better than a third of it", above(RECOMMENDED, THIRD, "any_success")),
    ),
    panels=tuple(Panel("any_success", axis) for axis in ("env_steps", "all_steps")),
    quick=QUICK,
    quick_seeds=1,
    lasting=True,
)
