"""Normalised inputs for algorithms of Stable-Baselines3, and noise that differs between episodes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import DDPG, PPO, SAC
from stable_baselines3.common.noise import VectorizedActionNoise

from pchid.combine.agent import CombinedAgent, make_agent
from pchid.combine.features import GoalFeatures
from pchid.combine.noise import EpisodeNoise
from pchid.combine.replay import HindsightReplayBuffer
from pchid.config import new_config
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError

ENV = "FetchReach-v4"


def observations(count: int, seed: int = 0) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-3, 3, 10)
    near = rng.normal(1.3, 0.1, (count, 3))
    found = {
        "observation": rng.normal(5.0, 1.0, (count, 10)) * scale,
        "achieved_goal": near,
        "desired_goal": near + rng.normal(0.0, 0.01, (count, 3)),
    }
    return {key: torch.as_tensor(values) for key, values in found.items()}


def test_inputs_of_any_scale_come_out_alike_and_the_way_to_the_goal_is_one_of_them() -> None:
    features = GoalFeatures(GoalVecEnv.make(ENV).observation_space)  # type: ignore[arg-type]
    features.train()
    for _ in range(50):
        features(observations(200))
    features.eval()
    seen = features(observations(200)).numpy()
    assert seen.shape == (200, 10 + 3 + 3)
    np.testing.assert_allclose(seen.mean(axis=0), 0.0, atol=0.05)
    np.testing.assert_allclose(seen.std(axis=0), 1.0, atol=0.1)
    moved = observations(200)
    moved["achieved_goal"] = moved["achieved_goal"] + 0.01
    other = features(moved).numpy()
    np.testing.assert_array_equal(other[:, :13], seen[:, :13])
    assert (other[:, 13:] < seen[:, 13:] - 0.5).all()


def test_it_learns_its_statistics_in_training_alone() -> None:
    features = GoalFeatures(GoalVecEnv.make(ENV).observation_space)  # type: ignore[arg-type]
    features.eval()
    before = copy.deepcopy(features.state_dict())
    features(observations(20))
    assert all(torch.equal(before[name], value) for name, value in features.state_dict().items())
    features.train()
    features(observations(20))
    assert not torch.equal(before["normaliser.running_mean"], features.normaliser.running_mean)


@pytest.mark.parametrize("kind", [DDPG, SAC])
def test_target_networks_share_the_statistics(kind: Any) -> None:
    model = kind(
        "MultiInputPolicy",
        GoalVecEnv.make(ENV, 2),
        learning_starts=100,
        batch_size=16,
        replay_buffer_class=HindsightReplayBuffer,
        policy_kwargs={"net_arch": [8], "features_extractor_class": GoalFeatures},
        seed=0,
        device="cpu",
    )
    model.learn(200)
    own, target = (net.features_extractor.normaliser for net in (model.critic, model.critic_target))
    assert own.running_count > 10
    torch.testing.assert_close(own.running_mean, target.running_mean)
    torch.testing.assert_close(own.running_variance, target.running_variance)


def test_on_policy_algorithms_take_it_too() -> None:
    settings = {"net_arch": [8], "features_extractor_class": GoalFeatures}
    model = PPO("MultiInputPolicy", GoalVecEnv.make(ENV), n_steps=50, batch_size=25, policy_kwargs=settings, seed=0)
    model.learn(50)
    assert model.policy.features_extractor.normaliser.running_count > 0


def test_the_same_scale_throughout_an_episode_and_another_in_the_next() -> None:
    np.random.seed(0)
    noise = EpisodeNoise(2000, 1.0, 0.1)
    scales = []
    for _ in range(40):
        noise.reset()
        one, two = noise().std(), noise().std()
        assert one == pytest.approx(two, rel=0.1)
        scales.append(one)
    assert min(scales) < 0.25 < 0.8 < max(scales)


def test_noise_lasts_as_often_as_asked_but_not_over_a_reset() -> None:
    np.random.seed(0)
    noise = EpisodeNoise(2000, 1.0, 1.0, persistence=0.7)
    one, two = noise(), noise()
    assert (one == two).mean() == pytest.approx(0.7, abs=0.05)
    noise.reset()
    assert not (noise() == two).any()


@pytest.mark.parametrize("wrong", [{"least_noise": 2.0}, {"least_noise": -1.0}, {"persistence": 1.0}])
def test_noise_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        EpisodeNoise(4, **{"noise": 1.0, "least_noise": 0.1, **wrong})


def agent(steps: int = 0) -> CombinedAgent:
    sb3 = {"action_noise": 1.0, "least_action_noise": 0.1, "persistence": 0.5, "goal_features": True}
    small = {"batch_size": 16, "buffer_size": 1000, "policy_kwargs": {"net_arch": [8]}}
    given = {"env": ENV, "method": "ddpg+her", "num_envs": 3, "steps": 600, "sb3_options": {**sb3, **small}}
    config = new_config(given)
    made = make_agent(config, GoalVecEnv.make(ENV, 3))
    if steps:
        made.model.learn(steps, reset_num_timesteps=False)
    return made


def test_each_slot_has_noise_of_its_own() -> None:
    made = agent(240)
    assert isinstance(made.model.action_noise, VectorizedActionNoise)
    assert len({float(noise.noise_prev[0]) for noise in made.model.action_noise.noises}) == 3  # type: ignore[attr-defined]


def test_an_agent_is_saved_with_its_statistics(tmp_path: Any) -> None:
    trained = agent(300)
    trained.save(tmp_path / "agent")
    env = GoalVecEnv.make(ENV)
    again = CombinedAgent.load(tmp_path / "agent", env)
    seen, _ = env.vector.reset(seed=0)
    np.testing.assert_array_equal(again.predict(seen)[0], trained.predict(seen)[0])
    assert again.model.policy.actor.features_extractor.normaliser.running_count > 0  # type: ignore[union-attr]
