"""What drives PEHID, on FetchPush: one thing changed at a time."""

from __future__ import annotations

from typing import Any

from pchid.experiments.claims import Claim, above
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.figures.table1 import QUICK, TASKS
from pchid.experiments.plots import Panel

# Most is learned by then (results/ou-push), so what helps shows before that.
SETTINGS: dict[str, Any] = {"steps": 50_000, "eval_every": 12_500, "num_envs": 32, "final_episodes": 300}
RECOMMENDED = "as recommended"
CHANGES: dict[str, dict[str, Any]] = {
    RECOMMENDED: {},
    "no TEST": {"test": "none"},
    # Many more pairs are kept without TEST; with 60 passes over each, most of the time would go into supervised steps.
    "no TEST, 8 passes": {"test": "none", "passes_per_pair": 8},
    "no TEST, 150,000 steps": {"test": "none", "steps": 150_000},  # as many in all as with TEST
    "a third of the TEST budget": {"test_budget": 1.2},
    "TEST drawn evenly": {"draw": "even"},
    "5 cm, in TEST and displacement": {"test_tolerance": 0.05, "min_displacement": 0.05},
    "1 cm, in TEST and displacement": {"test_tolerance": 0.01, "min_displacement": 0.01},
    "noise of 1.5 in every episode": {"noise": 1.5},
    "noise of 0.5 in every episode": {"noise": 0.5},
    "noise of 0.2, 30 % random actions": {"noise": 0.2, "exploration": 0.3},
    "noise anew in each step": {"persistence": 0},
    "K up to 4": {"K_max": 4},
    "K up to 4, and 1 cm": {"K_max": 4, "test_tolerance": 0.01, "min_displacement": 0.01},
    "K up to 16": {"K_max": 16},
    "no symmetries": {"symmetries": False},
    "goals at any distance": {"policy.reach": 1},
    "128 units a layer": {"policy.hidden_sizes": [128, 128, 128]},
    "30 passes": {"passes_per_pair": 30},
    "no averaged network": {"policy.averaging": 0, "policy.averaging_warmup": False},
    "goals not held": {"hold_goal": False},
}
TOGETHER = (
    ("no TEST", "no TEST, 8 passes", "a third of the TEST budget", "TEST drawn evenly"),
    (
        "5 cm, in TEST and displacement",
        "1 cm, in TEST and displacement",
        "K up to 4, and 1 cm",
        "K up to 4",
        "K up to 16",
    ),
    (
        "noise of 1.5 in every episode",
        "noise of 0.5 in every episode",
        "noise of 0.2, 30 % random actions",
        "noise anew in each step",
    ),
    ("no symmetries", "goals at any distance", "128 units a layer", "30 passes", "no averaged network"),
)
"""Rows that are drawn in one panel."""

PUSH_ABLATIONS = Experiment(
    name="push-ablations",
    shows="PEHID on FetchPush, 50,000 steps: the recommended settings, one thing changed at a time",
    rows=tuple(Row(name, TASKS["Push"], "pehid", {**SETTINGS, **changes}) for name, changes in CHANGES.items()),
    seeds=3,
    minutes=60,
    claims=(
        Claim("TEST helps: better with it than without", above(RECOMMENDED, "no TEST", "any_success")),
        Claim(
            "TEST is worth its steps: better with it than without after as many steps in all",
            above(RECOMMENDED, "no TEST, 150,000 steps", "any_success"),
        ),
        Claim("calm and wild episodes help", above(RECOMMENDED, "noise of 1.5 in every episode", "any_success")),
        Claim("no goal farther than pieces reach helps", above(RECOMMENDED, "goals at any distance", "any_success")),
        Claim("holding the goal helps final success", above(RECOMMENDED, "goals not held", "final_success")),
    ),
    panels=(
        *(Panel("any_success", "env_steps", labels=(RECOMMENDED, *names)) for names in TOGETHER),
        Panel("final_success", "env_steps", labels=(RECOMMENDED, "goals not held")),
        Panel("any_success", "all_steps", labels=(RECOMMENDED, "no TEST, 150,000 steps")),
    ),
    quick=QUICK,
    quick_seeds=1,
    lasting=True,
)
