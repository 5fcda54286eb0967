"""With weight 0 the hindsight module does all its work, and the algorithm trains as if it were alone, bit for bit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.policies import MultiInputActorCriticPolicy
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize
from stable_baselines3.dqn.policies import MultiInputPolicy as DqnPolicy

from pchid import (
    AveragedOutputs,
    GoalFeatures,
    GoalVecEnv,
    Guidance,
    HindsightPPO,
    HindsightReplayBuffer,
    IntrinsicReward,
    JointTraining,
)
from pchid.envs.make import find_spec

try:
    from sb3_contrib import TQC
except ImportError:
    TQC = None

STRATEGIES = [JointTraining, AveragedOutputs, IntrinsicReward]
strategies = pytest.mark.parametrize("strategy", STRATEGIES)


def bits() -> Any:
    return GoalVecEnv.make("BitFlip-v0", 2, n_bits=4)


def reach() -> Any:
    return GoalVecEnv.make("FetchReach-v4", 2, horizon=6)


def plain_reach() -> Any:
    find_spec("FetchReach-v4")
    return DummyVecEnv([lambda: gym.make("FetchReach-v4", max_episode_steps=6)] * 2)


def normalised(make_env: Callable[[], Any]) -> Any:
    return VecNormalize(VecMonitor(make_env()))


ON: dict[str, Any] = {"n_steps": 10}
PROXIMAL: dict[str, Any] = {**ON, "batch_size": 10, "n_epochs": 2}
OFF: dict[str, Any] = {"learning_starts": 20, "batch_size": 16, "buffer_size": 200, "train_freq": 2}
EXPLORING: dict[str, Any] = {**OFF, "exploration_fraction": 0.5, "target_update_interval": 16}


@dataclass(frozen=True)
class Case:
    """A training of an algorithm alone."""

    algorithm: Any
    make_env: Callable[[], Any]
    settings: dict[str, Any]
    buffer: Any = None
    noise: float = 0.0
    policy: Any = "MultiInputPolicy"
    policy_kwargs: dict[str, Any] = field(default_factory=lambda: {"net_arch": [16]})

    def make(self) -> Any:
        settings = dict(self.settings)
        if self.buffer is not None:
            settings["replay_buffer_class"] = self.buffer
        if self.noise:
            settings["action_noise"] = NormalActionNoise(np.zeros(4), np.full(4, self.noise))
        kwargs = dict(self.policy_kwargs)
        return self.algorithm(self.policy, self.make_env(), seed=3, device="cpu", policy_kwargs=kwargs, **settings)


def with_her(name: str, *settings: Any, **others: Any) -> dict[str, Case]:
    return {
        name: Case(*settings, **others),
        f"{name}+her": Case(*settings, buffer=HerReplayBuffer, **others),
        f"{name}+our her": Case(*settings, buffer=HindsightReplayBuffer, **others),
    }


CASES = {
    **with_her("dqn", DQN, bits, EXPLORING),
    **with_her("sac", SAC, reach, OFF),
    **with_her("td3", TD3, reach, OFF, noise=0.2),
    **with_her("ddpg", DDPG, reach, OFF, noise=0.2),
    **with_her("tqc", TQC, reach, OFF),
    "ppo, discrete": Case(PPO, bits, PROXIMAL),
    "ppo, continuous": Case(PPO, reach, PROXIMAL),
    "ppo+her, discrete": Case(HindsightPPO, bits, PROXIMAL),
    "ppo+her, continuous": Case(HindsightPPO, reach, PROXIMAL),
    "a2c, discrete": Case(A2C, bits, ON),
    "a2c, continuous": Case(A2C, reach, ON),
}
FEATURES: dict[str, Any] = {"net_arch": [16], "features_extractor_class": GoalFeatures}
OTHERS = {
    "td3+her, goal features": Case(TD3, reach, OFF, HindsightReplayBuffer, 0.2, policy_kwargs=FEATURES),
    "sac, goal features": Case(SAC, reach, OFF, policy_kwargs=FEATURES),
    "ppo, goal features": Case(PPO, reach, PROXIMAL, policy_kwargs=FEATURES),
    "sac+her, plain environments": Case(SAC, plain_reach, OFF, HerReplayBuffer),
    "ppo, plain environments": Case(PPO, plain_reach, PROXIMAL),
    "sac, normalised": Case(SAC, functools.partial(normalised, reach), OFF, HindsightReplayBuffer),
    "ppo+her, normalised": Case(HindsightPPO, functools.partial(normalised, reach), PROXIMAL),
    "ppo, normalised plain environments": Case(PPO, functools.partial(normalised, plain_reach), PROXIMAL),
    "ppo, exploring by state": Case(PPO, reach, {**PROXIMAL, "use_sde": True}),
    "sac, exploring by state": Case(SAC, reach, {**OFF, "use_sde": True, "use_sde_at_warmup": True}),
}


def cases(named: dict[str, Case], fast: tuple[str, ...] = ()) -> Any:
    """As parameters; those whose names begin otherwise than the fast ones are slow together."""
    missing = pytest.mark.skipif(TQC is None, reason="sb3-contrib is missing")
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(
                case,
                id=name,
                marks=[missing] * ("tqc" in name) + [pytest.mark.slow] * (not name.startswith(fast)),
            )
            for name, case in named.items()
        ],
    )


QUICK = ("dqn+our", "sac+her", "ppo+her, discrete", "ppo, continuous")


def contents(model: Any) -> dict[str, torch.Tensor]:
    """All that was learned: networks, the memory of their optimisers, and single variables."""
    found = {f"policy.{name}": value for name, value in model.policy.state_dict().items()}
    for name, saved in model.get_parameters().items():
        if name.endswith("optimizer"):
            memories = saved["state"].items()
            found |= {f"{name}.{i}.{key}": torch.as_tensor(v) for i, memory in memories for key, v in memory.items()}
    for name in model._get_torch_save_params()[1]:
        if getattr(model, name) is not None:
            found[name] = getattr(model, name)
    return {name: value.detach().clone() for name, value in found.items()}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(value, right[name]) for name, value in left.items())


STEPS = 60


def train(case: Case, callback: Any = None) -> Any:
    """Two calls of `learn`, of which the second begins in the middle of episodes."""
    model = case.make()
    model.learn(STEPS, callback)
    return model.learn(STEPS // 2, callback, reset_num_timesteps=False)


ALONE: dict[int, Any] = {}


def reference(case: Case) -> Any:
    """What the algorithm comes to alone, and the random numbers that come next; once for each case."""
    if id(case) not in ALONE:
        ALONE[id(case)] = contents(train(case)), torch.get_rng_state(), np.random.get_state(legacy=False)["state"]
    return ALONE[id(case)]


def module(strategy: Any, weight: float, evolve: bool = False) -> Any:
    separate = {} if strategy is JointTraining else {"policy_kwargs": {"hidden_sizes": [16]}}
    return strategy(K_max=2, evolve=evolve, weight=weight, updates_per_episode=2, batch_size=16, **separate)


def assert_unmoved(case: Case, strategy: Any) -> None:
    evolve = case.make_env is bits  # there, TEST has something to do from the start
    callback = module(strategy, 0.0, evolve)
    model = train(case, callback)
    expected, torch_state, numpy_state = reference(case)
    assert callback.updates > 0
    assert callback.episodes_seen > 8
    assert len(callback.learner.buffers) > 0
    assert callback.test_steps > 0 or not evolve
    assert same(contents(model), expected)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state(legacy=False)["state"]["key"], numpy_state["key"])
    assert np.random.get_state(legacy=False)["state"]["pos"] == numpy_state["pos"]


@strategies
@cases(CASES, QUICK)
def test_with_weight_0_the_algorithm_comes_to_the_same(case: Case, strategy: Any) -> None:
    assert_unmoved(case, strategy)


@strategies
@cases(OTHERS, ("ppo+her, normalised",))
def test_so_it_does_in_other_surroundings(case: Case, strategy: Any) -> None:
    assert_unmoved(case, strategy)


@strategies
@cases(CASES, ("dqn+our", "ppo+her, discrete"))
def test_with_more_weight_it_does_not(case: Case, strategy: Any) -> None:
    callback = module(strategy, 0.5)
    model = train(case, callback)
    assert callback.updates > 0
    assert not same(contents(model), reference(case)[0])


@cases({name: case for name, case in CASES.items() if name.startswith(("ddpg", "td3"))}, ("td3+our",))
def test_guidance_with_weight_0_comes_to_the_same(case: Case) -> None:
    assert_unmoved(case, Guidance)


@cases({name: case for name, case in CASES.items() if case.algorithm is not None and "her" not in name}, ("dqn",))
def test_with_weight_0_the_supervised_network_learns_all_the_same(case: Case) -> None:
    callback = module(AveragedOutputs, 0.0)
    model = case.make()
    callback.prepare(model)
    before = {name: value.clone() for name, value in callback.network.named_parameters()}
    model.learn(STEPS, callback)
    after = dict(callback.network.named_parameters())
    assert any(not torch.equal(value, after[name]) for name, value in before.items())


# Policies of the user's own.


class Lukewarm(MultiInputActorCriticPolicy):
    """Makes its distribution in a way of its own."""

    def _get_action_dist_from_latent(self, latent_pi: torch.Tensor) -> Any:
        return self.action_dist.proba_distribution(self.action_net(latent_pi) / 3.0)


class Contrary(DqnPolicy):
    """Takes the action that looks worst."""

    def _predict(self, obs: Any, deterministic: bool = True) -> torch.Tensor:
        return self.q_net(obs).argmin(dim=1)


@strategies
@cases(
    {"ppo": Case(PPO, bits, PROXIMAL, policy=Lukewarm), "dqn": Case(DQN, bits, EXPLORING, policy=Contrary)},
    ("ppo", "dqn"),
)
def test_a_policy_that_decides_in_its_own_way_is_not_overruled(case: Case, strategy: Any) -> None:
    assert_unmoved(case, strategy)
