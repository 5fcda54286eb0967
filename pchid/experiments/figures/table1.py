"""Table 1 of the supplement: PEHID and the others on the Fetch tasks with an object, at 1.25M environment steps."""

from __future__ import annotations

from pchid.experiments.claims import Claim, reaches, stays_below
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.plots import Panel

TASKS = {"Push": "FetchPush-v4", "Slide": "FetchSlide-v4", "PickAndPlace": "FetchPickAndPlace-v4"}
SETTINGS = {"steps": 1_250_000, "eval_every": 50_000, "num_envs": 32}
METHODS = {
    "PPO": ("ppo", (0.00, 0.00, 0.00)),
    "DDPG": ("ddpg", (0.08, 0.03, 0.05)),
    "DDPG+HER": ("ddpg+her", (1.00, 0.30, 0.60)),
    "PEHID": ("pehid", (0.95, 0.38, 0.75)),
    "DDPG+HER+PEHID": ("ddpg+her+pehid", None),
}
"""By name: the method, and the paper's success on the three tasks."""


def claims() -> list[Claim]:
    """The paper's table, cell by cell; its success is most likely any success."""
    found = []
    for name, (_, published) in METHODS.items():
        for task, value in zip(TASKS, published or (), strict=False):
            label = f"{name}, {task}"
            judge = stays_below(label, 0.15, "any_success") if value < 0.1 else reaches(label, value, "any_success")
            found.append(Claim(f"{label}: {value:.2f}", judge))
    return found


TABLE1 = Experiment(
    name="table1",
    shows="FetchPush, FetchSlide, FetchPickAndPlace at 1.25M environment steps",
    rows=tuple(
        Row(f"{name}, {task}", env, method, SETTINGS)
        for task, env in TASKS.items()
        for name, (method, _) in METHODS.items()
    ),
    seeds=3,
    minutes=3000,
    claims=tuple(claims()),
    panels=tuple(
        Panel("any_success", "env_steps", labels=tuple(f"{name}, {task}" for name in METHODS)) for task in TASKS
    ),
    quick={"steps": 1600, "eval_every": 1600, "num_envs": 16, "eval_episodes": 8, "final_episodes": 8},
    quick_seeds=1,
)
