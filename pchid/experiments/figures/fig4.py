"""Figure 4: GridWorld. Methods (a), TEST functions (b), accuracy and recall of TEST (c, d)."""

from __future__ import annotations

from pchid.experiments.claims import Claim, about_equal, above, reaches
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.plots import Panel

ENV = "GridWorld-v0"
# As in the paper: the network of Tamar et al., the same for every method, and K up to 5.
NETWORK = {"policy.symmetric": False, "policy.hidden_channels": 20, "policy.iterations": 20}
LEARNING = {"learning_rate": 1e-3, "updates_per_episode": 5, "exploration": 0.3}
ONE_STEP = {"episodes": 500, "eval_every": 50, **LEARNING, **NETWORK}
SETTINGS = {**ONE_STEP, "K_max": 5}
QUICK = {
    "episodes": 24,
    "eval_every": 12,
    "eval_episodes": 20,
    "final_episodes": 50,
    "env.size": 8,
    "policy.iterations": 10,
}
QUANTILES = (0.25, 0.5, 0.75, 0.9)

FIG4A = Experiment(
    name="fig4a",
    shows="GridWorld 16x16, 500 episodes, VIN: DQN with and without HER and PCHID",
    rows=(
        Row("DQN", ENV, "dqn", SETTINGS),
        Row("DQN+HER", ENV, "dqn+her", SETTINGS),
        Row("DQN+PCHID-1", ENV, "dqn+hid", ONE_STEP),
        Row("DQN+PCHID-5", ENV, "dqn+pchid", SETTINGS),
        Row("DQN+HER+PCHID-1", ENV, "dqn+her+hid", ONE_STEP),
        Row("DQN+HER+PCHID-5", ENV, "dqn+her+pchid", SETTINGS),
    ),
    seeds=10,
    minutes=240,
    claims=(
        Claim("HER is a little above DQN", above("DQN+HER", "DQN", when="training")),
        Claim("PCHID-1 learns faster than DQN", above("DQN+PCHID-1", "DQN", when="training")),
        Claim("PCHID-5 is much better", above("DQN+PCHID-5", "DQN+PCHID-1")),
        Claim("with PCHID, HER makes no difference", about_equal("DQN+HER+PCHID-5", "DQN+PCHID-5", 0.05)),
        Claim("HER with PCHID-5 reaches .58 (the authors' networks)", reaches("DQN+HER+PCHID-5", 0.58, whose="theirs")),
    ),
    panels=(Panel("final_success", "episodes"), Panel("final_success", "all_steps")),
    quick=QUICK,
    quick_seeds=1,
)

FIG4B = Experiment(
    name="fig4b",
    shows="GridWorld 16x16, 500 episodes: PCHID alone under each TEST",
    rows=(
        Row("ground truth", ENV, "pchid", {**SETTINGS, "test": "ground-truth"}),
        Row("interaction", ENV, "pchid", {**SETTINGS, "test": "interaction"}),
        Row("RND", ENV, "pchid", {**SETTINGS, "test": "rnd"}),
        Row("one step", ENV, "hid", ONE_STEP),
    ),
    seeds=10,
    minutes=120,
    claims=(
        Claim("interaction is near the ground truth", about_equal("interaction", "ground truth", 0.05)),
        Claim("interaction is above one step", above("interaction", "one step")),
        Claim("RND is above one step", above("RND", "one step")),
    ),
    panels=(Panel("final_success", "episodes"), Panel("final_success", "all_steps")),
    quick=QUICK,
    quick_seeds=1,
)

FIG4CD = Experiment(
    name="fig4cd",
    shows="GridWorld 16x16: accuracy and recall of interaction, and of RND by its threshold, against the ground truth",
    rows=(
        Row("interaction", ENV, "pchid", {**SETTINGS, "test": "interaction"}),
        *(
            Row(f"RND, quantile {quantile:g}", ENV, "pchid", {**SETTINGS, "test": f"rnd:{quantile}"})
            for quantile in QUANTILES
        ),
    ),
    seeds=10,
    minutes=150,
    claims=(
        Claim(
            "interaction judges more accurately than RND",
            above("interaction", "RND, quantile 0.5", "test_accuracy"),
        ),
        Claim("interaction finds more of the true pairs", above("interaction", "RND, quantile 0.5", "test_recall")),
    ),
    panels=(Panel("test_accuracy", "episodes"), Panel("test_recall", "episodes")),
    quick=QUICK,
    quick_seeds=1,
)
