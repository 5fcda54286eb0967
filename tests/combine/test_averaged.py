"""Averaged outputs, number by number: what is mixed, what is not, and that it can be taken back."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from user_envs import LoggedLine

from pchid import AveragedOutputs, GoalVecEnv, HindsightPPO
from pchid.errors import InputError

WEIGHT = 0.3
SMALL: dict[str, Any] = {"seed": 1, "device": "cpu", "policy_kwargs": {"net_arch": [16]}}
ON: dict[str, Any] = {**SMALL, "n_steps": 20}
PROXIMAL: dict[str, Any] = {**ON, "batch_size": 20, "n_epochs": 1, "learning_rate": 1e-2}
OFF: dict[str, Any] = {**SMALL, "learning_starts": 24, "batch_size": 16, "buffer_size": 500, "train_freq": 4}


class Wide(LoggedLine):
    """Actions with bounds that are neither one nor symmetric."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(np.array([-0.5, -2.0]), np.array([3.0, 0.25]), (2,), np.float32)


def bits() -> Any:
    return GoalVecEnv.make("BitFlip-v0", 2, n_bits=4)


def plane() -> Any:
    return DummyVecEnv([lambda: TimeLimit(Wide(), 6)] * 2)


def new(kind: Any, env: Any, settings: dict[str, Any]) -> Any:
    """A model; its settings are copied, because Stable-Baselines3 writes into `policy_kwargs`."""
    return kind("MultiInputPolicy", env, **copy.deepcopy(settings))


MODELS: dict[str, Callable[[], Any]] = {
    "dqn": lambda: new(DQN, bits(), OFF),
    "ppo, discrete": lambda: new(PPO, bits(), PROXIMAL),
    "a2c, discrete": lambda: new(A2C, bits(), ON),
    "ppo, continuous": lambda: new(PPO, plane(), PROXIMAL),
    "sac": lambda: new(SAC, plane(), OFF),
    "td3": lambda: new(TD3, plane(), OFF),
    "ddpg": lambda: new(DDPG, plane(), OFF),
}
every = pytest.mark.parametrize(
    "make_model",
    [
        pytest.param(make, id=name, marks=[pytest.mark.slow] * name.startswith(("a2c", "ddpg", "td3")))
        for name, make in MODELS.items()
    ],
)


def averaged(**settings: Any) -> AveragedOutputs:
    few = {"K_max": 1, "weight": WEIGHT, "updates_per_episode": 5, "batch_size": 16, "learning_rate": 1e-2}
    return AveragedOutputs(policy_kwargs={"hidden_sizes": [16]}, **{**few, **settings})


def trained(make_model: Callable[[], Any], **settings: Any) -> tuple[Any, AveragedOutputs]:
    module = averaged(**settings)
    model = make_model()
    model.learn(120, callback=module)
    assert module.updates > 0
    assert len(module.learner.buffers) > 0
    return model, module


def seen_by(model: Any, count: int = 30) -> dict[str, np.ndarray]:
    """Observations of the kind that the model sees."""
    rng = np.random.default_rng(0)
    if isinstance(model.action_space, spaces.Discrete):
        shown = rng.integers(0, 2, (2, count, 4)).astype(np.int8)
    else:
        shown = rng.uniform(-3, 3, (2, count, 2))
    return {"observation": shown[0], "achieved_goal": shown[0], "desired_goal": shown[1]}


def tensors(model: Any, observations: dict[str, np.ndarray]) -> Any:
    return model.policy.obs_to_tensor(observations)[0]


def advice(module: AveragedOutputs, observations: dict[str, np.ndarray]) -> torch.Tensor:
    """What PCHID's network says: scores, or actions scaled to [-1, 1]."""
    with torch.no_grad():
        said = module.network.acting(*(torch.as_tensor(observations[key]) for key in ("observation", "desired_goal")))
    return said if module.network.discrete else said.clamp(-1.0, 1.0)


def unscaled(space: spaces.Box, actions: np.ndarray) -> np.ndarray:
    return space.low + (actions + 1.0) * 0.5 * (space.high - space.low)


# Discrete actions.


def test_dqn_takes_the_best_of_both() -> None:
    model, module = trained(MODELS["dqn"], weight=2.0)
    observations = seen_by(model)
    with torch.no_grad():
        q = model.q_net(tensors(model, observations))
    log_probabilities = torch.log_softmax(advice(module, observations), dim=1)
    expected = (q + 2.0 * log_probabilities).argmax(dim=1)
    np.testing.assert_array_equal(model.predict(observations, deterministic=True)[0], expected)
    assert not torch.equal(expected, q.argmax(dim=1))


@pytest.mark.parametrize("name", ["ppo, discrete", "a2c, discrete"])
def test_logits_and_log_probabilities_are_added(name: str) -> None:
    model, module = trained(MODELS[name])
    observations = seen_by(model)
    seen = tensors(model, observations)
    with torch.no_grad():
        features = model.policy.mlp_extractor.forward_actor(model.policy.extract_features(seen))
        logits = model.policy.action_net(features)
    mixed = torch.distributions.Categorical(
        logits=logits + WEIGHT * torch.log_softmax(advice(module, observations), dim=1)
    )
    actions = torch.arange(30) % 4
    with torch.no_grad():
        values, log_prob, entropy = model.policy.evaluate_actions(seen, actions)
    torch.testing.assert_close(log_prob, mixed.log_prob(actions))
    torch.testing.assert_close(entropy, mixed.entropy())
    torch.testing.assert_close(values, model.policy.predict_values(seen))
    assert not torch.allclose(log_prob, torch.distributions.Categorical(logits=logits).log_prob(actions), atol=1e-3)
    chosen = model.predict(observations, deterministic=True)[0]
    np.testing.assert_array_equal(chosen, mixed.probs.argmax(dim=1))


# Continuous actions.


def test_means_are_interpolated_in_the_units_of_the_environment() -> None:
    model, module = trained(MODELS["ppo, continuous"])
    observations = seen_by(model)
    seen = tensors(model, observations)
    with torch.no_grad():
        features = model.policy.mlp_extractor.forward_actor(model.policy.extract_features(seen))
        base = model.policy.action_net(features)
    theirs = torch.as_tensor(unscaled(model.action_space, advice(module, observations).numpy()), dtype=torch.float32)
    mean = (1 - WEIGHT) * base + WEIGHT * theirs
    mixed = torch.distributions.Normal(mean, model.policy.log_std.exp().detach())
    actions = torch.as_tensor(np.random.default_rng(1).uniform(-2, 3, (30, 2)), dtype=torch.float32)
    with torch.no_grad():
        _, log_prob, entropy = model.policy.evaluate_actions(seen, actions)
    torch.testing.assert_close(log_prob, mixed.log_prob(actions).sum(dim=1))
    torch.testing.assert_close(entropy, mixed.entropy().sum(dim=1))
    assert not torch.allclose(mean, base, atol=1e-2)
    low, high = model.action_space.low, model.action_space.high
    chosen = model.predict(observations, deterministic=True)[0]
    np.testing.assert_allclose(chosen, np.clip(mean.numpy(), low, high), rtol=1e-5, atol=1e-6)


def test_sac_mixes_before_it_squashes() -> None:
    model, module = trained(MODELS["sac"])
    observations = seen_by(model)
    with torch.no_grad():
        mean, log_std, _ = model.actor.get_action_dist_params(tensors(model, observations))
    theirs = torch.atanh(advice(module, observations).clamp(-1 + 1e-6, 1 - 1e-6))
    mixed = (1 - WEIGHT) * mean + WEIGHT * theirs
    expected = unscaled(model.action_space, torch.tanh(mixed).numpy())
    chosen = model.predict(observations, deterministic=True)[0]
    np.testing.assert_allclose(chosen, expected, rtol=1e-4, atol=1e-5)
    assert np.isfinite(chosen).all()
    alone = unscaled(model.action_space, torch.tanh(mean).numpy())
    assert not np.allclose(chosen, alone, atol=1e-2)
    # A sample has the mixed mean, too.
    torch.manual_seed(0)
    sampled = model.predict(observations, deterministic=False)[0]
    torch.manual_seed(0)
    noise = torch.distributions.Normal(mixed, log_std.exp()).rsample()
    np.testing.assert_allclose(sampled, unscaled(model.action_space, torch.tanh(noise).numpy()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["td3", "ddpg"])
def test_td3_and_ddpg_mix_actions(name: str) -> None:
    model, module = trained(MODELS[name])
    observations = seen_by(model)
    with torch.no_grad():
        actions = model.actor(tensors(model, observations))
    mixed = (1 - WEIGHT) * actions + WEIGHT * advice(module, observations)
    chosen = model.predict(observations, deterministic=True)[0]
    np.testing.assert_allclose(chosen, unscaled(model.action_space, mixed.numpy()), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(mixed, actions, atol=1e-2)


@pytest.mark.parametrize("name", ["ppo, continuous", "sac", "td3"])
def test_with_all_the_weight_pchid_acts_alone(name: str) -> None:
    model, module = trained(MODELS[name], weight=1.0)
    observations = seen_by(model)
    chosen = model.predict(observations, deterministic=True)[0]
    expected = unscaled(model.action_space, advice(module, observations).numpy())
    np.testing.assert_allclose(chosen, expected, atol=1e-5)


# The whole of PPO.


@pytest.mark.parametrize("name", ["ppo, discrete", "a2c, discrete", "ppo, continuous"])
def test_what_is_sampled_has_the_probability_that_is_trained_on(name: str) -> None:
    model, _ = trained(MODELS[name])
    seen = tensors(model, seen_by(model))
    with torch.no_grad():
        actions, values, log_prob = model.policy(seen)
        again = model.policy.evaluate_actions(seen, actions)
        third = model.policy.get_distribution(seen).log_prob(actions)
    torch.testing.assert_close(log_prob, again[1])
    torch.testing.assert_close(log_prob, third)
    torch.testing.assert_close(values, again[0])


@pytest.mark.parametrize("kind", [PPO, HindsightPPO])
def test_the_first_epoch_of_ppo_starts_at_a_ratio_of_one(kind: Any) -> None:
    """Log-probabilities in the rollout and in training are of the same distribution."""
    model, module = new(kind, bits(), PROXIMAL), averaged()
    model.learn(80, callback=module)
    module.weight = 2.0
    ratios: list[float] = []

    def look() -> None:
        for batch in model.rollout_buffer.get(40):
            with torch.no_grad():
                _, log_prob, _ = model.policy.evaluate_actions(batch.observations, batch.actions.long().flatten())
            ratios.append(float((log_prob - batch.old_log_prob).abs().max()))

    model.train = look
    model.learn(40, callback=module, reset_num_timesteps=False)
    assert len(ratios) == 1
    assert max(ratios) < 1e-5


# What stays apart.


@every
def test_pchids_network_is_no_part_of_the_policy(make_model: Callable[[], Any]) -> None:
    alone = make_model()
    model, module = trained(make_model)
    assert list(model.policy.state_dict()) == list(alone.policy.state_dict())
    ours = {id(parameter) for parameter in module.network.parameters()}
    assert ours
    assert not ours & {id(parameter) for parameter in model.policy.parameters()}
    optimised = [model.policy.optimizer] if hasattr(model.policy, "optimizer") else []
    optimised += [part.optimizer for part in (getattr(model, "actor", None), getattr(model, "critic", None)) if part]
    assert optimised
    for optimizer in optimised:
        assert not ours & {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_targets_are_not_mixed(name: str) -> None:
    model, module = trained(MODELS[name])
    seen = tensors(model, seen_by(model))

    def answers() -> list[torch.Tensor]:
        torch.manual_seed(0)
        with torch.no_grad():
            if name == "dqn":
                return [model.q_net(seen), model.q_net_target(seen), model.q_net._predict(seen)]
            actions = model.actor(seen)
            others = list(model.actor.action_log_prob(seen)) if name == "sac" else [model.actor_target(seen)]
            return [actions, *others, *model.critic(seen, actions), *model.critic_target(seen, actions)]

    mixed, chosen = answers(), model.predict(seen_by(model), deterministic=True)[0]
    module.weight = 0.9
    assert all(torch.equal(now, before) for now, before in zip(answers(), mixed, strict=True))
    assert not np.array_equal(model.predict(seen_by(model), deterministic=True)[0], chosen)
    module.release()
    assert all(torch.equal(now, before) for now, before in zip(answers(), mixed, strict=True))


@every
def test_it_can_be_taken_back(make_model: Callable[[], Any]) -> None:
    plain = type(make_model().policy)
    model, module = trained(make_model)
    observations = seen_by(model)
    both = model.predict(observations, deterministic=True)[0]
    alone = make_model()
    alone.policy.load_state_dict(model.policy.state_dict())
    module.release()
    assert type(model.policy) is plain
    assert "extension" not in vars(model.policy)
    one = model.predict(observations, deterministic=True)[0]
    np.testing.assert_array_equal(one, alone.predict(observations, deterministic=True)[0])
    assert not np.array_equal(one, both)
    model.learn(40, reset_num_timesteps=False)  # and it trains on alone
    assert type(model.policy) is plain


@every
def test_until_it_has_learned_anything_it_has_no_say(make_model: Callable[[], Any]) -> None:
    module = averaged()
    model = make_model()
    observations = seen_by(model)
    before = model.predict(observations, deterministic=True)[0]
    module.prepare(model)
    np.testing.assert_array_equal(model.predict(observations, deterministic=True)[0], before)


@pytest.mark.parametrize("name", ["dqn", "ppo, discrete", "sac"])
def test_nor_has_it_where_no_pair_was_kept(name: str) -> None:
    module = averaged(min_displacement=1e6)  # as where nothing that counts has been moved yet
    model = MODELS[name]()
    model.learn(60, callback=module)
    assert module.episodes_seen > 0
    assert len(module.learner.buffers) == 0
    observations = seen_by(model)
    mixed = model.predict(observations, deterministic=True)[0]
    module.release()
    np.testing.assert_array_equal(mixed, model.predict(observations, deterministic=True)[0])


def test_it_sees_what_the_policy_sees() -> None:
    """Below VecNormalize, the network is trained on normalised observations, as it is asked with them."""
    model, module = new(SAC, VecNormalize(plane()), OFF), averaged(updates_per_episode=30)
    model.learn(240, callback=module)
    pairs = module.learner.buffers.sample(200, np.random.default_rng(0))
    normalised = {k: v.copy() for k, v in model.get_vec_normalize_env().normalize_obs(pairs.observations).items()}
    said = unscaled(model.action_space, advice(module, normalised).numpy())
    wrong = unscaled(model.action_space, advice(module, pairs.observations).numpy())
    error, without = (np.square(given - pairs.action).mean() for given in (said, wrong))
    assert error < 0.5 * without
    module.weight = 1.0
    np.testing.assert_allclose(model.predict(normalised, deterministic=True)[0], said, atol=1e-5)


# What is refused.


@pytest.mark.parametrize("name", ["ppo, continuous", "sac", "td3"])
def test_more_than_the_whole_action_is_refused(name: str) -> None:
    model = MODELS[name]()
    plain = type(model.policy)
    with pytest.raises(InputError, match=r"1\.5.*at most 1") as caught:
        model.learn(20, callback=averaged(weight=1.5))
    assert "\n" not in str(caught.value)
    assert type(model.policy) is plain
    assert model.num_timesteps == 0


def test_discrete_scores_may_be_outweighed() -> None:
    model, _ = trained(MODELS["ppo, discrete"], weight=20.0)
    assert all(math.isfinite(float(value.sum())) for value in model.policy.parameters())


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_a_weight_that_makes_no_sense_is_refused(weight: float) -> None:
    with pytest.raises(InputError, match="weight"):
        averaged(weight=weight)
