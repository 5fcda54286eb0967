"""What TEST costs PEHID on FetchSlide, where it is dearest, and what a third of it does."""

from __future__ import annotations

from typing import Any

from pchid.experiments.claims import Claim, about_equal, reaches
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.figures.table1 import QUICK, SETTINGS, TASKS
from pchid.experiments.plots import Panel

RECOMMENDED = "as recommended"
"""The very runs of Table 1."""
THIRD = "a third of the TEST steps"
# Rarely looked at, because an evaluation with its continuation measure simulates as much as 6,000 steps of training do.
CHEAP: dict[str, Any] = {**SETTINGS, "eval_every": 125_000, "test_budget": 1.2}
PUBLISHED = 0.38

SLIDE_BUDGET = Experiment(
    name="slide-budget",
    shows="PEHID on FetchSlide, 1.25M steps: with the recommended TEST budget, and with a third of it",
    rows=(Row(RECOMMENDED, TASKS["Slide"], "pehid", SETTINGS), Row(THIRD, TASKS["Slide"], "pehid", CHEAP, 2)),
    seeds=3,
    minutes=240,
    claims=(
        Claim("a third of the TEST steps: the paper's 0.38", reaches(THIRD, PUBLISHED, "any_success")),
        Claim(
            "a third of the TEST steps is as good, within .05",
            about_equal(THIRD, RECOMMENDED, 0.05, "any_success"),
        ),
    ),
    panels=tuple(Panel("any_success", axis) for axis in ("env_steps", "all_steps")),
    quick=QUICK,
    quick_seeds=1,
    lasting=True,
)
