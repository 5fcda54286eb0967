"""What `pchid train` starts from where the user says nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import Outcome

from pchid.config import new_config
from pchid.errors import InputError

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
