"""Figure 6: the three ways to combine PCHID with an algorithm, on GridWorld (a, b) and FetchReach (c)."""

from __future__ import annotations

from pchid.experiments.claims import Claim, When, above, reaches
from pchid.experiments.declaration import Experiment, Row, Settings
from pchid.experiments.figures import fig4, fig5
from pchid.experiments.plots import Panel

WEIGHTS = (0.1, 0.5, 1, 2)
SMALL = {**fig4.SETTINGS, "env.size": 8, "policy.iterations": 10, "episodes": 300}


def strategies(env: str, base: str, settings: Settings, name: str) -> tuple[Row, ...]:
    """The algorithm alone, and with each strategy."""
    return (
        Row(name, env, base, settings),
        Row("joint training", env, f"{base}+pchid", {**settings, "combine": "joint"}),
        Row("averaged outputs", env, f"{base}+pchid", {**settings, "combine": "average"}),
        Row("intrinsic reward", env, f"{base}+pchid", {**settings, "combine": "intrinsic", "weight": 1}),
    )


def joint_is_best(measure: str, when: When) -> tuple[Claim, Claim]:
    """What the paper finds on both environments."""
    return (
        Claim("joint training is above averaged outputs", above("joint training", "averaged outputs", measure, when)),
        Claim(
            "joint training is above the intrinsic reward", above("joint training", "intrinsic reward", measure, when)
        ),
    )


ON_GRID_WORLD = joint_is_best("final_success", "training")

FIG6A = Experiment(
    name="fig6a",
    shows="GridWorld 16x16, 500 episodes: the three strategies with DQN+HER",
    rows=strategies(fig4.ENV, "dqn+her", fig4.SETTINGS, "DQN+HER"),
    seeds=10,
    minutes=28,
    claims=ON_GRID_WORLD,
    panels=fig4.FIG4A.panels,
    quick=fig4.QUICK,
    quick_seeds=1,
)

GRID8 = Experiment(
    name="grid8",
    shows="GridWorld 8x8, 300 episodes: the three strategies with DQN+HER",
    rows=strategies(fig4.ENV, "dqn+her", SMALL, "DQN+HER"),
    seeds=5,
    minutes=3,
    claims=ON_GRID_WORLD,
    panels=fig4.FIG4A.panels,
    quick=fig4.QUICK,
    quick_seeds=1,
)

FIG6B = Experiment(
    name="fig6b",
    shows="GridWorld 16x16, 500 episodes: averaged outputs by weight",
    rows=(
        Row("DQN+HER", fig4.ENV, "dqn+her", fig4.SETTINGS),
        *(
            Row(
                f"weight {weight:g}",
                fig4.ENV,
                "dqn+her+pchid",
                {**fig4.SETTINGS, "combine": "average", "weight": weight},
            )
            for weight in WEIGHTS
        ),
    ),
    seeds=10,
    minutes=32,
    claims=(Claim("the weight has to be chosen: a tenth is less than one", above("weight 1", "weight 0.1")),),
    panels=fig4.FIG4A.panels,
    quick=fig4.QUICK,
    quick_seeds=1,
)

FIG6C = Experiment(
    name="fig6c",
    shows="FetchReach, 100 episodes: the three strategies with PPO",
    rows=strategies(fig5.ENV, "ppo", fig5.SETTINGS, "PPO"),
    seeds=5,
    minutes=9,
    claims=(
        *joint_is_best("mean_return", "end"),
        Claim(
            "joint training needs no tuning and solves the task",
            reaches("joint training", 0.95, whose="solved is"),
            quick=True,
        ),
    ),
    panels=(Panel("mean_return", "episodes"), Panel("final_success", "episodes")),
    quick=fig5.FIG5.quick,
)
