"""What `pchid train` starts from where the user says nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from support import Outcome

from pchid import PCHID, PEHID, Interaction, make_probe
from pchid.algorithms import HindsightAlgorithm
from pchid.config import new_config, without_effect
from pchid.curriculum import Convergence
from pchid.errors import InputError
from pchid.methods import parse_method
from pchid.policies import GoalPolicy
from pchid.recommended import DEFAULTS, settings
from pchid.solvability import AcceptAll
from pchid.training import make_algorithm

Call = Callable[..., Outcome]
TASKS = ("FetchPush-v4", "FetchSlide-v4", "FetchPickAndPlace-v4")


def resolved(method: str, env: str = "FetchPush-v4", **given: Any) -> dict[str, Any]:
    return new_config({"env": env, "method": method, **given})


@pytest.mark.parametrize("env", TASKS)
def test_off_policy_methods_with_an_object_learn_from_many_slots_where_steps_are_counted(env: str) -> None:
    config = resolved("td3+her+pehid", env, steps=300_000, combine="guide")
    assert config["num_envs"] == 32
    assert config["sb3_settings"]["gradient_steps"] == 8
    assert "train_freq" not in config["sb3_settings"]


@pytest.mark.parametrize(
    ("slots", "updates", "every"), [(1, 1, 4), (2, 1, 2), (3, 1, 1), (4, 1, None), (16, 4, None), (100, 25, None)]
)
def test_the_share_of_updates_is_the_same_in_any_number_of_slots(slots: int, updates: int, every: int | None) -> None:
    settings = resolved("ddpg+her", steps=1000, num_envs=slots)["sb3_settings"]
    assert (settings["gradient_steps"], settings.get("train_freq")) == (updates, every)


def test_episodes_are_counted_in_one_slot() -> None:
    config = resolved("ddpg+her", episodes=10)
    assert (config["num_envs"], config["sb3_settings"]["train_freq"]) == (1, 4)


@pytest.mark.parametrize(
    ("method", "noisy", "mirrored"),
    [("ddpg", True, False), ("td3+her", True, True), ("sac", False, False), ("sac+her", False, True)],
)
def test_noise_is_for_actors_that_need_it_and_symmetries_for_her(method: str, noisy: bool, mirrored: bool) -> None:
    settings = resolved(method, steps=1000)["sb3_settings"]
    assert ("least_action_noise" in settings, "action_noise" in settings) == (noisy, noisy)
    assert settings.get("symmetries", False) == mirrored
    assert settings["goal_features"]


def test_the_user_has_the_last_word() -> None:
    config = resolved("td3+her", steps=1000, sb3_options={"gradient_steps": 2, "gamma": 0.9, "symmetries": False})
    settings = config["sb3_settings"]
    assert (settings["gradient_steps"], settings["gamma"], settings["symmetries"]) == (2, 0.9, False)


@pytest.mark.parametrize(("method", "env"), [("ppo", "FetchPush-v4"), ("td3+her", "FetchReach-v4")])
def test_others_are_as_they_were(method: str, env: str) -> None:
    config = resolved(method, env, steps=1000)
    assert config["num_envs"] == 1
    assert not {"gradient_steps", "goal_features", "tau"} & set(config["sb3_settings"])


def test_grid_world_learns_from_small_batches() -> None:
    settings = resolved("dqn", "GridWorld-v0")["sb3_settings"]
    assert (settings["batch_size"], settings["train_freq"]) == (32, 4)
    assert resolved("ppo", "GridWorld-v0")["sb3_settings"]["batch_size"] == 50


@pytest.mark.parametrize("slots", [0, -1])
def test_no_slots_are_refused(slots: int) -> None:
    with pytest.raises(InputError, match="num_envs is"):
        resolved("td3+her", steps=1000, num_envs=slots)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("td3+her+pehid", "--combine", "guide", "--actor-starts", 100, "--steps", 208, "--num-envs", 4),
        ("ddpg+her", "--episodes", 3),
        ("sac+her+pehid", "--steps", 208, "--num-envs", 4),
    ],
)
def test_they_work(call: Call, tmp_path: Path, words: tuple[Any, ...]) -> None:
    few = ("--env.horizon", 10, "--eval-episodes", 2, "--final-episodes", 2, "--sb3.buffer_size", 1000, "--quiet")
    outcome = call("train", "FetchSlide-v4", "--method", *words, *few, "--out", tmp_path / "run")
    assert (outcome.code, outcome.err) == (0, "")


def test_an_environment_that_is_only_called_alike_has_the_general_settings() -> None:
    for name, entry in (("FetchPushHeavy-v0", "user_envs:Line"), ("mine/GridWorld-v0", "user_envs:Line")):
        gym.register(name, entry)
        assert settings(name, parse_method("pchid")) == DEFAULTS
        gym.registry.pop(name)
    gym.register("FetchPushLong-v0", gym.spec("FetchPush-v4").entry_point, max_episode_steps=100)
    assert settings("FetchPushLong-v0", parse_method("pehid"))["K_max"] == 8  # gymnasium-robotics' own task
    gym.registry.pop("FetchPushLong-v0")


@pytest.mark.parametrize(
    ("given", "ignored"),
    [
        ({"method": "pehid", "noise": 0.1, "K_max": 3}, []),
        ({"method": "td3+her", "K_max": 3, "learning_rate": 1e-3, "seed": 1}, ["--K-max", "--learning-rate"]),
        ({"method": "sac+pchid", "K_max": 3, "noise": 0.1}, ["--noise"]),
        ({"method": "td3+pehid", "combine": "guide", "noise": 0.1, "wander": 0.1}, ["--wander"]),
        ({"method": "sac+pchid", "policy_options": {"hidden_sizes": [8]}}, ["--policy.hidden_sizes"]),
        ({"method": "sac+pchid", "combine": "average", "policy_options": {"hidden_sizes": [8]}}, []),
    ],
)
def test_what_has_no_effect_beside_an_algorithm_is_named(given: dict[str, Any], ignored: list[str]) -> None:
    assert sorted(without_effect(given)) == sorted(ignored)


@pytest.mark.slow
def test_the_command_line_says_so(call: Call, tmp_path: Path) -> None:
    few = ("--steps", 300, "--eval-episodes", 1, "--final-episodes", 1, "--out", tmp_path / "run")
    outcome = call("train", "FetchReach-v4", "--method", "td3+her", "--learning-rate", 1e-5, *few)
    assert outcome.code == 0
    assert "without effect on td3+her, whose settings are --sb3.NAME: --learning-rate" in outcome.out


@pytest.mark.parametrize(
    ("kind", "env", "steps"), [(PEHID, "FetchPush-v4", 1600), (PCHID, "Hanoi-v0", 6400), (PCHID, "FetchReach-v4", 100)]
)
def test_in_python_it_is_the_training_of_the_command_line(kind: type[HindsightAlgorithm], env: str, steps: int) -> None:
    model = kind.recommended(env, seed=3).learn(steps)
    same: Any = make_algorithm(new_config({"env": env, "method": kind.method, "seed": 3, "steps": steps}))
    same.learn(steps)
    assert model.n_envs == same.n_envs == resolved(kind.method, env)["num_envs"]
    assert model.learner.updates == same.learner.updates > 0
    assert model.test_steps == same.test_steps
    for name, values in model.policy.state_dict().items():
        assert torch.equal(values, same.policy.state_dict()[name]), name


def test_in_python_the_user_has_the_last_word_too() -> None:
    model = PEHID.recommended("FetchPush-v4", 4, K_max=3, noise=0.3, policy_kwargs={"reach": 0.2})
    assert (model.n_envs, model.K_max, model.noise, model.least_noise) == (4, 3, 0.3, None)
    assert model.policy_kwargs == {**settings("FetchPush-v4", parse_method("pehid"))["policy_settings"], "reach": 0.2}
    assert model.test_budget == 3.6
    bits = PCHID.recommended("BitFlip-v0", env_options={"n_bits": 5}, convergence=Convergence(pairs=2))
    assert bits.action_space == gym.spaces.Discrete(5)
    assert bits.convergence == Convergence(pairs=2)
    assert bits.seed != PCHID.recommended("BitFlip-v0").seed  # drawn anew where nobody names one, as otherwise


def test_in_python_a_setting_may_be_left_out_and_numbers_may_be_of_numpy() -> None:
    def few(**given: Any) -> PEHID:
        return PEHID.recommended("FetchPush-v4", np.int64(1), **given)

    assert few(least_noise=None).least_noise is None
    assert (few(noise=None).noise, few(noise=None).least_noise) == (0.2, None)
    updates = few(updates_per_episode=np.int64(10))
    assert (updates.updates_per_episode, updates.passes_per_pair) == (10, None)
    assert few(noise=np.float32(0.1)).least_noise is None
    assert few(test_budget=None).test_budget is None
    assert few(test="none").test_budget is None


def test_in_python_policies_and_tests_may_be_objects() -> None:
    class Mine(GoalPolicy):
        """A class of the user's."""

    recommended = settings("FetchPush-v4", parse_method("pehid"))["policy_settings"]
    for policy, expected in (("MultiInputPolicy", recommended), (GoalPolicy, recommended), (Mine, {})):
        assert PEHID.recommended("FetchPush-v4", 1, policy=policy).policy_kwargs == expected
    everything = PEHID.recommended("FetchPush-v4", 1, test=AcceptAll())
    assert (everything.test_budget, everything.test_tolerance) == (None, None)
    asked = PEHID.recommended("FetchPush-v4", 1, test=Interaction(lambda: make_probe("FetchPush-v4"), tolerance=0.02))
    assert (asked.test_budget, asked.test_tolerance) == (3.6, None)


@pytest.mark.parametrize(
    ("env", "given", "message"),
    [
        (gym.make, {}, "goes by the id of an environment"),
        ("FetchPushDense-v4", {}, "the reward is dense"),
        ("FetchPush-v4", {"K_max": 2.5}, "K_max cannot be 2.5"),
        ("FetchPush-v4", {"test": None}, "test cannot be None"),
        ("FetchPush-v4", {"num_envs": 0}, "num_envs is 0"),
        ("FetchPush-v4", {"policy": "CnnPolicy"}, "policy is one of"),
    ],
)
def test_in_python_it_says_what_is_wrong(env: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PEHID.recommended(env, **given)
