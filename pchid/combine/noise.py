"""Exploration for the off-policy algorithms of Stable-Baselines3 that is calm in some episodes and wild in others.

In: the end of each episode (`reset`). Out: noise for each action, of a scale that is drawn anew for every episode, and
that may last for some steps: what `least_noise` and `persistence` are to PCHID and PEHID.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import ActionNoise, VectorizedActionNoise

from pchid.errors import InputError

Array = NDArray[Any]


class EpisodeNoise(ActionNoise):
    """Gaussian noise; give it as `action_noise`. It draws from NumPy's global stream, as Stable-Baselines3's own do.

    :param size: entries of an action
    :param noise: the largest standard deviation, for actions scaled to [-1, 1]
    :param least_noise: the smallest; each episode has one in between
    :param persistence: the probability that an entry stays as it was in the step before
    """

    def __init__(self, size: int, noise: float, least_noise: float, persistence: float = 0.0) -> None:
        super().__init__()
        check_scales(noise, least_noise, persistence)
        self.size, self.noise, self.least_noise, self.persistence = size, noise, least_noise, persistence
        self.reset()

    noise_prev: Array
    """The scale of this episode, and then the noise of the step before (of scale 1), which is NaN in the first."""

    def reset(self) -> None:
        """Another episode: another scale."""
        scale = np.random.uniform(self.least_noise, self.noise)
        self.noise_prev = np.array([scale, *[np.nan] * self.size])

    def __call__(self) -> Array:
        """Noise for one action."""
        drawn = np.random.standard_normal(self.size)
        before = self.noise_prev[1:]
        stays = (np.random.random(self.size) < self.persistence) & ~np.isnan(before)
        self.noise_prev[1:] = np.where(stays, before, drawn)
        noise: Array = self.noise_prev[0] * self.noise_prev[1:]
        return noise.astype(np.float32)

    def __repr__(self) -> str:
        return f"EpisodeNoise(noise={self.noise}, least_noise={self.least_noise}, persistence={self.persistence})"


def check_scales(noise: float, least_noise: float, persistence: float) -> None:
    """Refuse what cannot be the noise of episodes."""
    if not 0.0 <= least_noise <= noise < float("inf"):
        raise InputError(f"an episode's noise lies between {least_noise} and {noise}, which is nothing")
    if not 0.0 <= persistence < 1.0:
        raise InputError(f"persistence is a probability below 1, not {persistence}")


def noises_of(model: BaseAlgorithm) -> list[ActionNoise]:
    """The action noise of each slot."""
    noise = model.action_noise
    if noise is None:
        return []
    return noise.noises if isinstance(noise, VectorizedActionNoise) else [noise]
