"""A trained policy as one function of tensors, from what the environment shows to the action that it takes.

In: an agent. Out: `PolicyGraph`, a torch module without branches that depend on data, so that it can be exported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.policies import ActorCriticPolicy, BaseModel
from torch import Tensor, nn

from pchid.algorithms import HindsightAlgorithm
from pchid.combine.agent import CombinedAgent
from pchid.combine.averaged import EDGE, AveragedOutputs
from pchid.combine.student import network_of
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError
from pchid.goals import attribute
from pchid.logged import Within
from pchid.networks.planning import PlanningNetwork
from pchid.networks.vin import VinExtractor
from pchid.policies import SEEN, GoalPolicy, unscaled

Array = NDArray[Any]


@dataclass(frozen=True)
class Hold:
    """The sub-policy pi_0: what to play nearer to the goal than a threshold; NaN leaves a part to the policy."""

    null_action: Array
    threshold: float


class PolicyGraph(nn.Module):
    """`forward(*inputs)`, in the order of `inputs`, gives the action and, of discrete ones, the scores."""

    null_action: Tensor

    def __init__(self, core: nn.Module, inputs: tuple[str, ...], action_space: spaces.Space[Any], hold: Hold | None):
        super().__init__()
        self.core, self.hold = core, hold
        self.inputs = inputs if hold is None or "achieved_goal" in inputs else (*inputs, "achieved_goal")
        self.discrete = isinstance(action_space, spaces.Discrete)
        self.outputs = ("action", "scores") if self.discrete else ("action",)
        self.shape = action_space.shape or ()
        if hold is not None:
            self.register_buffer("null_action", torch.as_tensor(hold.null_action, dtype=torch.float32).flatten())

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """See the class."""
        seen = dict(zip(self.inputs, values, strict=True))
        said: Tensor = self.core(seen)
        if self.discrete:
            return said.argmax(dim=1), said
        if self.hold is not None:
            away = (seen["achieved_goal"].double() - seen["desired_goal"].double()).flatten(1)
            reached = away.square().sum(dim=1, keepdim=True).sqrt() < self.hold.threshold
            said = torch.where(reached & ~torch.isnan(self.null_action), self.null_action, said)
        return (said.float().reshape(-1, *self.shape),)


class _Goal(nn.Module):
    """A policy of ours: scores, or the action in the environment's units."""

    def __init__(self, policy: GoalPolicy) -> None:
        super().__init__()
        self.network, self.action_space, self.seen = policy.acting, policy.action_space, policy.seen

    def forward(self, seen: dict[str, Tensor]) -> Tensor:
        said: Tensor = self.network(*(seen[key] for key in self.seen))
        return unscaled(self.action_space, said.clamp(-1.0, 1.0)) if isinstance(self.action_space, spaces.Box) else said


class _Baseline(nn.Module):
    """A policy of Stable-Baselines3, as it acts deterministically, with PCHID's say where outputs are averaged."""

    low: Tensor
    high: Tensor

    def __init__(self, agent: CombinedAgent) -> None:
        super().__init__()
        policy, module = agent.model.policy, agent.module
        self.network: Any = network_of(policy)
        self.action_space: Any = policy.action_space
        # Found out here, since an exporter shows the forward pass not the modules themselves but what stands for them.
        self.on_policy = isinstance(policy, ActorCriticPolicy)
        self.squashing = hasattr(self.network, "get_action_dist_params")
        self.averaged = module if isinstance(module, AveragedOutputs) and module.has_a_say else None
        if isinstance(self.action_space, spaces.Box):
            for name in ("low", "high"):
                self.register_buffer(name, torch.as_tensor(getattr(self.action_space, name).ravel()))

    def forward(self, seen: dict[str, Tensor]) -> Tensor:
        said, averaged = self._said(seen), self.averaged
        if isinstance(self.action_space, spaces.Discrete):
            return said if averaged is None else averaged.mix_scores(said, seen)
        if averaged is not None:
            advice = averaged.outputs(seen)
            if self.on_policy:
                advice = unscaled(self.action_space, advice)
            elif self.squashing:
                advice = torch.atanh(advice.clamp(-EDGE, EDGE))
            said = averaged.mix_actions(said, advice)
        if self.on_policy:
            return torch.minimum(torch.maximum(said, self.low), self.high)
        return unscaled(self.action_space, torch.tanh(said) if self.squashing else said)

    def _said(self, seen: dict[str, Tensor]) -> Tensor:
        """Scores, or the mean, which may be still to be squashed."""
        network = self.network
        if self.on_policy:  # not by its distribution, whose checks of its arguments cannot be exported
            features = BaseModel.extract_features(network, seen, network.pi_features_extractor)
            return network.action_net(network.mlp_extractor.forward_actor(features))  # type: ignore[no-any-return]
        return network.get_action_dist_params(seen)[0] if self.squashing else network(seen)  # type: ignore[no-any-return]


def policy_graph(agent: HindsightAlgorithm | CombinedAgent, hold: bool = True) -> PolicyGraph:
    """The graph of an agent; `hold` puts its null action in, if it plays one."""
    if isinstance(agent, CombinedAgent):
        model = agent.model
        space = model.observation_space
        assert isinstance(space, spaces.Dict)
        planning = isinstance(getattr(network_of(model.policy), "features_extractor", None), VinExtractor)
        others = () if planning else tuple(key for key in space.spaces if key not in SEEN)
        return PolicyGraph(_Baseline(agent), (*SEEN, *others), model.action_space, None).eval()
    held = _hold(agent) if hold and agent.hold_goal else None
    return PolicyGraph(_Goal(agent.policy), agent.policy.seen, agent.action_space, held).eval()


def _hold(agent: HindsightAlgorithm) -> Hold:
    threshold = _distance_threshold(agent)
    if threshold is None or agent._null_action is None:
        raise InputError(
            "this policy plays the null action where the goal holds (hold_goal), but nothing tells "
            "within which distance it does, which is what a graph can compare; --no-hold exports the policy without it"
        )
    return Hold(agent._null_action, threshold)


def _distance_threshold(agent: HindsightAlgorithm) -> float | None:
    """The Euclidean distance below which a goal is reached, if that is the rule."""
    rule = getattr(agent, "is_success", None)
    if isinstance(rule, Within):
        return rule.tolerance
    if rule is None or agent.env is None or not isinstance(agent.env.unwrapped, GoalVecEnv):
        return None
    vector = agent.env.unwrapped.vector
    threshold = attribute(getattr(vector, "_single", vector), "distance_threshold")
    if not isinstance(threshold, float):
        return None
    # An attribute may mean anything: the environment must judge by it.
    shape = agent.observation_space["achieved_goal"].shape  # type: ignore[index]
    away = np.random.default_rng(0).normal(size=(200, *shape))
    length = np.sqrt(np.square(away).sum(axis=tuple(range(1, away.ndim)), keepdims=True))
    near = away / length * threshold * np.linspace(0.5, 1.5, 200).reshape(length.shape)
    agrees = np.array_equal(rule(near, np.zeros_like(near)), Within(threshold)(near, np.zeros_like(near)))
    return threshold if agrees else None


@contextlib.contextmanager
def plain_planning(graph: nn.Module) -> Iterator[None]:
    """Let planning networks compute as they are written down, not by a compiled kernel that no exporter can follow."""
    networks = [module for module in graph.modules() if isinstance(module, PlanningNetwork)]
    core = getattr(graph, "core", None)
    if isinstance(core, _Baseline) and core.averaged is not None:
        networks += [module for module in core.averaged.network.modules() if isinstance(module, PlanningNetwork)]
    for network in networks:
        network.forward = network.forward_reference  # type: ignore[method-assign]
    try:
        yield
    finally:
        for network in networks:
            network.__dict__.pop("forward", None)
