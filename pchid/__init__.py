"""Goal-conditioned control by supervised self-imitation: Policy Continuation with Hindsight Inverse Dynamics."""

from typing import TYPE_CHECKING, Any

import pchid.envs as envs

if TYPE_CHECKING:
    from pchid.algorithms import PCHID, PEHID
    from pchid.combine import (
        AveragedOutputs,
        EpisodeNoise,
        GoalFeatures,
        Guidance,
        HindsightPPO,
        HindsightReplayBuffer,
        IntrinsicReward,
        JointTraining,
    )
    from pchid.envs.make import make_probe, make_vector
    from pchid.envs.sb3 import GoalVecEnv
    from pchid.evaluation import evaluate
    from pchid.solvability import GroundTruth, Interaction

__version__ = "0.1.0"
__all__ = [
    "PCHID",
    "PEHID",
    "AveragedOutputs",
    "EpisodeNoise",
    "GoalFeatures",
    "GoalVecEnv",
    "GroundTruth",
    "Guidance",
    "HindsightPPO",
    "HindsightReplayBuffer",
    "Interaction",
    "IntrinsicReward",
    "JointTraining",
    "envs",
    "evaluate",
    "make_probe",
    "make_vector",
]

_HOMES = {
    "PCHID": "pchid.algorithms",
    "PEHID": "pchid.algorithms",
    **dict.fromkeys(
        ("AveragedOutputs", "EpisodeNoise", "GoalFeatures", "HindsightPPO", "HindsightReplayBuffer"), "pchid.combine"
    ),
    **dict.fromkeys(("Guidance", "IntrinsicReward", "JointTraining"), "pchid.combine"),
    "GoalVecEnv": "pchid.envs.sb3",
    "GroundTruth": "pchid.solvability",
    "Interaction": "pchid.solvability",
    "evaluate": "pchid.evaluation",
    "make_probe": "pchid.envs.make",
    "make_vector": "pchid.envs.make",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: torch and Stable-Baselines3 take seconds, which `gym.make` and `pchid --help` need not pay.
    if name not in _HOMES:
        raise AttributeError(f"module 'pchid' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
