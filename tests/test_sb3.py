"""PCHID and PEHID inside Stable-Baselines3."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, CheckpointCallback, EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from pchid import PCHID, PEHID, GoalVecEnv, GroundTruth, Interaction, make_vector
from pchid.distillation import RandomNetworkDistillation
from pchid.envs import register_robotics
from pchid.envs.fetch_symmetry import FetchSymmetry
from pchid.envs.make import make_probe
from pchid.errors import InputError
from pchid.policies import GoalPolicy
from pchid.solvability import AcceptAll

BITS = {"n_bits": 4}
SMALL: dict[str, Any] = {"K_max": 2, "batch_size": 16, "updates_per_episode": 2, "policy_kwargs": {"hidden_sizes": [8]}}


def make(kind: type[PCHID] | type[PEHID] = PCHID, env: Any = None, **settings: Any) -> Any:
    env = GoalVecEnv.make("BitFlip-v0", 2, **BITS) if env is None else env
    return kind("GoalPolicy", env, **{"seed": 1, **SMALL, **settings})


def parameters(agent: Any) -> list[np.ndarray]:
    return [value.detach().numpy().copy() for value in agent.policy.state_dict().values()]


def assert_same_parameters(one: Any, other: Any) -> None:
    for left, right in zip(parameters(one), parameters(other), strict=True):
        np.testing.assert_array_equal(left, right)


class Counting(BaseCallback):
    """Counts its calls and stops after some steps."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.stop_after = stop_after
        self.calls: dict[str, int] = {}

    def _count(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1

    def _on_training_start(self) -> None:
        self._count("training_start")

    def _on_rollout_start(self) -> None:
        self._count("rollout_start")

    def _on_rollout_end(self) -> None:
        self._count("rollout_end")

    def _on_training_end(self) -> None:
        self._count("training_end")

    def _on_step(self) -> bool:
        self._count("step")
        assert {"infos", "dones", "rewards"} <= set(self.locals)
        return self.stop_after is None or self.calls["step"] < self.stop_after


@pytest.mark.parametrize("kind", [PCHID, PEHID])
def test_callbacks_are_called(kind: type[PCHID]) -> None:
    callback = Counting()
    agent = make(kind).learn(60, callback, progress_bar=False)
    assert agent.num_timesteps == 60
    assert callback.calls["step"] == 30  # two slots
    assert callback.calls["training_start"] == callback.calls["training_end"] == 1
    assert callback.calls["rollout_start"] == callback.calls["rollout_end"] > 3


def test_a_callback_can_stop_training() -> None:
    callback = Counting(stop_after=7)
    agent = make().learn(1000, CallbackList([callback]))
    assert agent.num_timesteps == 14
    assert callback.calls["training_end"] == 1


def test_functions_are_callbacks_too() -> None:
    seen = []
    make().learn(20, lambda local_names, _: seen.append(local_names["self"].num_timesteps) or len(seen) < 3)
    assert seen == [2, 4, 6]


def test_training_ends_at_the_step_or_the_episode() -> None:
    assert make().learn(33).num_timesteps == 34  # two slots at a time
    agent = make().learn(10**6, total_episodes=7)
    assert agent._episode_num == 7


def forms(name: str, options: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    def single() -> gym.Env[Any, Any]:
        return gym.make(name, **options)

    same = {"autoreset_mode": AutoresetMode.SAME_STEP}
    return {
        "id": lambda: name,
        "environment": single,
        "vector": lambda: gym.make_vec(name, 3, vectorization_mode="sync", vector_kwargs=same, **options),
        "sync": lambda: SyncVectorEnv([single] * 2, autoreset_mode=AutoresetMode.SAME_STEP),
        "ours": lambda: make_vector(name, 3, **options),
        "GoalVecEnv": lambda: GoalVecEnv.make(name, 3, **options),
        "DummyVecEnv": lambda: DummyVecEnv([single] * 2),
        "VecMonitor": lambda: VecMonitor(GoalVecEnv.make(name, 3, **options)),
        "Monitor": lambda: Monitor(single()),
    }


FORMS = sorted(forms("BitFlip-v0", {}))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "options"), [("BitFlip-v0", {}), ("Hanoi-v0", {"n_discs": 2}), ("UserRestorableLine-v0", {})]
)
def test_every_form_of_environment_trains(form: str, name: str, options: dict[str, Any]) -> None:
    agent = make(env=forms(name, options)[form](), updates_per_episode=1)
    before = parameters(agent)
    while agent.learner.curriculum.K[-1] < 2:  # so that TEST has something to do
        agent.learner.curriculum.observe(100, 1.0)
    agent.learn(120)
    assert agent._episode_num >= 4
    assert any(not np.array_equal(one, other) for one, other in zip(before, parameters(agent), strict=True))
    observation = agent.env.reset()
    actions, _ = agent.predict(observation, deterministic=True)
    assert actions.shape == (agent.env.num_envs,)


def test_an_unwrapped_domain_trains() -> None:
    assert make(env=gym.make("Hanoi-v0", n_discs=2).unwrapped).learn(60)._episode_num > 3


def test_domains_have_vector_environments_of_their_own() -> None:
    vector = gym.make_vec("BitFlip-v0", 3, vectorization_mode="vector_entry_point", **BITS)
    agent = make(env=vector).learn(60)
    assert agent.env.num_envs == 3
    assert agent.env.unwrapped.vector is vector


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_other_ways_of_resetting_are_refused(mode: AutoresetMode) -> None:
    with pytest.raises(InputError, match="SAME_STEP"):
        make(env=SyncVectorEnv([lambda: gym.make("BitFlip-v0")], autoreset_mode=mode))


def test_the_test_follows_from_what_the_environment_can() -> None:
    assert isinstance(make().learner.test, Interaction)
    assert isinstance(make(K_max=1).learner.test, AcceptAll)
    assert isinstance(make(env="UserLine-v0").learner.test, RandomNetworkDistillation)
    assert isinstance(make(env=DummyVecEnv([lambda: gym.make("BitFlip-v0")])).learner.test, RandomNetworkDistillation)
    assert isinstance(make(test="ground-truth").learner.test, GroundTruth)
    assert isinstance(make(test="none").learner.test, AcceptAll)
    own = Interaction(lambda: make_probe("BitFlip-v0", 4, **BITS))
    assert make(test=own).learner.test is own


def test_a_single_fetch_environment_knows_what_holds_and_what_is_alike() -> None:
    register_robotics()
    single = make(PEHID, gym.make("FetchPickAndPlace-v4"), hold_goal=True, symmetries=True)
    several = make(PEHID, "FetchPickAndPlace-v4", hold_goal=True, symmetries=True)
    np.testing.assert_array_equal(single._null_action, several._null_action)
    assert np.isnan(single._null_action).tolist() == [False, False, False, True]  # zero would open the fingers
    assert single.learner.draw_symmetry == several.learner.draw_symmetry == FetchSymmetry.draw
    with pytest.raises(InputError, match="draw_symmetry"):
        make(PEHID, gym.make("FetchReach-v4"), symmetries=True)


def test_a_simulator_of_another_kind_is_refused_and_the_right_one_is_named() -> None:
    register_robotics()
    agent = make(env="FetchReach-v4", test=Interaction(lambda: gym.make("FetchReach-v4")), K_max=5)
    agent.learner.curriculum.K = [1, 2, 3, 4, 5]
    with pytest.raises(InputError, match=r"another form.*pchid.make_probe"):
        agent.learn(200)


@pytest.mark.parametrize(
    ("env", "settings", "sentence"),
    [
        (None, {"updates_per_episode": -3}, "updates_per_episode is -3"),
        ("UserLine-v0", {"test": "interaction"}, "restored"),
        ("UserLine-v0", {"test": "ground-truth"}, "distance"),
        (None, {"test": "oracle"}, "unknown TEST 'oracle'"),
        (None, {"K_max": 0}, "K_max is 0"),
        (None, {"hold_goal": True}, "null action"),
        ("CartPole-v1", {}, "not a goal environment"),
        ("UserNested-v0", {}, "nested"),
        ("UserManyDiscrete-v0", {}, "unsupported action space"),
        ("UserWalk-v0", {}, "compute_reward"),
    ],
)
def test_wrong_settings_are_refused_at_once(env: Any, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make(env=env, **settings)


def test_predict_takes_one_observation_or_many() -> None:
    agent = make().learn(40)
    many = agent.env.reset()
    actions, state = agent.predict(many, deterministic=True)
    assert state is None
    assert actions.shape == (2,)
    for slot in range(2):
        action, _ = agent.predict({key: value[slot] for key, value in many.items()}, deterministic=True)
        assert action == actions[slot]
        assert agent.action_space.contains(int(action))


def test_predict_for_continuous_actions_and_a_held_goal() -> None:
    agent = make(env=gym.make("UserLoggedLine-v0"), K_max=1, hold_goal=True).learn(30)
    seen = {"observation": np.ones((3, 2)), "achieved_goal": np.ones((3, 2)), "desired_goal": np.ones((3, 2))}
    seen["desired_goal"][1] = 9.0
    actions, _ = agent.predict(seen)
    assert actions.shape == (3, 2)
    assert not actions[[0, 2]].any()
    assert actions[1].any()
    single, _ = agent.predict({key: value[1] for key, value in seen.items()})
    np.testing.assert_allclose(single, actions[1], rtol=1e-5)
    held, _ = agent.predict({key: value[0] for key, value in seen.items()})
    assert held.shape == (2,)
    assert not held.any()


@pytest.mark.parametrize("kind", [PCHID, PEHID])
def test_same_seed_same_agent_whatever_the_global_streams_and_they_stay_untouched(kind: type[PCHID]) -> None:
    agents = []
    for global_seed in (0, 1):
        random.seed(global_seed)
        np.random.seed(global_seed)
        torch.manual_seed(global_seed)
        before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
        agents.append(make(kind, test="rnd").learn(100))
        after = random.getstate(), np.random.get_state()[1], torch.get_rng_state()
        assert before[0] == after[0]
        np.testing.assert_array_equal(before[1], after[1])
        assert torch.equal(before[2], after[2])
    assert_same_parameters(*agents)
    other = make(kind, test="rnd", seed=2).learn(100)
    assert any(not np.array_equal(a, b) for a, b in zip(parameters(agents[0]), parameters(other), strict=True))


def test_without_a_seed_agents_differ() -> None:
    one, other = (make(seed=None) for _ in range(2))
    assert any(not np.array_equal(a, b) for a, b in zip(parameters(one), parameters(other), strict=True))


def test_learning_goes_on_as_if_it_had_not_stopped() -> None:
    whole = make().learn(150)
    parts = make().learn(50)
    parts.learn(60, reset_num_timesteps=False)
    parts.learn(40, reset_num_timesteps=False)
    assert parts.num_timesteps == whole.num_timesteps == 150
    assert parts._episode_num == whole._episode_num
    assert_same_parameters(whole, parts)


def test_learning_again_counts_from_zero() -> None:
    agent = make().learn(50)
    agent.learn(30)
    assert agent.num_timesteps == 30


@pytest.mark.parametrize("test", ["interaction", "rnd", "ground-truth", "none"])
@pytest.mark.parametrize("kind", [PCHID, PEHID])
def test_an_algorithms_state_is_all_that_training_depends_on(kind: type[PCHID], test: str) -> None:
    whole = make(kind, test=test).learn(151)
    part = make(kind, test=test).learn(71)  # ends in the middle of an episode
    copy = make(kind, test=test, seed=1)
    copy.load_state(part.state())
    copy.learn(80, reset_num_timesteps=False)
    assert copy.num_timesteps == whole.num_timesteps
    assert copy.test_steps == whole.test_steps
    assert_same_parameters(whole, copy)


def test_evaluate_policy() -> None:
    agent = make(K_max=1).learn(100)
    rewards, lengths = evaluate_policy(
        agent, Monitor(gym.make("BitFlip-v0", **BITS)), n_eval_episodes=5, return_episode_rewards=True
    )
    assert len(rewards) == len(lengths) == 5
    mean, _ = evaluate_policy(agent, agent.get_env(), n_eval_episodes=5, warn=False)
    assert -4.0 <= mean <= 0.0


def test_eval_and_checkpoint_callbacks_write_what_load_reads(tmp_path: Path) -> None:
    agent = make()
    eval_env = VecMonitor(GoalVecEnv.make("BitFlip-v0", 1, **BITS))
    evaluating = EvalCallback(
        eval_env, n_eval_episodes=3, eval_freq=20, best_model_save_path=str(tmp_path / "best"), verbose=0
    )
    saving = CheckpointCallback(save_freq=25, save_path=str(tmp_path / "saved"))
    agent.learn(100, [evaluating, saving])
    assert evaluating.best_mean_reward > -np.inf
    best = PCHID.load(tmp_path / "best" / "best_model")
    files = sorted((tmp_path / "saved").iterdir())
    assert len(files) == 2
    for loaded in (best, *map(PCHID.load, files)):
        assert loaded.predict(agent.env.reset())[0].shape == (2,)


def test_tensorboard_files_appear(tmp_path: Path) -> None:
    agent = make(tensorboard_log=str(tmp_path))
    agent.learn(200, log_interval=2, tb_log_name="mine")
    (events,) = tmp_path.glob("mine_1/events.out.tfevents.*")
    data = events.read_bytes()
    for tag in (b"rollout/success", b"train/loss", b"train/K", b"test/steps", b"test/pass_rate"):
        assert tag in data


class Tall(GoalPolicy):
    """A policy class of the user's own."""


def test_a_policy_class_can_be_given() -> None:
    agent = PCHID(Tall, GoalVecEnv.make("BitFlip-v0", 2, **BITS), seed=0, **SMALL).learn(30)
    assert type(agent.policy) is Tall
    assert isinstance(PCHID("MultiInputPolicy", "BitFlip-v0", seed=0).policy, GoalPolicy)


@pytest.mark.parametrize("form", ["none", "id", "environment", "GoalVecEnv", "DummyVecEnv"])
def test_save_and_load_with_and_without_environments(tmp_path: Path, form: str) -> None:
    agent = PCHID("GoalPolicy", "BitFlip-v0", seed=0, **SMALL).learn(100)
    agent.save(tmp_path / "agent")
    env = None if form == "none" else forms("BitFlip-v0", {})[form]()
    again = PCHID.load(tmp_path / "agent", env)
    assert_same_parameters(agent, again)
    seen = agent.env.reset()
    np.testing.assert_array_equal(again.predict(seen)[0], agent.predict(seen)[0])
    if env is not None:
        again.learn(30, reset_num_timesteps=False)
        assert again.num_timesteps > agent.num_timesteps
