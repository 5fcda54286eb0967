"""Beyond the paper: PCHID alone on each domain, with the recommended settings and a control beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pchid.experiments.claims import Claim, above, reaches, stays_below
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.plots import Panel

if TYPE_CHECKING:
    from pchid.experiments.results import Results

PANELS = (Panel("final_success", "episodes"), Panel("final_success", "all_steps"))
SMALL = {"eval_episodes": 10, "final_episodes": 20}
FIFTY = {"episodes": 3000, "env.n_bits": 50}

BITFLIP = Experiment(
    name="bitflip",
    shows="Bit flipping, 11 and 50 bits: one-step hindsight, and what it needs",
    rows=(
        Row("11 bits, HID", "BitFlip-v0", "hid", {"episodes": 300}),
        Row("11 bits, inverse dynamics", "BitFlip-v0", "id", {"episodes": 300}),
        Row("50 bits, HID", "BitFlip-v0", "hid", FIFTY),
        Row("50 bits, no agreement", "BitFlip-v0", "hid", {**FIFTY, "policy.agreement": False}),
        Row("50 bits, 10 updates an episode", "BitFlip-v0", "hid", {**FIFTY, "updates_per_episode": 10}),
    ),
    seeds=5,
    minutes=14,
    claims=(
        Claim("11 bits: solved by one-step hindsight", reaches("11 bits, HID", 0.995, whose="a sketch's")),
        Claim(
            "inverse dynamics without hindsight learns nothing",
            stays_below("11 bits, inverse dynamics", 0.05, whose="asked for:"),
        ),
        Claim("50 bits: as HER's paper solves it, with DQN", reaches("50 bits, HID", 0.99, whose="HER's about")),
    ),
    panels=PANELS,
    quick={"episodes": 40, "eval_every": 20, "env.n_bits": 6, **SMALL},
)

FETCHREACH = Experiment(
    name="fetchreach",
    shows="FetchReach, 10 episodes: PCHID, with and without a null action at the goal",
    rows=(
        Row("PCHID", "FetchReach-v4", "pchid", {"episodes": 10}),
        Row("PCHID, holding", "FetchReach-v4", "pchid", {"episodes": 10, "hold_goal": True}),
        Row("inverse dynamics", "FetchReach-v4", "id", {"episodes": 10}),
    ),
    seeds=10,
    minutes=4,
    claims=(
        Claim("solved after 10 episodes", reaches("PCHID", 1.0, whose="a sketch's")),
        Claim(
            "inverse dynamics without hindsight learns little", stays_below("inverse dynamics", 0.1, whose="asked for:")
        ),
    ),
    panels=PANELS,
    quick={"episodes": 4, "eval_every": 2, **SMALL},
    policies=("PCHID",),
)


def continuation(results: Results, quick: bool) -> None:
    """How each policy continues the one before (Def. 4): for each seed, what share of i-step pairs it solves."""
    results.study = {
        f"seed {summary['seed']}": {
            name: [row[name] if row[name] == row[name] else None for row in rows]
            for name in (
                "episodes",
                "test_pass_rate",
                *(found for found in rows[0] if found.startswith("continuation_")),
            )
        }
        for summary, rows in zip(results.summaries["PCHID"], results.curves["PCHID"], strict=True)
    }


HANOI = Experiment(
    name="hanoi",
    shows="The Tower of Hanoi, 4 discs, 30,000 episodes: continuation against one-step hindsight",
    rows=(
        Row("PCHID", "Hanoi-v0", "pchid", {"episodes": 30_000}),
        Row("one step", "Hanoi-v0", "hid", {"episodes": 30_000}),
    ),
    seeds=3,
    minutes=22,
    claims=(Claim("continuation solves what one step cannot", above("PCHID", "one step")),),
    panels=PANELS,
    quick={"episodes": 200, "eval_every": 100, "env.n_discs": 2, **SMALL},
    quick_seeds=1,
    policies=("PCHID",),
    study=continuation,
)

POINTMAZE = Experiment(
    name="pointmaze",
    shows="PointMaze_UMaze, 240 episodes: TEST by interaction on an environment of gymnasium-robotics",
    rows=(Row("PCHID", "PointMaze_UMaze-v3", "pchid", {"episodes": 240}),),
    seeds=3,
    minutes=9,
    claims=(Claim("the wall is no obstacle any more: .9", reaches("PCHID", 0.9, whose="asked for:")),),
    panels=PANELS,
    quick={"episodes": 8, "eval_every": 4, "K_max": 40, "eval_episodes": 8, "final_episodes": 8},
    quick_seeds=1,
    policies=("PCHID",),
)
