"""Beyond the paper: how many steps SAC and TD3 need on FetchReach until every evaluation episode ends at the goal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pchid.experiments.claims import Claim, Judge, Word
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.plots import Panel
from pchid.experiments.statistics import estimate

if TYPE_CHECKING:
    from pchid.experiments.results import Results

SETTINGS = {
    "eval_every": 2,
    "eval_episodes": 30,
    "final_episodes": 30,
    "sb3.policy_kwargs": {"net_arch": [256, 256, 256]},
}
ALONE = {"episodes": 160, **SETTINGS}
# What the algorithm's own loss asks of the shared network is wrong until its critic has seen enough: earlier, or at a
# learning rate of 1e-3, it drags the network away from what hindsight has taught it (docs/combinations.md).
EARLY = {"episodes": 30, "updates_per_episode": 100, "sb3.learning_rate": 3e-4, **SETTINGS}
JOINT = {**EARLY, "episodes": 40, "sb3.learning_starts": 1000}
ROWS = {
    base: (
        Row(f"{base}+HER", "FetchReach-v4", f"{base.lower()}+her", ALONE),
        Row(f"{base}+HER+PCHID", "FetchReach-v4", f"{base.lower()}+her+pchid", JOINT),
        Row(f"{base}+HER+PCHID, from step 200", "FetchReach-v4", f"{base.lower()}+her+pchid", EARLY),
    )
    for base in ("SAC", "TD3")
}


def steps_to_success(results: Results, label: str) -> list[float]:
    """For each seed, environment and TEST steps at the first evaluation without a failure.

    A run that never got there counts all its steps, which flatters it.
    """
    firsts = [next((row for row in rows if solved(row)), rows[-1]) for rows in results.curves[label]]
    return [row["env_steps"] + row["test_steps"] for row in firsts]


def solved(row: dict[str, float]) -> bool:
    """No evaluation episode failed."""
    return row["final_success"] == 1.0


def never_solved(results: Results, label: str) -> int:
    """How many seeds never had an evaluation without a failure."""
    return sum(not any(solved(row) for row in rows) for rows in results.curves[label])


def half_of(label: str, other: str) -> Judge:
    """At most half of the steps of the other, by the near ends of the intervals, and every seed gets there."""

    def verdict(results: Results) -> tuple[Word, str]:
        one, two = estimate(steps_to_success(results, label)), estimate(steps_to_success(results, other))
        short = never_solved(results, label)
        word: Word = "reproduced" if one.high <= two.low / 2 and not short else "not reproduced"
        why = f"{one.iqm:,.0f} [{one.low:,.0f}, {one.high:,.0f}] environment and TEST steps, "
        why += f"{other} alone {two.iqm:,.0f} [{two.low:,.0f}, {two.high:,.0f}]"
        return word, why + f"; seeds that never get there: {short} and {never_solved(results, other)}"

    return verdict


STEPS = Experiment(
    name="steps",
    shows="FetchReach: SAC+HER and TD3+HER, alone and with joint training, until no evaluation episode fails",
    rows=tuple(row for rows in ROWS.values() for row in rows),
    seeds=5,
    minutes=100,
    claims=tuple(
        Claim(
            f"{base}+HER with joint training needs at most half the steps (not in the paper)",
            half_of(f"{base}+HER+PCHID", f"{base}+HER"),
        )
        for base in ROWS
    ),
    panels=tuple(
        Panel("final_success", "all_steps", labels=tuple(row.label for row in rows)) for rows in ROWS.values()
    ),
    quick={"episodes": 10, "eval_episodes": 10, "final_episodes": 10},
    quick_seeds=1,
)
