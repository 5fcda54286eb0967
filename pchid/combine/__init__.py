"""Hindsight beside the algorithms of Stable-Baselines3 (Sec. 4.3)."""

from pchid.combine.agent import load_training, save_training
from pchid.combine.averaged import AveragedOutputs
from pchid.combine.features import GoalFeatures
from pchid.combine.guidance import Guidance
from pchid.combine.hindsight_ppo import HindsightPPO
from pchid.combine.intrinsic import IntrinsicReward
from pchid.combine.joint import JointTraining
from pchid.combine.noise import EpisodeNoise
from pchid.combine.replay import HindsightReplayBuffer

__all__ = [
    "AveragedOutputs",
    "EpisodeNoise",
    "GoalFeatures",
    "Guidance",
    "HindsightPPO",
    "HindsightReplayBuffer",
    "IntrinsicReward",
    "JointTraining",
    "load_training",
    "save_training",
]
