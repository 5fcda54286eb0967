"""Hindsight experience replay for the off-policy algorithms of Stable-Baselines3, with the end relabelled too.

In: transitions of goal environments. Out: samples of them, some with another goal, and with the reward and the end of
the episode that belong to that goal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from pchid.goals import attribute, batched

Array = NDArray[Any]
Terminated = Callable[[Array, Array], NDArray[np.bool_]]


def termination_function(environment: Any) -> Terminated | None:
    """`terminated(achieved (B, ...), desired (B, ...)) -> (B,)` by `compute_terminated`; None if there is none."""
    compute_terminated = attribute(environment, "compute_terminated")
    if compute_terminated is None:
        return None
    terminated = batched(lambda achieved, desired: compute_terminated(achieved, desired, {}))
    return lambda achieved, desired: terminated(achieved, desired).astype(bool)


class HindsightReplayBuffer(HerReplayBuffer):
    """Stable-Baselines3's buffer, in which a relabelled transition ends where its new goal ends the episode.

    Otherwise it would keep the end of its first goal, and a transition that reaches its new goal would hope for rewards
    from beyond the end. Environments without `compute_terminated` cannot tell, and keep it. The numbers drawn are those
    that Stable-Baselines3's buffer draws.
    """

    _drawn_goals: tuple[Array]  # of the newest samples; in a tuple, for it is no part of what the buffer stores

    @cached_property
    def _terminated(self) -> Terminated | None:
        return termination_function(self.env)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_terminated", None)  # it asks the environment, which is not saved either
        state.pop("_drawn_goals", None)
        return state

    def _sample_goals(self, batch_indices: Array, env_indices: Array) -> Array:
        self._drawn_goals = (super()._sample_goals(batch_indices, env_indices),)
        return self._drawn_goals[0]

    def _get_virtual_samples(
        self, batch_indices: Array, env_indices: Array, env: VecNormalize | None = None
    ) -> DictReplayBufferSamples:
        samples = super()._get_virtual_samples(batch_indices, env_indices, env)
        if self._terminated is None:
            return samples
        # Raw goals, not those of the samples: the latter may be normalised.
        achieved = self.next_observations["achieved_goal"][batch_indices, env_indices]
        if self.copy_info_dict:
            dones = self._terminated_by_infos(achieved, self.infos[batch_indices, env_indices])
        else:
            dones = self._terminated(achieved, self._drawn_goals[0])
        return samples._replace(dones=self.to_torch(dones.astype(np.float32)).reshape(-1, 1))

    def _terminated_by_infos(self, achieved: Array, infos: Array) -> Array:
        """As `_terminated`, one pair at a time, each with the info that was stored with it."""
        compute_terminated: Any = attribute(self.env, "compute_terminated")
        return np.array(
            [compute_terminated(*pair) for pair in zip(achieved, self._drawn_goals[0], infos, strict=True)], bool
        )
