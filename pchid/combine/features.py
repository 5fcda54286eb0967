"""What an algorithm of Stable-Baselines3 sees of a goal environment, made as good to learn from as what ours see.

In: observation, achieved and desired goal. Out: observation, desired goal and the way from the achieved one to it,
shifted and scaled by the running mean and spread of what the networks were trained on. The numbers of a robot differ
in scale by orders of magnitude, and a goal that is five centimetres away is a difference in the second digit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

CLIP = 5.0
LASTING = 5000
"""Batches after which old ones count less and less."""


class GoalFeatures(BaseFeaturesExtractor):
    """`policy_kwargs={"features_extractor_class": GoalFeatures}`: normalised inputs, for any algorithm with goals."""

    def __init__(self, observation_space: spaces.Dict) -> None:
        sizes = [int(np.prod(observation_space[key].shape or ())) for key in ("observation", "desired_goal")]
        super().__init__(observation_space, sizes[0] + 2 * sizes[1])
        self.normaliser = BatchNormaliser(self.features_dim)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """(B, features): observation, desired goal, desired minus achieved goal."""
        normalised: Tensor = self.normaliser(_raw(observations))
        return normalised

    def take_in(self, observations: dict[str, Tensor]) -> None:
        """Let a batch count that another than the algorithm itself trains the network on."""
        self.normaliser.take_in(_raw(observations))


def _raw(observations: dict[str, Tensor]) -> Tensor:
    seen, achieved, desired = (
        observations[key].flatten(1).to(torch.float64) for key in ("observation", "achieved_goal", "desired_goal")
    )
    return torch.cat([seen, desired, desired - achieved], dim=1)


class BatchNormaliser(nn.Module):
    """Normalises by the statistics of all batches that it was trained on, not of the batch at hand.

    Their names start with `running_`, by which Stable-Baselines3 finds what its target networks must share.
    """

    running_mean: Tensor
    running_variance: Tensor
    running_count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("running_variance", torch.ones(size, dtype=torch.float64))
        self.register_buffer("running_count", torch.zeros((), dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        """The normalised inputs, clipped, in single precision; in training, they are taken into account first."""
        if self.training:
            self.take_in(inputs)
        scaled = (inputs - self.running_mean) / torch.sqrt(self.running_variance + 1e-8)
        return scaled.clamp(-CLIP, CLIP).to(torch.float32)

    @torch.no_grad()
    def take_in(self, inputs: Tensor) -> None:
        """Let a batch count in the statistics."""
        self.running_count += 1
        share: Any = 1.0 / self.running_count.clamp(max=LASTING)
        shift = inputs.mean(0) - self.running_mean
        spread = inputs.var(0, correction=0) + (1.0 - share) * shift**2
        self.running_mean += share * shift
        self.running_variance += share * (spread - self.running_variance)
