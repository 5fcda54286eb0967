"""Figure 1(a): bit flipping with inverse dynamics beside DQN+HER."""

from __future__ import annotations

from pchid.experiments.claims import Claim, above, reaches
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.plots import Panel

WEIGHTS = (0.01, 0.1, 0.5, 1)
SETTINGS = {"episodes": 300, "eval_every": 25, "final_episodes": 500}

FIG1A = Experiment(
    name="fig1a",
    shows="BitFlip, 11 bits: HID's logits added to DQN+HER, by weight, and HID alone",
    rows=(
        Row("DQN+HER", "BitFlip-v0", "dqn+her", SETTINGS),
        *(
            Row(
                f"DQN+HER + {weight:g} HID",
                "BitFlip-v0",
                "dqn+her+hid",
                {**SETTINGS, "combine": "average", "weight": weight},
            )
            for weight in WEIGHTS
        ),
        Row("HID alone", "BitFlip-v0", "hid", SETTINGS),
    ),
    seeds=10,
    minutes=16,
    claims=(
        Claim(
            "adding the logits of inverse dynamics to DQN+HER is a significant improvement",
            above("DQN+HER + 1 HID", "DQN+HER", when="training"),
        ),
        Claim(
            "... with a weight of a tenth, too",
            above("DQN+HER + 0.1 HID", "DQN+HER", when="training"),
        ),
        # Beyond the paper, whose own curve of inverse dynamics alone is flat: its labels were not the executed actions.
        Claim(
            "inverse dynamics alone solves it, if the labels are the executed actions",
            reaches("HID alone", 0.99, whose="solved is"),
        ),
    ),
    panels=(Panel("final_success", "episodes"), Panel("final_success", "all_steps")),
    quick={"episodes": 60, "eval_every": 20, "final_episodes": 100},
)
