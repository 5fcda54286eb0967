"""A script of Stable-Baselines3 works on when a hindsight module is added to its callbacks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import (
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    EveryNTimesteps,
    StopTrainingOnMaxEpisodes,
)
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy

from pchid import AveragedOutputs, GoalVecEnv, IntrinsicReward, JointTraining

STRATEGIES = [JointTraining, AveragedOutputs, IntrinsicReward]
strategies = pytest.mark.parametrize("strategy", STRATEGIES)


class Differences(BaseFeaturesExtractor):
    """What a user may think of: where the goal lies from here, through a layer of its own."""

    def __init__(self, space: spaces.Dict, features_dim: int = 8) -> None:
        super().__init__(space, features_dim)
        size = int(np.prod(space["observation"].shape)) + int(np.prod(space["desired_goal"].shape))
        self.layer = torch.nn.Sequential(torch.nn.Linear(size, features_dim), torch.nn.Tanh())

    def forward(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        away = observations["desired_goal"] - observations["achieved_goal"]
        return self.layer(torch.cat([observations["observation"].float(), away.float()], dim=1))


class OwnActorCritic(ActorCriticPolicy):
    """A policy class with its own extractor and tail."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "features_extractor_class": Differences})


class OwnSac(SACPolicy):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "features_extractor_class": Differences})


class OwnTd3(TD3Policy):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "features_extractor_class": Differences})


class OwnDqn(DQNPolicy):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "features_extractor_class": Differences})


def line() -> Any:
    return DummyVecEnv([lambda: Monitor(gym.make("UserRestorableLine-v0"))] * 2)


def plane() -> Any:
    return DummyVecEnv([lambda: Monitor(gym.make("UserLoggedLine-v0"))] * 2)


SMALL: dict[str, Any] = {"seed": 1, "device": "cpu", "policy_kwargs": {"net_arch": [16]}}
PROXIMAL: dict[str, Any] = {**SMALL, "n_steps": 20, "batch_size": 20, "n_epochs": 1}
OFF: dict[str, Any] = {**SMALL, "learning_starts": 24, "batch_size": 16, "buffer_size": 500, "train_freq": 2}
USERS: dict[str, tuple[Any, Any, Callable[[], Any], dict[str, Any]]] = {
    "ppo": (PPO, OwnActorCritic, plane, PROXIMAL),
    "ppo, discrete": (PPO, OwnActorCritic, line, PROXIMAL),
    "sac": (SAC, OwnSac, plane, OFF),
    "td3": (TD3, OwnTd3, plane, OFF),
    "dqn": (DQN, OwnDqn, line, OFF),
}
users = pytest.mark.parametrize(
    "user",
    [
        pytest.param(user, id=name, marks=[pytest.mark.slow] * (name in ("ppo", "td3", "dqn")))
        for name, user in USERS.items()
    ],
)
slow = pytest.mark.slow
User = tuple[Any, Any, Callable[[], Any], dict[str, Any]]


def new(user: User, env: Any = None, own: bool = False) -> Any:
    kind, policy, make_env, settings = user
    return kind(policy if own else "MultiInputPolicy", env or make_env(), **copy.deepcopy(settings))


def module(strategy: Any, **settings: Any) -> Any:
    separate = {} if strategy is JointTraining else {"policy_kwargs": {"hidden_sizes": [16]}}
    few = {"K_max": 2, "weight": 0.5, "updates_per_episode": 2, "batch_size": 16}
    return strategy(**{**few, **separate, **settings})


def shown(model: Any) -> dict[str, np.ndarray]:
    env = model.get_env()
    env.seed(7)
    observations: dict[str, np.ndarray] = env.reset()
    return observations


@strategies
@users
def test_the_whole_script(tmp_path: Path, user: User, strategy: Any) -> None:
    """A policy class of its own, normalised environments, evaluation, checkpoints, saving and loading."""
    kind, _, make_env, _ = user
    env, eval_env = VecNormalize(make_env()), VecNormalize(make_env(), training=False, norm_reward=False)
    model, hindsight = new(user, env, own=True), module(strategy)
    evaluation = EvalCallback(
        eval_env, n_eval_episodes=2, eval_freq=20, log_path=str(tmp_path / "log"), best_model_save_path=str(tmp_path)
    )
    saving = CheckpointCallback(25, str(tmp_path / "saved"), save_replay_buffer=True, save_vecnormalize=True)
    model.learn(120, callback=[hindsight, evaluation, saving])
    assert hindsight.updates > 0
    assert len(hindsight.learner.buffers) > 0
    assert hindsight.episodes_seen > 8
    assert len(np.load(tmp_path / "log" / "evaluations.npz")["timesteps"]) == 3
    for key, running in env.obs_rms.items():
        np.testing.assert_array_equal(eval_env.obs_rms[key].mean, running.mean)
    assert len(list((tmp_path / "saved").glob("rl_model_*_steps.zip"))) == 2
    assert len(list((tmp_path / "saved").glob("*vecnormalize*.pkl"))) == 2

    model.save(tmp_path / "model")
    env.save(tmp_path / "normalisation")
    again = VecNormalize.load(tmp_path / "normalisation", make_env())
    loaded = kind.load(tmp_path / "model", env=again)
    if strategy is AveragedOutputs:
        hindsight.release()  # what is saved is the algorithm
    observations = shown(model)
    np.testing.assert_array_equal(
        model.predict(observations, deterministic=True)[0], loaded.predict(observations, deterministic=True)[0]
    )
    for saved in [tmp_path / "best_model.zip", *(tmp_path / "saved").glob("rl_model_*_steps.zip")]:
        assert type(kind.load(saved).policy) is type(loaded.policy)
    further = module(strategy)
    loaded.learn(60, callback=further, reset_num_timesteps=False)
    assert loaded.num_timesteps >= 180
    assert further.updates > 0


@strategies
@users
def test_its_own_policy_class_is_what_trains(user: User, strategy: Any) -> None:
    model = new(user, own=True)
    before = {name: value.clone() for name, value in model.policy.named_parameters()}
    model.learn(80, callback=module(strategy))
    if strategy is not AveragedOutputs:
        assert type(model.policy) is user[1]
    assert isinstance(model.policy, user[1])
    changed = [name for name, value in model.policy.named_parameters() if not torch.equal(value, before[name])]
    assert any("features_extractor" in name for name in changed)


def test_a_policy_class_of_its_own_is_taught_jointly() -> None:
    """With no learning of its own, what changes its extractor is hindsight."""
    for name in ("ppo", "sac", "td3", "dqn"):
        kind, policy, make_env, settings = USERS[name]
        still = {"learning_rate": 0.0} if name == "ppo" else {"learning_starts": 10_000}
        model = kind(policy, make_env(), **copy.deepcopy({**settings, **still}))
        before = {name: value.clone() for name, value in model.policy.named_parameters()}
        model.learn(80, callback=module(JointTraining))
        after = dict(model.policy.named_parameters())
        changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
        assert any(name.startswith(("features", "actor.features", "q_net.features")) for name in changed), changed
        assert not any(name.startswith(("critic", "value_net", "q_net_target")) for name in changed), changed


@slow
@strategies
def test_evaluation_does_not_disturb_the_training(strategy: Any) -> None:
    """Modules see the training episodes, never those of an evaluation."""
    counts = []
    for evaluating in (False, True):
        model, hindsight = new(USERS["sac"]), module(strategy)
        others = [EvalCallback(plane(), n_eval_episodes=3, eval_freq=10, verbose=0)] if evaluating else []
        model.learn(120, callback=[hindsight, *others])
        counts.append(hindsight.episodes_seen)
    assert counts[0] == counts[1] > 0


@strategies
def test_it_stands_among_other_callbacks(strategy: Any, tmp_path: Path) -> None:
    others = [EveryNTimesteps(20, CheckpointCallback(1, str(tmp_path))), StopTrainingOnMaxEpisodes(6)]
    last = CallbackList([*others, module(strategy)])
    for callbacks in (last, CallbackList([CallbackList([module(strategy)]), *others])):
        model = new(USERS["dqn"], VecMonitor(line()))
        model.learn(2000, callback=callbacks)
        assert model.num_timesteps < 2000
    assert list(tmp_path.glob("*.zip"))


@strategies
def test_actions_can_be_asked_for_while_it_trains_and_after(strategy: Any) -> None:
    model = new(USERS["ppo, discrete"])
    model.learn(60, callback=module(strategy))
    mean, _ = evaluate_policy(model, line(), n_eval_episodes=4)
    assert -6.0 <= mean <= 0.0
    single = {key: values[0] for key, values in shown(model).items()}
    assert model.predict(single, deterministic=True)[0].shape == ()
    assert copy.deepcopy(model.policy).state_dict().keys() == model.policy.state_dict().keys()


def test_averaged_outputs_survive_a_copy_of_the_policy() -> None:
    """A copy is the algorithm's own policy, and it works."""
    model, hindsight = new(USERS["sac"]), module(AveragedOutputs)
    model.learn(80, callback=hindsight)
    observations = shown(model)
    alone = copy.deepcopy(model.policy)
    hindsight.release()
    np.testing.assert_array_equal(
        alone.predict(observations, deterministic=True)[0], model.predict(observations, deterministic=True)[0]
    )


@strategies
def test_a_second_call_goes_on_where_the_first_ended(strategy: Any) -> None:
    model, hindsight = new(USERS["ppo"]), module(strategy)
    model.learn(80, callback=hindsight)
    first = hindsight.updates
    model.learn(80, callback=hindsight, reset_num_timesteps=False)
    assert model.num_timesteps == 160
    assert hindsight.updates > first > 0
    model.learn(80, callback=hindsight)  # and again from the start
    assert model.num_timesteps == 80


@strategies
@pytest.mark.parametrize("name", ["ppo", pytest.param("sac", marks=slow), pytest.param("dqn", marks=slow)])
def test_what_is_logged(strategy: Any, name: str, tmp_path: Path) -> None:
    model = new(USERS[name])
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(160, callback=module(strategy), log_interval=1)
    header = (tmp_path / "progress.csv").read_text().splitlines()[0].split(",")
    assert {"hindsight/loss", "hindsight/K", "hindsight/pairs", "hindsight/test_steps"} <= set(header)


def test_a2c_and_a_vector_environment_too() -> None:
    model = A2C("MultiInputPolicy", VecNormalize(VecMonitor(GoalVecEnv.make("UserRestorableLine-v0", 2))), n_steps=8)
    for strategy in STRATEGIES:
        hindsight = module(strategy)
        model.learn(64, callback=hindsight)
        assert hindsight.updates > 0
