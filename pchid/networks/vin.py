"""Planning networks as policies for GridWorld (Sec. 4.1): alone, and as the features of a Stable-Baselines3 policy.

In: GridWorld's observations and goals. Out: a score for each of the eight moves.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from pchid.envs.grid_world import MOVES
from pchid.errors import InputError
from pchid.networks.planning import PlanningNetwork, ValueIterationNetwork
from pchid.networks.symmetric import SymmetricNetwork
from pchid.policies import GoalPolicy


def make_network(
    hidden_channels: int = 50, q_channels: int = 10, iterations: int = 20, shifts: bool = True, symmetric: bool = False
) -> PlanningNetwork:
    """A planning network.

    :param hidden_channels: of the layer before the reward
    :param q_channels: at least one for each move
    :param iterations: how far values spread, in moves
    :param shifts: start the transitions as the eight moves
    :param symmetric: the same under the eight symmetries of the square; it has no use for the channels' numbers
    """
    if q_channels < len(MOVES):
        raise InputError(f"VinPolicy needs at least {len(MOVES)} q_channels, one a move, not {q_channels}")
    if symmetric:
        return SymmetricNetwork(iterations)
    return ValueIterationNetwork(len(MOVES), hidden_channels, q_channels, iterations, shifts)


class VinExtractor(BaseFeaturesExtractor):
    """The network as the features of a Stable-Baselines3 policy: on them, DQN is DQN on a planning network.

    It takes the settings of `make_network`. Call `pass_scores_on(model.policy)` once the model is made.
    """

    def __init__(self, observation_space: spaces.Dict, **settings: Any) -> None:
        check_grid_world(observation_space)
        super().__init__(observation_space, features_dim=len(MOVES))
        self.network = make_network(**settings)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """A score for each move, (B, 8)."""
        scores: Tensor = self.network(observations["observation"], observations["desired_goal"])
        return scores


@torch.no_grad()
def pass_scores_on(policy: Any) -> None:
    """Let the linear layer that Stable-Baselines3 puts on a `VinExtractor` start as the identity, with `net_arch=[]`.

    Scores that a random layer mixes are scores of no move any more, and 500 episodes are too few to sort them out.
    """
    heads = [net.q_net[-1] for name in ("q_net", "q_net_target") if (net := getattr(policy, name, None)) is not None]
    heads += [policy.action_net] if hasattr(policy, "action_net") else []
    if not heads or any(tuple(head.weight.shape) != (len(MOVES), len(MOVES)) for head in heads):
        raise InputError("the scores of moves can only be passed on by DQN, PPO or A2C with net_arch=[]")
    for head in heads:
        head.weight.copy_(torch.eye(len(MOVES)))
        head.bias.zero_()


class VinPolicy(GoalPolicy):
    """`GoalPolicy` with a planning network, for GridWorld's observations. It takes the settings of `make_network`."""

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        lr_schedule: Any,
        hidden_channels: int = 50,
        q_channels: int = 10,
        iterations: int = 20,
        shifts: bool = True,
        symmetric: bool = False,
        **kwargs: Any,
    ) -> None:
        check_grid_world(observation_space)
        for name, what in (("difference", "the difference of goals"), ("reach", "a reach")):
            if kwargs.get(name):
                raise InputError(f"VinPolicy plans on a map and has no use for {what}")
        self.vin_settings = {
            "hidden_channels": hidden_channels,
            "q_channels": q_channels,
            "iterations": iterations,
            "shifts": shifts,
            "symmetric": symmetric,
        }
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)

    def make_network(self, observation_space: spaces.Dict, outputs: int) -> nn.Module:
        """See `GoalPolicy`."""
        return make_network(**self.vin_settings)  # type: ignore[arg-type]

    def settings(self) -> dict[str, Any]:
        """See `GoalPolicy`."""
        return {**self.vin_settings, "averaging": self.averaging}


def check_grid_world(observation_space: spaces.Dict) -> None:
    """Refuse observations that are no maps."""
    shape = observation_space["observation"].shape
    if shape is None or len(shape) != 3 or shape[0] != 2 or observation_space["desired_goal"].shape != (2,):
        raise InputError("VinPolicy is for GridWorld: observations (2, size, size) and goals (row, column)")
