"""Intrinsic reward (Sec. 4.3): the algorithm is paid for acting as PCHID would.

In: the actions that the algorithm takes. Out: its reward, less a scaled disagreement with PCHID: for PPO before
advantages are computed, for replayed transitions when they are sampled, under the goal that they are relabelled with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch import Tensor

from pchid.combine.extend import extend, restore
from pchid.combine.module import SeparateModule
from pchid.policies import scaled, unscaled

Array = NDArray[Any]


class IntrinsicReward(SeparateModule):
    """`model.learn(steps, callback=IntrinsicReward(weight=0.1))`: `weight` is the scale of the intrinsic reward.

    The disagreement of a discrete action is one minus the probability that PCHID gives it, that of a continuous one the
    mean squared difference from PCHID's action, both scaled to [-1, 1].
    """

    def _on_training_start(self) -> None:
        super()._on_training_start()
        if isinstance(self.model, OnPolicyAlgorithm):
            if hasattr(self.model, "extra_reward"):  # PPO on relabelled rollouts pays under the new goals too
                self.model.extra_reward = self._rewards_of_stored
        else:
            extend(self.model.replay_buffer, _PaidAtSampling, self)  # type: ignore[attr-defined]

    def _on_training_end(self) -> None:
        super()._on_training_end()
        if not isinstance(self.model, OnPolicyAlgorithm):
            restore(self.model.replay_buffer)  # type: ignore[attr-defined]
        elif hasattr(self.model, "extra_reward"):
            self.model.extra_reward = None

    def _on_step(self) -> bool:
        super()._on_step()
        if isinstance(self.model, OnPolicyAlgorithm):
            # What the policy saw and did in this step; the rewards go into the rollout after this.
            observations, _ = self.model.policy.obs_to_tensor(self.model._last_obs)  # type: ignore[arg-type]
            actions = torch.as_tensor(self.locals["clipped_actions"], device=self.model.device)
            self.locals["rewards"] += self.rewards(observations, actions)  # type: ignore[arg-type]
        return True

    def rewards(self, observations: dict[str, Tensor], actions: Tensor) -> Array:
        """The intrinsic reward of actions in the environment's units, (B,)."""
        space = self.model.action_space
        if isinstance(space, spaces.Box):
            actions = scaled(space, actions).clamp(-1.0, 1.0)
        paid: Array = (-self.weight * self.disagreement(observations, actions)).cpu().numpy().astype(np.float32)
        return paid

    def _rewards_of_stored(self, observations: dict[str, Tensor], actions: Tensor) -> Array:
        """The same for actions as a rollout stores them: a squashing policy's are scaled to [-1, 1]."""
        space = self.model.action_space
        if isinstance(space, spaces.Box) and self.model.policy.squash_output:
            actions = unscaled(space, actions)
        return self.rewards(observations, actions)

    def disagreement(self, observations: dict[str, Tensor], actions: Tensor) -> Tensor:
        """How far actions, discrete or scaled to [-1, 1], are from what PCHID would do, (B,)."""
        if not self.trained:
            return torch.zeros(len(actions), device=actions.device)
        said = self.outputs(observations)
        if self.network.discrete:
            chosen = torch.softmax(said, dim=1).gather(1, actions.long().reshape(-1, 1))
            return 1.0 - chosen[:, 0]
        return (actions.reshape(len(said), -1) - said).square().mean(dim=1)


class _PaidAtSampling:
    """Of a replay buffer, with HER or without: what is sampled is paid by what PCHID thinks of it now."""

    extension: IntrinsicReward
    _base: Any

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        samples = self._base.sample(self, *args, **kwargs)
        module = self.extension
        extra = -module.weight * module.disagreement(samples.observations, samples.actions)
        return samples._replace(rewards=samples.rewards + extra.reshape(-1, 1).to(samples.rewards.dtype))
