"""Hindsight experience replay for the off-policy algorithms of Stable-Baselines3, with the end relabelled too.

In: transitions of goal environments. Out: samples of them, some with another goal, and with the reward and the end of
the episode that belong to that goal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, TensorDict
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, unwrap_vec_normalize

from pchid.errors import InputError
from pchid.goals import DrawSymmetry, Symmetry, attribute, batched, symmetries_of, vector_of
from pchid.policies import scaled, unscaled

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

    :param symmetries: show each transition as in a scene that the dynamics do not tell apart, where the environment
        knows some (`draw_symmetry`)
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Space[Any],
        env: VecEnv,
        *args: Any,
        symmetries: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(buffer_size, observation_space, action_space, env, *args, **kwargs)
        self.symmetries = symmetries
        symmetries_of(self._simulator, symmetries)  # refuses an environment without any
        if symmetries and unwrap_vec_normalize(env) is not None:
            raise InputError("symmetries are of what the environment shows, so they do not go with VecNormalize")

    _drawn_goals: tuple[Array]  # of the newest samples; in a tuple, for it is no part of what the buffer stores

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> DictReplayBufferSamples:  # type: ignore[override]
        """See `HerReplayBuffer`."""
        samples = super().sample(batch_size, env)
        if self._draw_symmetry is None:
            return samples
        # A stream of its own from the global one, which Stable-Baselines3 seeds and checkpoints keep.
        symmetry = self._draw_symmetry(batch_size, np.random.default_rng(np.random.randint(2**31)))
        assert isinstance(self.action_space, spaces.Box)  # as environments with symmetries have it
        actions = symmetry.actions(unscaled(self.action_space, samples.actions).numpy(force=True))
        return samples._replace(
            observations=self._turned(symmetry, samples.observations),
            next_observations=self._turned(symmetry, samples.next_observations),
            actions=scaled(self.action_space, self.to_torch(actions)),
        )

    def _turned(self, symmetry: Symmetry, observations: TensorDict) -> TensorDict:
        turned = symmetry.observations({key: values.numpy(force=True) for key, values in observations.items()})
        return {key: self.to_torch(values) for key, values in turned.items()}

    @cached_property
    def _draw_symmetry(self) -> DrawSymmetry | None:
        return symmetries_of(self._simulator, self.symmetries)

    @property
    def _simulator(self) -> Any:
        assert self.env is not None
        return vector_of(self.env)

    @cached_property
    def _terminated(self) -> Terminated | None:
        return termination_function(self.env)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        for name in ("_terminated", "_draw_symmetry", "_drawn_goals"):  # they ask the environment, which is not saved
            state.pop(name, None)
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
