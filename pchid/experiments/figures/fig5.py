"""Figure 5: FetchReach, what hindsight inverse dynamics adds to PPO, with HER and without."""

from __future__ import annotations

from pchid.experiments.claims import Claim, about_equal, above, identical, reaches, stays_below
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.plots import Panel

ENV = "FetchReach-v4"
SETTINGS = {"episodes": 100, "eval_every": 10, "eval_episodes": 20}
TEN = {"env.success_reward": 10}
COMPARABLE = ("PPO", "PPO+HER", "PCHID-1", "PCHID-5", "PPO+PCHID", "PPO+HER+PCHID")
"""The rows whose returns count in the same coin."""
AT_THE_TOP = "here both end at 1, so there is nothing left to improve"

# The authors' logs, 5 seeds: any success of the stochastic policy, mean of the 20 episodes before.
PUBLISHED = {
    "paper, PCHID-1": ((20, 0.16), (50, 0.39), (100, 0.74)),
    "paper, PCHID-5": ((20, 0.16), (50, 0.37), (100, 0.74)),
    "paper, PPO+HER+PCHID-1": ((20, 0.13), (50, 0.29), (100, 0.60)),
}

FIG5 = Experiment(
    name="fig5",
    shows="FetchReach, 100 episodes: success and return of PPO with and without hindsight",
    rows=(
        Row("PPO", ENV, "ppo", SETTINGS),
        Row("PPO, reward 10", ENV, "ppo", {**SETTINGS, **TEN}),
        Row("PPO+HER", ENV, "ppo+her", SETTINGS),
        Row("PCHID-1", ENV, "hid", SETTINGS),
        Row("PCHID-5", ENV, "pchid", SETTINGS),
        Row("PCHID-5, reward 10", ENV, "pchid", {**SETTINGS, **TEN}),
        Row("PPO+PCHID", ENV, "ppo+pchid", SETTINGS),
        Row("PPO+HER+PCHID", ENV, "ppo+her+pchid", SETTINGS),
    ),
    seeds=5,
    minutes=15,
    claims=(
        Claim("PPO does not get off the ground", stays_below("PPO", 0.25, "any_success")),
        Claim("PPO+HER does not get off the ground", stays_below("PPO+HER", 0.25, "any_success")),
        Claim("PCHID-1: .74 after 100 episodes", reaches("PCHID-1", 0.74, "any_success"), quick=True),
        Claim("PCHID-5: .74 after 100 episodes", reaches("PCHID-5", 0.74, "any_success"), quick=True),
        Claim("PCHID greatly improves PPO", above("PPO+PCHID", "PPO"), quick=True),
        Claim("PPO adds little to PCHID", about_equal("PPO+PCHID", "PCHID-5", 0.05)),
        Claim("HER with PCHID is significantly better than PCHID", above("PPO+HER+PCHID", "PCHID-5"), AT_THE_TOP),
        Claim("PCHID does not depend on the reward's value", identical("PCHID-5", "PCHID-5, reward 10"), quick=True),
    ),
    panels=(
        Panel("any_success", "episodes", published=PUBLISHED),
        Panel("final_success", "all_steps"),
        Panel("mean_return", "episodes", COMPARABLE),
    ),
    quick={"episodes": 30, "eval_every": 10, "eval_episodes": 10, "final_episodes": 20},
)
