"""Settings that work, per environment: what `pchid train` uses where the user says nothing.

In: an environment id and a method. Out: the settings to start from. `docs/` tells how each was found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pchid.envs.make import find_spec
from pchid.methods import Method

DEFAULTS: dict[str, Any] = {
    "num_envs": 1,
    "policy": "GoalPolicy",
    "policy_settings": {},
    "K_max": 5,
    "K_step": 1,
    "test": "auto",
    "test_budget": None,
    "learning_rate": 1e-3,
    "batch_size": 256,
    "updates_per_episode": 40,
    "buffer_size": 100_000,
    "exploration": 0.2,
    "noise": None,
    "wander": 0.0,
    "min_displacement": 0.0,
    "hold_goal": False,
    "convergence": {},
    "sb3_settings": {},
    "episodes": 500,
    "eval_episodes": 100,
    "final_episodes": 1000,
}


@dataclass(frozen=True)
class OffPolicy:
    """What DQN, DDPG, TD3, SAC and TQC are set to in an environment, beside what `SB3` says."""

    settings: dict[str, Any]
    noise: dict[str, Any] = field(default_factory=dict)
    """For actors that do not explore by themselves."""
    her: dict[str, Any] = field(default_factory=dict)
    """With HER."""
    num_envs: int = 1
    """Where steps are counted: Stable-Baselines3 counts the episodes of a single slot alone."""
    steps_per_update: int | None = None
    """Environment steps, of all slots, for each update."""

    def resolved(self, method: Method, num_envs: int) -> dict[str, Any]:
        """The settings for a method in so many slots, which step together."""
        chosen = dict(self.settings)
        if method.base in ("ddpg", "td3"):
            chosen |= self.noise
        if method.her:
            chosen |= self.her
        if self.steps_per_update is not None:
            chosen["gradient_steps"] = max(num_envs // self.steps_per_update, 1)
            if num_envs < self.steps_per_update:
                chosen["train_freq"] = self.steps_per_update // num_envs
        return chosen


MANIPULATION: dict[str, Any] = {
    "num_envs": 32,
    "policy_settings": {
        # Wide, because what one of several noisy actions has to do with where the object ends is a fine distinction.
        "hidden_sizes": [480, 480, 480],
        "difference": True,
        "reach": 0.1,
        "averaging": 0.99,
        "averaging_warmup": True,
    },
    "symmetries": True,
    "batch_size": 512,
    "K_max": 8,
    "test_budget": 3.6,
    "draw": "asked",
    "passes_per_pair": 60.0,
    # From nearly none to nearly bang-bang: small steps hardly ever move an object, and large ones never place it.
    "exploration": 0.0,
    "noise": 1.5,
    "least_noise": 0.15,
    "persistence": 0.5,
    # Less than the tolerance of 5 cm: the policy learns to come nearer than it must.
    "test_tolerance": 0.03,
    "min_displacement": 0.03,
    "hold_goal": True,
    "off_policy": OffPolicy(
        {
            "gamma": 0.98,
            "tau": 0.01,
            "buffer_size": 1_000_000,
            "goal_features": True,
            "policy_kwargs": {"net_arch": [256, 256, 256]},
        },
        noise={"action_noise": 0.5, "least_action_noise": 0.05, "persistence": 0.5},
        her={"symmetries": True},
        num_envs=32,
        steps_per_update=4,
    ),
    "episodes": 25_000,
    "eval_episodes": 100,
    "final_episodes": 1000,
}
"""For the Fetch tasks with an object (docs/manipulation.md)."""
SLIDING: dict[str, Any] = {
    **MANIPULATION,
    # The puck goes on by itself for long, and it is hit only once: aimed at a way point, that hit would be too weak.
    "K_max": 20,
    "policy_settings": {name: value for name, value in MANIPULATION["policy_settings"].items() if name != "reach"},
}

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "BitFlip": {
        "num_envs": 4,
        "policy_settings": {"hidden_sizes": [256]},
        # More updates fit the one-step pairs no better and carry less far (docs/bit_flip.md).
        "updates_per_episode": 3,
        "exploration": 0.3,
        "episodes": 300,
    },
    "Hanoi": {
        "num_envs": 64,
        "K_max": 15,
        "updates_per_episode": 2,
        "buffer_size": 10_000,
        "exploration": 0.1,
        "noise": 0.5,
        "episodes": 30_000,
    },
    "GridWorld": {
        "num_envs": 8,
        "policy": "VinPolicy",
        # docs/gridworld.md tells why.
        "policy_settings": {"symmetric": True, "iterations": 40, "averaging": 0.998},
        "K_max": 20,
        "convergence": {"pairs": 4, "patience": 5},
        "learning_rate": 1e-2,
        "batch_size": 64,
        "updates_per_episode": 15,
        "exploration": 0.15,
        # Planning networks are slow: as many samples as with a batch of 256 would take minutes for a hundred episodes.
        "off_policy": OffPolicy({"batch_size": 32, "train_freq": 4}),
    },
    # Twenty steps of a hundredth of a second move as far as one step elsewhere (docs/point_maze.md).
    "PointMaze": {
        "num_envs": 8,
        "K_max": 140,
        "K_step": 20,
        "test_budget": 10.0,
        "updates_per_episode": 50,
        "exploration": 0.1,
        "noise": 0.3,
        "wander": 0.01,
        "convergence": {"patience": 1},
        "episodes": 240,
        "eval_episodes": 48,
        "final_episodes": 192,
    },
    **dict.fromkeys(("FetchPush", "FetchPickAndPlace"), MANIPULATION),
    "FetchSlide": SLIDING,
    # Not hold_goal: the arm, stopped just inside the tolerance, sags out of it by gravity (docs/fetch_reach.md).
    "Fetch": {"episodes": 10, "eval_episodes": 10, "final_episodes": 100},
}


OFF_POLICY: dict[str, Any] = {
    "gamma": 0.95,
    "learning_rate": 1e-3,
    "batch_size": 256,
    "buffer_size": 200_000,
}
SB3: dict[str, dict[str, Any]] = {
    "dqn": {**OFF_POLICY, "learning_starts": 200, "train_freq": 1, "target_update_interval": 500},
    "ppo": {"gamma": 0.95, "n_steps": 250, "batch_size": 50, "n_epochs": 10, "ent_coef": 0.0},
    "ddpg": {**OFF_POLICY, "learning_starts": 200, "action_noise": 0.2},
    "td3": {**OFF_POLICY, "learning_starts": 200, "action_noise": 0.2},
    "sac": {**OFF_POLICY, "learning_starts": 200},
    "tqc": {**OFF_POLICY, "learning_starts": 200},
}
"""For the algorithms of Stable-Baselines3; `action_noise` is the standard deviation of a Gaussian."""


def _special(env_id: str) -> dict[str, Any]:
    """What is recommended for an environment alone; "" is none, as logs have it whose environment is not at hand."""
    if not env_id:
        return {}
    spec = find_spec(env_id)
    if not str(spec.entry_point or spec.vector_entry_point).startswith(("pchid.", "gymnasium_robotics.")):
        return {}
    return next((found for start, found in ENVIRONMENTS.items() if spec.id.startswith(start)), {})


def settings(env_id: str, method: Method, num_envs: int | None = None, in_steps: bool = False) -> dict[str, Any]:
    """The recommended settings for an environment and a method.

    They go by the beginning of the environment's name, but only for those of pchid and gymnasium-robotics themselves:
    a user's own may be called alike and be something else.
    `num_envs` are the slots that the user wants, if that was said; `in_steps` is whether the budget is one of steps.
    """
    special = _special(env_id)
    chosen = {**DEFAULTS, **{name: value for name, value in special.items() if name != "off_policy"}}
    if method.base is not None:
        found = special.get("off_policy") if method.base != "ppo" else None
        off_policy: OffPolicy = found or OffPolicy({})
        # Stable-Baselines3 learns after every step of all slots together, so more of them mean fewer updates.
        slots = num_envs or (off_policy.num_envs if in_steps else 1)
        chosen |= {"num_envs": slots, "sb3_settings": {**SB3[method.base], **off_policy.resolved(method, slots)}}
    return chosen
