"""Averaged outputs (Sec. 4.3): a PCHID network beside the algorithm's, trained on the same trajectories.

In: what both networks say about an observation. Out: one action: scores and log-probabilities added by weight
(discrete), means interpolated (continuous; before the squashing of SAC). PPO samples from the mixed distribution and
its log-probabilities are those of the mixed distribution; the targets of Q-learning are not mixed.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor

from pchid.combine.extend import extend, restore
from pchid.combine.module import SeparateModule
from pchid.combine.student import network_of
from pchid.errors import InputError
from pchid.policies import unscaled

EDGE = 1.0 - 1e-6
"""Where the inverse of a squashing is cut off."""


class AveragedOutputs(SeparateModule):
    """`model.learn(steps, callback=AveragedOutputs(weight=0.5))`: act on what the algorithm and PCHID say together.

    For discrete actions `weight` multiplies PCHID's log-probabilities, which are added to Q-values or logits; for
    continuous ones it is PCHID's share of the action, at most 1. After training the model goes on to act on both
    (`release` ends that).
    """

    def prepare(self, model: Any) -> None:
        """See `HindsightModule`; lets the model's policy ask for PCHID's opinion from now on."""
        if not isinstance(model.action_space, spaces.Discrete) and self.weight > 1.0:
            raise InputError(f"weight is {self.weight}, but PCHID's share of a continuous action is at most 1")
        super().prepare(model)
        network_of(model.policy)  # refuses a policy that cannot be mixed
        extend(model.policy, _MixedDistribution if isinstance(model.policy, ActorCriticPolicy) else _MixedActing, self)

    def release(self) -> None:
        """Let the model act alone again."""
        restore(self.model.policy)

    @property
    def has_a_say(self) -> bool:
        """Whether anything is mixed."""
        return self.trained and self.weight > 0.0

    def mix_scores(self, scores: Tensor, observations: dict[str, Tensor]) -> Tensor:
        """Q-values or logits of the algorithm, and PCHID's log-probabilities by weight."""
        return scores + self.weight * torch.log_softmax(self.outputs(observations), dim=1)

    def mix_actions(self, actions: Tensor, advice: Tensor) -> Tensor:
        """The algorithm's actions and PCHID's, by weight."""
        return (1.0 - self.weight) * actions + self.weight * advice


class _MixedDistribution:
    """Of PPO and A2C: the distribution that they sample from and whose log-probabilities they train on."""

    extension: AveragedOutputs
    _base: Any

    # Each of these makes a distribution, for which only they know the observation.

    def forward(self, obs: Any, deterministic: bool = False) -> Any:
        self.__dict__["_seen"] = obs
        return self._base.forward(self, obs, deterministic)

    def evaluate_actions(self, obs: Any, actions: Tensor) -> Any:
        self.__dict__["_seen"] = obs
        return self._base.evaluate_actions(self, obs, actions)

    def get_distribution(self, obs: Any) -> Any:
        self.__dict__["_seen"] = obs
        return self._base.get_distribution(self, obs)

    def _get_action_dist_from_latent(self, *latent: Any) -> Any:
        me: Any = self
        if not self.extension.has_a_say:
            return self._base._get_action_dist_from_latent(self, *latent)
        seen = self.__dict__["_seen"]
        if isinstance(me.action_space, spaces.Discrete):
            return me.action_dist.proba_distribution(self.extension.mix_scores(me.action_net(latent[0]), seen))
        mixed = self._base._get_action_dist_from_latent(self, *latent)
        base, advice = mixed.distribution, self.extension.outputs(seen)
        if not me.squash_output:
            advice = unscaled(me.action_space, advice)
        mixed.distribution = torch.distributions.Normal(self.extension.mix_actions(base.mean, advice), base.stddev)
        return mixed


class _MixedActing:
    """Of DQN, SAC, TQC, TD3 and DDPG: how they act; what they learn from is not touched."""

    extension: AveragedOutputs
    _base: Any

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        if not self.extension.has_a_say:
            alone: Tensor = self._base._predict(self, observation, deterministic)
            return alone
        network: Any = network_of(self)
        if isinstance(self.action_space, spaces.Discrete):  # type: ignore[attr-defined]
            scores = self.extension.mix_scores(network(observation), observation)
            return scores.argmax(dim=1).reshape(-1)
        advice = self.extension.outputs(observation)
        if not hasattr(network, "get_action_dist_params"):
            return self.extension.mix_actions(network(observation), advice)
        mean, log_std, noise = network.get_action_dist_params(observation)
        mean = self.extension.mix_actions(mean, torch.atanh(advice.clamp(-EDGE, EDGE)))
        action: Tensor = network.action_dist.actions_from_params(mean, log_std, deterministic=deterministic, **noise)
        return action
