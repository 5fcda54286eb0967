"""The intrinsic reward, step by step: who is paid what, under which goal, and what is left behind."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.buffers import DictReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback
from stable_baselines3.common.save_util import load_from_pkl
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper, VecNormalize
from user_envs import LoggedLine

from pchid import GoalVecEnv, HindsightPPO, HindsightReplayBuffer, IntrinsicReward

WEIGHT = 0.7
SMALL: dict[str, Any] = {"seed": 1, "device": "cpu", "policy_kwargs": {"net_arch": [16]}}
ON: dict[str, Any] = {**SMALL, "n_steps": 20}
PROXIMAL: dict[str, Any] = {**ON, "batch_size": 20, "n_epochs": 1}
OFF: dict[str, Any] = {**SMALL, "learning_starts": 24, "batch_size": 16, "buffer_size": 500, "train_freq": 4}
SQUASHED: dict[str, Any] = {"use_sde": True, "policy_kwargs": {"net_arch": [16], "squash_output": True}}


class Wide(LoggedLine):
    """Actions with bounds that are neither one nor symmetric."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(np.array([-0.5, -2.0]), np.array([3.0, 0.25]), (2,), np.float32)


class Rewards(VecEnvWrapper):
    """Keeps the rewards of the environments, and the actions and observations around them."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.paid: list[np.ndarray] = []
        self.actions: list[np.ndarray] = []
        self.dones: list[np.ndarray] = []

    def reset(self) -> Any:
        return self.venv.reset()

    def step_async(self, actions: np.ndarray) -> None:
        self.actions.append(actions.copy())
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        self.paid.append(rewards.copy())
        self.dones.append(dones.copy())
        return observations, rewards, dones, infos


def bits() -> Any:
    return GoalVecEnv.make("BitFlip-v0", 2, n_bits=4)


def plane() -> Any:
    return DummyVecEnv([lambda: TimeLimit(Wide(), 6)] * 2)


def new(kind: Any, env: Any, settings: dict[str, Any], **others: Any) -> Any:
    """A model; its settings are copied, because Stable-Baselines3 writes into `policy_kwargs`."""
    return kind("MultiInputPolicy", env, **copy.deepcopy({**settings, **others}))


def intrinsic(**settings: Any) -> IntrinsicReward:
    few = {"K_max": 1, "weight": WEIGHT, "updates_per_episode": 5, "batch_size": 16, "learning_rate": 1e-2}
    return IntrinsicReward(policy_kwargs={"hidden_sizes": [16]}, **{**few, **settings})


def disagreement(network: Any, space: Any, observation: Any, goal: Any, actions: Any) -> np.ndarray:
    """By hand: one minus the probability of the action, or the mean square of what separates scaled actions."""
    with torch.no_grad():
        said = network.acting(torch.as_tensor(observation), torch.as_tensor(goal))
    if isinstance(space, spaces.Discrete):
        probability = torch.softmax(said, dim=1).numpy()
        return 1.0 - probability[np.arange(len(said)), np.asarray(actions, int).ravel()]
    own = 2.0 * (np.asarray(actions) - space.low) / (space.high - space.low) - 1.0
    return np.square(own - said.clamp(-1.0, 1.0).numpy()).mean(axis=1)


class Watch(BaseCallback):
    """Keeps the network as it is at the start of each rollout, and the rollout as it was played."""

    def __init__(self, module: IntrinsicReward) -> None:
        super().__init__()
        self.module = module

    def _on_rollout_start(self) -> None:  # it stands behind the module, which has learned by now
        self.network = copy.deepcopy(self.module.network)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.played = copy.deepcopy(self.model.rollout_buffer)  # type: ignore[attr-defined]


ON_POLICY: dict[str, Callable[[Any], Any]] = {
    "ppo, discrete": lambda env: new(PPO, env, PROXIMAL),
    "a2c, discrete": lambda env: new(A2C, env, ON),
    "ppo, continuous": lambda env: new(PPO, env, PROXIMAL, policy_kwargs={"net_arch": [16], "log_std_init": 1.0}),
    "ppo, squashed": lambda env: new(PPO, env, PROXIMAL, **SQUASHED),
}


@pytest.mark.parametrize("name", ON_POLICY)
def test_a_rollout_is_paid_by_the_network_that_was_there_when_it_began(name: str) -> None:
    env = Rewards(bits() if "discrete" in name else plane())
    model, module = ON_POLICY[name](env), intrinsic()
    watch = Watch(module)
    model.learn(120, callback=[module, watch])
    assert module.updates > 0
    rollout, space = watch.played, model.action_space
    length = len(rollout.rewards)
    paid, dones, actions = (np.array(part[-length:]) for part in (env.paid, env.dones, env.actions))
    expected = [
        paid[:, slot]
        - WEIGHT
        * disagreement(
            watch.network,
            space,
            rollout.observations["observation"][:, slot],
            rollout.observations["desired_goal"][:, slot],
            actions[:, slot],
        )
        for slot in range(2)
    ]
    running = ~dones  # where the time was up, the value of what would follow is added as well
    np.testing.assert_allclose(rollout.rewards[running], np.transpose(expected)[running], rtol=1e-4, atol=1e-5)
    assert running.sum() > length
    assert np.abs(rollout.rewards[running] - paid[running]).max() > 0.05


def test_normalised_rewards_are_paid_on_top() -> None:
    env = VecNormalize(plane())
    model, module = new(PPO, env, PROXIMAL), intrinsic()
    watch = Watch(module)
    seen: list[np.ndarray] = []

    class Before(BaseCallback):
        def _on_step(self) -> bool:
            seen.append(self.locals["rewards"].copy())
            return True

    model.learn(80, callback=[Before(), module, watch])
    played = watch.played
    before = np.array(seen[-20:])
    clipped = np.clip(played.actions, model.action_space.low, model.action_space.high)
    for slot in range(2):
        extra = disagreement(
            watch.network,
            model.action_space,
            played.observations["observation"][:, slot],
            played.observations["desired_goal"][:, slot],
            clipped[:, slot],
        )
        running = np.roll(played.episode_starts[:, slot], -1) == 0
        running[-1] = False  # the next episode may begin after it
        np.testing.assert_allclose(
            played.rewards[running, slot], (before[:, slot] - WEIGHT * extra)[running], rtol=1e-4, atol=1e-5
        )
        assert running.sum() > 10


# Relabelled rollouts.


HINDSIGHT: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "discrete": (bits, {}),
    "continuous": (plane, {"policy_kwargs": {"net_arch": [16], "log_std_init": 1.0}}),
    "squashed": (plane, SQUASHED),
}


@pytest.mark.parametrize("name", HINDSIGHT)
def test_relabelled_steps_are_paid_under_the_new_goal(name: str) -> None:
    make_env, others = HINDSIGHT[name]
    env = Rewards(make_env())
    model, module = new(HindsightPPO, env, PROXIMAL, her_ratio=1.0, **others), intrinsic()
    watch = Watch(module)
    model.learn(80, callback=[module, watch])
    model.train = lambda: None  # what was collected stays
    model.learn(40, callback=[module, watch], reset_num_timesteps=False)
    rollout, space = model.rollout_buffer, model.action_space
    executed = np.array(env.actions[-20:])
    # The achieved goal at the end of a step is that at the start of the next one.
    inside = np.array(env.dones[-20:])[:-1] == 0
    checked = 0
    for slot in range(2):
        goals = rollout.observations["desired_goal"][:-1, slot]
        achieved = rollout.observations["achieved_goal"][1:, slot]
        rewards = np.array(
            [env.env_method("compute_reward", a, g, {}, indices=[0])[0] for a, g in zip(achieved, goals, strict=True)]
        ).ravel()
        extra = disagreement(
            watch.network, space, rollout.observations["observation"][:-1, slot], goals, executed[:-1, slot]
        )
        rows = inside[:, slot]
        np.testing.assert_allclose(
            rollout.rewards[:-1, slot][rows], (rewards - WEIGHT * extra)[rows], rtol=1e-4, atol=1e-5
        )
        changed = (goals != watch.played.observations["desired_goal"][:-1, slot]).any(axis=1)
        checked += int((rows & changed).sum())
    assert checked > 8
    assert model.extra_reward is None  # nobody is paid after training


# Replayed transitions.


REPLAYED: dict[str, Callable[[], Any]] = {
    "dqn": lambda: new(DQN, bits(), OFF),
    "dqn+her": lambda: new(DQN, bits(), OFF, replay_buffer_class=HerReplayBuffer),
    "dqn+our her": lambda: new(DQN, bits(), OFF, replay_buffer_class=HindsightReplayBuffer),
    "sac": lambda: new(SAC, plane(), OFF),
    "td3+our her": lambda: new(TD3, plane(), OFF, replay_buffer_class=HindsightReplayBuffer),
    "sac+her": lambda: new(SAC, plane(), OFF, replay_buffer_class=HerReplayBuffer),
    "sac+her, normalised": lambda: new(SAC, VecNormalize(plane()), OFF, replay_buffer_class=HerReplayBuffer),
}


class Compare(BaseCallback):
    """Samples the same transitions with and without pay, in the middle of training."""

    def __init__(self, module: IntrinsicReward) -> None:
        super().__init__()
        self.module = module
        self.pairs: list[tuple[Any, Any]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        buffer: Any = self.model.replay_buffer  # type: ignore[attr-defined]
        if self.num_timesteps < 80 or self.pairs:
            return
        self.network = copy.deepcopy(self.module.network)
        random = np.random.get_state()
        for weight in (WEIGHT, 0.0):
            np.random.seed(5)
            self.module.weight = weight
            samples = buffer.sample(200, env=self.model.get_vec_normalize_env())
            self.pairs = [*self.pairs, samples]
        self.module.weight = WEIGHT
        np.random.set_state(random)


@pytest.mark.parametrize("name", REPLAYED)
def test_what_is_sampled_is_paid_under_its_goal(name: str) -> None:
    model, module = REPLAYED[name](), intrinsic()
    compare = Compare(module)
    model.learn(120, callback=[module, compare])
    paid, unpaid = compare.pairs
    for key, values in paid.observations.items():
        assert torch.equal(values, unpaid.observations[key])
    space = model.action_space
    discrete = isinstance(space, spaces.Discrete)
    ones = space if discrete else spaces.Box(-1.0, 1.0, space.shape)  # the buffer keeps scaled actions
    extra = disagreement(
        compare.network, ones, paid.observations["observation"], paid.observations["desired_goal"], paid.actions
    )
    expected = unpaid.rewards.numpy().ravel() - WEIGHT * extra
    np.testing.assert_allclose(paid.rewards.numpy().ravel(), expected, rtol=1e-4, atol=1e-5)
    assert paid.rewards.shape == unpaid.rewards.shape == (200, 1)
    assert extra.max() > 0.05
    assert torch.equal(paid.dones, unpaid.dones)


def test_what_is_stored_is_the_environments_own_reward() -> None:
    model = REPLAYED["dqn"]()
    model.learn(120, callback=intrinsic())
    stored = model.replay_buffer.rewards[: model.replay_buffer.pos]
    assert set(np.unique(stored)) <= {-1.0, 0.0}
    assert len(np.unique(stored)) == 2


@pytest.mark.parametrize("name", REPLAYED)
def test_the_replay_buffer_is_left_as_it_was(name: str) -> None:
    model = REPLAYED[name]()
    kind = type(model.replay_buffer)
    model.learn(80, callback=intrinsic())
    assert type(model.replay_buffer) is kind
    assert "extension" not in vars(model.replay_buffer)


def test_until_it_has_learned_anything_nobody_is_paid() -> None:
    env = Rewards(plane())
    model, module = new(PPO, env, PROXIMAL), intrinsic(min_displacement=1e6)
    watch = Watch(module)
    model.learn(120, callback=[module, watch])
    assert module.episodes_seen > 0
    assert len(module.learner.buffers) == 0
    running = ~np.array(env.dones[-20:])
    np.testing.assert_array_equal(watch.played.rewards[running], np.array(env.paid[-20:])[running])


# Saved in the middle of training.


@pytest.mark.parametrize("buffer", [None, HerReplayBuffer, HindsightReplayBuffer])
def test_a_buffer_saved_during_training_is_a_plain_one(tmp_path: Path, buffer: Any) -> None:
    others = {} if buffer is None else {"replay_buffer_class": buffer}
    model, module = new(DQN, bits(), OFF, **others), intrinsic()
    saving = CheckpointCallback(30, str(tmp_path), save_replay_buffer=True)
    model.learn(120, callback=[module, saving])
    files = sorted(tmp_path.glob("*replay_buffer*.pkl"))
    assert len(files) == 2
    first = tmp_path / "rl_model_replay_buffer_60_steps.pkl"
    assert first in files
    loaded = load_from_pkl(first)
    assert type(loaded) is (buffer or DictReplayBuffer)
    assert "extension" not in vars(loaded)
    assert loaded.pos == 29  # the step that the callback is in is not stored yet
    np.testing.assert_array_equal(loaded.actions[:29], model.replay_buffer.actions[:29])
    second = new(DQN, bits(), OFF, **others)
    second.load_replay_buffer(first)
    second.learn(30)
    assert type(second.replay_buffer) is (buffer or DictReplayBuffer)
    assert second.replay_buffer.pos > 30


def test_a_model_saved_during_training_is_a_plain_one(tmp_path: Path) -> None:
    model, module = new(HindsightPPO, bits(), PROXIMAL), intrinsic()
    model.learn(120, callback=[module, CheckpointCallback(20, str(tmp_path))])
    files = sorted(tmp_path.glob("*.zip"))
    assert files
    loaded = HindsightPPO.load(files[-1], env=bits())
    assert loaded.extra_reward is None
    loaded.learn(40)
