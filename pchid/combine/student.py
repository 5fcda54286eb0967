"""Reading scores and means out of the policies of Stable-Baselines3, so that hindsight can teach them.

In: an algorithm (DQN, PPO, A2C, SAC, TQC, TD3, DDPG). Out: an `ImitatingPolicy` on the very network that the algorithm
trains, and the inputs and outputs of that network for whoever wants to mix or compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor, nn

from pchid.combine.features import GoalFeatures
from pchid.errors import InputError
from pchid.goals import KEYS
from pchid.policies import imitation_loss, scaled

Array = NDArray[Any]


def policy_view(model: BaseAlgorithm, observations: dict[str, Array]) -> dict[str, Array]:
    """Raw observations as the policy sees them: normalised, if the training environments are."""
    normaliser = model.get_vec_normalize_env()
    seen: Any = observations if normaliser is None else normaliser.normalize_obs(observations)
    return {key: seen[key] for key in observations}


def network_of(policy: Any) -> nn.Module:
    """The part of a policy that decides on actions: the one that supervised steps train."""
    for name in ("q_net", "actor"):
        if isinstance(getattr(policy, name, None), nn.Module):
            network: nn.Module = getattr(policy, name)
            return network
    if isinstance(policy, ActorCriticPolicy):
        return policy
    raise InputError(
        f"cannot tell how {type(policy).__name__} decides: hindsight knows policies with a q_net, an actor, or a "
        "distribution (ActorCriticPolicy)"
    )


def outputs(policy: Any, observations: dict[str, Tensor]) -> Tensor:
    """Q-values or logits of discrete actions, or the deterministic continuous action scaled to [-1, 1]."""
    network: Any = network_of(policy)
    if network is policy:
        distribution = policy.get_distribution(observations).distribution
        if isinstance(policy.action_space, spaces.Discrete):
            return distribution.logits  # type: ignore[no-any-return]
        mean: Tensor = distribution.mean
        return mean if policy.squash_output else scaled(policy.action_space, mean)
    if hasattr(network, "get_action_dist_params"):  # SAC and TQC: a Gaussian that is squashed afterwards
        return torch.tanh(network.get_action_dist_params(observations)[0])
    chosen: Tensor = network(observations)
    return chosen


class Student:
    """The network of an algorithm of Stable-Baselines3, as the hindsight learner wants a policy to be."""

    def __init__(self, model: BaseAlgorithm, counts: bool = True) -> None:
        """What it is taught `counts`, or leaves no trace in the network."""
        self.model, self.counts = model, counts
        network = network_of(model.policy)
        self.parameters: Iterator[nn.Parameter] = network.parameters()
        extractor = getattr(network, "features_extractor", None)
        self.features = extractor if isinstance(extractor, GoalFeatures) else None
        space = model.observation_space
        assert isinstance(space, spaces.Dict)
        unknown = sorted(set(space.spaces) - set(KEYS))
        if unknown:
            raise InputError(
                f"the observations have keys that hindsight does not record ({', '.join(unknown)}); "
                "joint training needs a policy that sees no more than " + ", ".join(KEYS)
            )

    def act(self, observations: dict[str, Array]) -> Array:
        """See `ImitatingPolicy`."""
        actions: Array = self.model.policy.predict(policy_view(self.model, observations), deterministic=True)[0]
        return actions

    def imitation_loss(self, observations: dict[str, Array], action: Array) -> Tensor:
        """See `ImitatingPolicy`: cross-entropy with the scores, or squared error of the deterministic action."""
        policy: Any = self.model.policy
        seen = policy.obs_to_tensor(policy_view(self.model, observations))[0]
        label = torch.as_tensor(action, device=policy.device)
        if isinstance(policy.action_space, spaces.Box):
            label = scaled(policy.action_space, label)
        return imitation_loss(outputs(policy, seen), label, isinstance(policy.action_space, spaces.Discrete))

    def normalise_by(self, observations: dict[str, Array]) -> None:
        """See `ImitatingPolicy`: for networks on `GoalFeatures`; others see what `VecNormalize` makes of it, or all."""
        if self.features is not None and self.counts:
            policy: Any = self.model.policy
            self.features.take_in(policy.obs_to_tensor(policy_view(self.model, observations))[0])

    def after_step(self) -> None:
        """Nothing: the algorithm itself looks after its target networks."""
