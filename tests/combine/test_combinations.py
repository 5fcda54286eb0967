"""Hindsight beside Stable-Baselines3: nothing at weight 0, the stated mixtures otherwise, and in users' own scripts."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.torch_layers import CombinedExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecMonitor, VecNormalize

from pchid import (
    AveragedOutputs,
    GoalVecEnv,
    HindsightPPO,
    HindsightReplayBuffer,
    Interaction,
    IntrinsicReward,
    JointTraining,
    make_probe,
)
from pchid.combine import load_training, save_training
from pchid.combine.student import outputs
from pchid.distillation import RandomNetworkDistillation
from pchid.envs import register_robotics
from pchid.errors import InputError

STRATEGIES = [JointTraining, AveragedOutputs, IntrinsicReward]
MODULE: dict[str, Any] = {"K_max": 2, "updates_per_episode": 2, "batch_size": 16}
SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [16]}, "seed": 3, "device": "cpu"}
OFF_POLICY: dict[str, Any] = {"learning_starts": 110, "batch_size": 16, "buffer_size": 500, "train_freq": 4}
STEPS = 160


def reach(slots: int = 1) -> GoalVecEnv:
    return GoalVecEnv.make("FetchReach-v4", slots)


def flip(slots: int = 1) -> GoalVecEnv:
    return GoalVecEnv.make("BitFlip-v0", slots, n_bits=4)


def make(name: str, env: Any = None, her: Any = None, **more: Any) -> Any:
    discrete = name in ("dqn", "ppo-discrete", "a2c")
    env = env if env is not None else (flip(2) if discrete else reach(2))
    settings = copy.deepcopy({**SMALL, **more})  # SB3 writes into policy_kwargs
    if name.startswith("ppo"):
        settings = {"n_steps": 25, "batch_size": 25, "n_epochs": 2, **settings}
        return HindsightPPO("MultiInputPolicy", env, **settings) if her else PPO("MultiInputPolicy", env, **settings)
    if name == "a2c":
        return A2C("MultiInputPolicy", env, **settings)
    if her:
        settings["replay_buffer_class"] = her
    if name in ("td3", "ddpg"):
        settings["action_noise"] = NormalActionNoise(np.zeros(4), np.full(4, 0.2))
    if name == "tqc":
        kind = pytest.importorskip("sb3_contrib").TQC
    else:
        kind = {"dqn": DQN, "sac": SAC, "td3": TD3, "ddpg": DDPG}[name]
    return kind("MultiInputPolicy", env, **{**OFF_POLICY, **settings})


def parameters(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.policy.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


BASES = [
    *((name, None) for name in ("dqn", "ppo", "ppo-discrete", "a2c", "sac", "td3", "ddpg", "tqc")),
    *((name, HindsightReplayBuffer) for name in ("dqn", "sac", "td3", "ddpg", "tqc")),
    *((name, True) for name in ("ppo", "ppo-discrete")),
    ("dqn", HerReplayBuffer),
]


@pytest.mark.parametrize(("name", "her"), BASES)
def test_at_weight_0_the_algorithm_trains_as_if_it_were_alone(name: str, her: Any) -> None:
    alone = parameters(make(name, her=her).learn(STEPS))
    for strategy in STRATEGIES:
        model, module = make(name, her=her), strategy(weight=0.0, **MODULE)
        model.learn(STEPS, callback=module)
        assert module.updates > 0
        assert len(module.learner.buffers) > 0
        assert same(alone, parameters(model)), strategy


@pytest.mark.parametrize(("name", "her"), [("dqn", HindsightReplayBuffer), ("ppo", True), ("sac", None), ("td3", None)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_with_weight_it_trains_differently(name: str, her: Any, strategy: Any) -> None:
    alone = parameters(make(name, her=her).learn(STEPS))
    model = make(name, her=her)
    model.learn(STEPS, callback=strategy(weight=0.5, **MODULE))
    assert not same(alone, parameters(model))


@pytest.mark.parametrize("name", ["dqn", "ppo", "ppo-discrete", "sac", "td3"])
def test_joint_training_fits_the_network_that_the_algorithm_trains(name: str) -> None:
    model = make(name)
    module = JointTraining(K_max=1, updates_per_episode=0, learning_rate=1e-2, batch_size=64)
    model.learn(STEPS, callback=module)
    pairs = module.learner.buffers.sample(200, np.random.default_rng(0))

    def loss() -> float:
        with torch.no_grad():
            return float(module.policy.imitation_loss(pairs.observations, pairs.action).mean())

    before, weights = loss(), parameters(model)
    module.learner.update(module.policy, 150)
    assert loss() < before
    assert not same(weights, parameters(model))


class Wide(gym.Env[Any, Any]):
    """A point that actions between 0 and 10 move, which notes what it was really told."""

    def __init__(self) -> None:
        box = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.observation_space = gym.spaces.Dict(observation=box, achieved_goal=box, desired_goal=box)
        self.action_space = gym.spaces.Box(0.0, 10.0, (2,), np.float32)
        self.told: list[Any] = []

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**settings)
        self.place, self.goal, self.time = np.zeros(2), self.np_random.uniform(0, 100, 2), 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.told.append((self.place.copy(), np.array(action)))
        self.place, self.time = self.place + action, self.time + 1
        return self._show(), self.compute_reward(self.place, self.goal, {}), False, self.time == 10, {}

    def _show(self) -> Any:
        return {"observation": self.place.copy(), "achieved_goal": self.place.copy(), "desired_goal": self.goal.copy()}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.where(np.abs(np.asarray(achieved) - desired).max(axis=-1) < 5, 0.0, -1.0)


@pytest.mark.parametrize("name", ["ppo", "sac", "td3"])
@pytest.mark.parametrize("normalised", [False, True])
def test_pairs_hold_what_was_executed_and_what_the_environment_showed(name: str, normalised: bool) -> None:
    single = Wide()
    env: Any = DummyVecEnv([lambda: single])
    env = VecNormalize(env) if normalised else env
    more = {"action_noise": NormalActionNoise(np.zeros(2), np.ones(2))} if name == "td3" else {}
    model = (PPO if name == "ppo" else {"sac": SAC, "td3": TD3}[name])(
        "MultiInputPolicy",
        env,
        **copy.deepcopy(SMALL),
        **({"n_steps": 20, "batch_size": 20} if name == "ppo" else {**OFF_POLICY, **more}),
    )
    module = JointTraining(K_max=1, test="none", updates_per_episode=1)
    model.learn(100, callback=module)
    pairs = module.learner.buffers.buffers[1].everything()
    moved = [(place, action) for place, action in single.told if action.any()]  # what did not move is no pair
    assert len(pairs) == len(moved) > 40
    for index, (place, action) in enumerate(moved):
        np.testing.assert_array_equal(pairs.observation[index], place)
        np.testing.assert_array_equal(pairs.action[index], action)
        np.testing.assert_allclose(pairs.goal[index], place + action)
    assert (pairs.action >= 0).all() and (pairs.action <= 10).all()


def trained(name: str, **settings: Any) -> tuple[Any, Any, Any, dict[str, torch.Tensor]]:
    """A model with averaged outputs that know something, and observations to ask about."""
    model, module = make(name), AveragedOutputs(**MODULE, **settings)
    model.learn(STEPS, callback=module)
    raw = model.get_env().reset()
    return model, module, raw, model.policy.obs_to_tensor(raw)[0]


def test_dqn_takes_the_best_of_the_mixed_scores() -> None:
    model, module, raw, seen = trained("dqn", weight=0.7)
    with torch.no_grad():
        mixed = model.policy.q_net(seen) + 0.7 * torch.log_softmax(module.outputs(seen), dim=1)
    np.testing.assert_array_equal(model.predict(raw, deterministic=True)[0], mixed.argmax(dim=1).numpy())


def test_sac_mixes_before_it_squashes_and_td3_after() -> None:
    model, module, raw, seen = trained("sac", weight=0.3)
    with torch.no_grad():
        mean = model.policy.actor.get_action_dist_params(seen)[0]
        mixed = torch.tanh(0.7 * mean + 0.3 * torch.atanh(module.outputs(seen).clamp(-1 + 1e-6, 1 - 1e-6)))
    np.testing.assert_allclose(model.predict(raw, deterministic=True)[0], mixed.numpy(), atol=1e-6)
    model, module, raw, seen = trained("td3", weight=0.3)
    with torch.no_grad():
        mixed = 0.7 * model.policy.actor(seen) + 0.3 * module.outputs(seen)
    np.testing.assert_allclose(model.predict(raw, deterministic=True)[0], mixed.numpy(), atol=1e-6)


@pytest.mark.parametrize("name", ["ppo", "ppo-discrete"])
def test_ppo_samples_from_the_mixture_and_trains_on_its_log_probabilities(name: str) -> None:
    model, module, _, seen = trained(name, weight=0.4)
    with torch.no_grad():
        actions, _, sampled = model.policy(seen)
        _, judged, _ = model.policy.evaluate_actions(seen, actions)
        module.release()
        base, advice = model.policy.get_distribution(seen).distribution, module.outputs(seen)
        if name == "ppo":
            mixed: Any = torch.distributions.Normal(0.6 * base.mean + 0.4 * advice, base.stddev)
            expected = mixed.log_prob(actions).sum(dim=1)
        else:
            mixed = torch.distributions.Categorical(logits=base.logits + 0.4 * torch.log_softmax(advice, dim=1))
            expected = mixed.log_prob(actions)
    torch.testing.assert_close(sampled, judged)
    torch.testing.assert_close(judged, expected)


def test_the_network_beside_is_no_part_of_the_policy_and_no_target_is_mixed() -> None:
    model, module, _, seen = trained("dqn", weight=5.0)
    alone = make("dqn")
    assert model.policy.state_dict().keys() == alone.policy.state_dict().keys()
    assert len(list(model.policy.parameters())) == len(list(alone.policy.parameters()))
    with torch.no_grad():
        before = model.policy.q_net(seen)
        module.release()
        torch.testing.assert_close(before, model.policy.q_net(seen), rtol=0, atol=0)


def test_wrong_weights_are_refused() -> None:
    with pytest.raises(InputError, match="negative"):
        JointTraining(weight=-1.0)
    with pytest.raises(InputError, match="at most 1"):
        make("ppo").learn(10, callback=AveragedOutputs(weight=1.5))


class Ledger(IntrinsicReward):
    """Keeps what PPO was paid by the environment and in all."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.rows: list[Any] = []

    def _on_step(self) -> bool:
        before = self.locals["rewards"].copy()
        seen = self.model.policy.obs_to_tensor(self.model._last_obs)[0]  # type: ignore[arg-type]
        going_on = super()._on_step()
        self.rows.append((before, seen, self.locals["clipped_actions"].copy(), self.locals["rewards"].copy()))
        return going_on


def test_ppo_is_charged_for_disagreement_before_advantages() -> None:
    # Without updates, so that what it said can be asked again; it has a say from the first step on.
    model, module = make("ppo", n_steps=STEPS), Ledger(weight=0.5, **{**MODULE, "updates_per_episode": 0})
    module.prepare(model)
    module.updates = 1
    model.learn(2 * STEPS, callback=module)
    for reward, seen, actions, paid in module.rows:
        disagreement = ((torch.as_tensor(actions) - module.outputs(seen)) ** 2).mean(dim=1).numpy()
        np.testing.assert_allclose(paid, reward - 0.5 * disagreement, rtol=1e-4)


def test_replayed_transitions_are_charged_under_the_goal_they_are_relabelled_with(tmp_path: Path) -> None:
    model, module = make("dqn", her=HindsightReplayBuffer), IntrinsicReward(weight=0.5, **MODULE)
    saving = CheckpointCallback(50, str(tmp_path), save_replay_buffer=True)
    model.learn(STEPS, callback=[module, saving])
    assert type(model.replay_buffer) is HindsightReplayBuffer
    assert list(tmp_path.glob("*replay_buffer*.pkl"))
    buffer = model.replay_buffer
    np.random.seed(0)
    plain = buffer.sample(64)
    module._on_training_start()
    np.random.seed(0)
    charged = buffer.sample(64)
    module._on_training_end()
    with torch.no_grad():
        chances = torch.softmax(module.outputs(plain.observations), dim=1).gather(1, plain.actions.long())
    torch.testing.assert_close(charged.rewards, plain.rewards - 0.5 * (1.0 - chances))
    assert (plain.observations["desired_goal"] != plain.observations["achieved_goal"]).any()


class MyExtractor(CombinedExtractor):
    """Stands for a user's own network."""


@pytest.mark.parametrize("name", ["ppo", "sac", "td3"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_users_own_script_keeps_working(name: str, strategy: Any, tmp_path: Path) -> None:
    register_robotics()

    def single() -> gym.Env[Any, Any]:
        return Monitor(gym.make("FetchReach-v4"))

    env, evaluation = (VecNormalize(DummyVecEnv([single, single]), norm_reward=name == "ppo") for _ in range(2))
    envs = list(env.unwrapped.envs)  # type: ignore[attr-defined]
    model = make(name, env, policy_kwargs={"net_arch": [16], "features_extractor_class": MyExtractor})
    callbacks = [
        strategy(test=Interaction(lambda: gym.make("FetchReach-v4")), **MODULE),
        EvalCallback(evaluation, n_eval_episodes=1, eval_freq=60, log_path=str(tmp_path), verbose=0),
        CheckpointCallback(50, str(tmp_path), save_vecnormalize=True),
    ]
    model.learn(250, callback=callbacks)
    assert callbacks[0].updates > 0
    assert (tmp_path / "evaluations.npz").exists()
    assert list(tmp_path.glob("rl_model_*_steps.zip"))
    assert list(env.unwrapped.envs) == envs  # type: ignore[attr-defined]
    assert "step_wait" not in vars(env.unwrapped)
    model.save(tmp_path / "mine")
    loaded = type(model).load(tmp_path / "mine", device="cpu")
    assert same(parameters(model), parameters(loaded))


def registered_reach() -> gym.Env[Any, Any]:
    register_robotics()
    return gym.make("FetchReach-v4")


def test_environments_of_every_make(tmp_path: Path) -> None:
    register_robotics()
    makers = [registered_reach] * 2
    for env, kind in (
        (VecMonitor(DummyVecEnv(makers)), Interaction),
        (SubprocVecEnv(makers), RandomNetworkDistillation),
    ):
        module = JointTraining(**MODULE)
        make("ppo", env).learn(120, callback=module)
        assert isinstance(module.learner.test, kind)
        assert len(module.learner.buffers) == 100  # 50 steps of each slot
        env.close()
    module = JointTraining(**MODULE, test=Interaction(lambda: make_probe("FetchReach-v4", 8)))
    make("ppo").learn(120, callback=module)
    assert len(module.learner.buffers) >= 100


def test_what_hindsight_cannot_follow_is_refused() -> None:
    with pytest.raises(InputError, match="not a goal environment"):
        PPO("MlpPolicy", "CartPole-v1", **SMALL).learn(10, callback=JointTraining())
    stacked = VecFrameStack(reach(), 2)
    with pytest.raises(InputError, match="changes what the policy observes"):
        make("ppo", stacked).learn(10, callback=JointTraining())


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("name", "her"), [("dqn", HindsightReplayBuffer), ("ppo-discrete", True)])
def test_python_users_can_stop_and_go_on_exactly(strategy: Any, name: str, her: Any, tmp_path: Path) -> None:
    def fresh() -> tuple[Any, Any]:
        return make(name, her=her, env=flip(2)), strategy(weight=0.5, **MODULE)

    # What comes in one call of `learn` can be told from two (a rollout that begins again), so both have two.
    model, module = fresh()
    model.learn(100, callback=module)
    model.learn(100, callback=module, reset_num_timesteps=False)
    whole = parameters(model)

    model, module = fresh()
    model.learn(100, callback=module)
    save_training(tmp_path, model, module)
    torch.manual_seed(99)
    np.random.seed(99)
    model, module = fresh()
    load_training(tmp_path, model, module)
    model.learn(100, callback=module, reset_num_timesteps=False)
    assert same(whole, parameters(model))


def test_outputs_of_squashing_policies_lie_in_range() -> None:
    for name in ("sac", "td3"):
        model = make(name)
        seen = model.policy.obs_to_tensor(model.get_env().reset())[0]
        with torch.no_grad():
            said = outputs(model.policy, seen)
        assert said.shape == (2, 4)
        assert (said.abs() <= 1).all()
