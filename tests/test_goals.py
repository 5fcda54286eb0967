"""What a goal environment is, and what is refused."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TransformAction
from stable_baselines3.common.vec_env import DummyVecEnv
from user_envs import ENVIRONMENTS, Line, OnePairAtATime, Walk

from pchid.algorithms import PCHID
from pchid.envs.make import make_vector
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError, RunError
from pchid.goals import (
    attribute,
    check_finite,
    check_spaces,
    check_sparse,
    is_restorable,
    null_action,
    reward_function,
    success_function,
)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("UserNested-v0", "'observation' holds a nested Dict"),
        ("UserManyDiscrete-v0", "unsupported action space MultiDiscrete"),
        ("UserUnbounded-v0", "unbounded"),
        ("UserMismatched-v0", "differ in shape"),
    ],
)
def test_environments_that_cannot_be_learned_are_refused(name: str, sentence: str) -> None:
    env = ENVIRONMENTS[name]()
    with pytest.raises(InputError, match=sentence):
        check_spaces(env.observation_space, env.action_space)


def test_what_is_said_about_unbounded_actions_helps() -> None:
    env = gym.make("UserUnbounded-v0")
    with pytest.raises(InputError, match=r"such as Box\(-1, 1, \(1,\)\), .* gymnasium.wrappers.TransformAction"):
        check_spaces(env.observation_space, env.action_space)
    limited = TransformAction(env, lambda action: action, spaces.Box(-1, 1, (1,)))
    check_spaces(limited.observation_space, limited.action_space)


def test_missing_keys_are_listed() -> None:
    box = spaces.Box(0, 1, (2,))
    with pytest.raises(InputError, match=r"\['observation'\].*observation, achieved_goal, desired_goal"):
        check_spaces(spaces.Dict(observation=box), spaces.Discrete(2))
    with pytest.raises(InputError, match="not a goal environment"):
        check_spaces(box, spaces.Discrete(2))


def test_actions_count_from_zero_and_arrays_are_needed() -> None:
    box = spaces.Box(0, 1, (2,))
    with pytest.raises(InputError, match="start at 1"):
        check_spaces(spaces.Dict(observation=box, achieved_goal=box, desired_goal=box), spaces.Discrete(2, start=1))
    choice = spaces.Discrete(3)
    with pytest.raises(InputError, match="'achieved_goal' is a Discrete"):
        check_spaces(spaces.Dict(observation=box, achieved_goal=choice, desired_goal=choice), spaces.Discrete(2))


@pytest.mark.parametrize("name", ["BitFlip-v0", "GridWorld-v0", "Hanoi-v0", "UserLine-v0"])
def test_good_environments_pass(name: str) -> None:
    env = gym.make(name)
    check_spaces(env.observation_space, env.action_space)


GOALS = np.array([[0.0], [1.0], [1.2], [3.0]], np.float32)
DESIRED = np.array([[0.0], [2.0], [1.0], [3.0]], np.float32)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda: Line(),
        lambda: gym.make("UserLine-v0"),
        lambda: make_vector("UserLine-v0", 2),
        lambda: GoalVecEnv.make("UserLine-v0", 2),
        lambda: DummyVecEnv([lambda: gym.make("UserLine-v0")] * 2),
    ],
)
def test_success_is_found_through_every_kind_of_wrapping(wrap: Any) -> None:
    assert success_function(wrap())(GOALS, DESIRED).tolist() == [True, False, True, True]


def test_success_is_the_reward_of_standing_on_the_goal() -> None:
    class Shifted(Line):
        def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
            return np.where(np.abs(achieved - desired)[..., 0] < 0.5, 7.0, 3.0)

    assert success_function(Shifted())(GOALS, DESIRED).tolist() == [True, False, True, True]


def test_the_environments_own_notion_of_success_comes_first() -> None:
    class Own(Line):
        def is_success(self, achieved: Any, desired: Any) -> Any:
            return np.abs(achieved - desired)[..., 0] < 0.1

    result = success_function(Own())(GOALS, DESIRED)
    assert result.tolist() == [True, False, False, True]
    assert result.dtype == bool


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_reward_for_one_pair_at_a_time_serves_batches_of_any_size(count: int) -> None:
    rng = np.random.default_rng(count)
    achieved, desired = (rng.integers(0, 2, (count, 2)).astype(np.float32) for _ in range(2))
    expected = (achieved == desired).all(axis=1)
    assert success_function(OnePairAtATime())(achieved, desired).tolist() == expected.tolist()


def test_without_a_reward_function_nobody_can_tell() -> None:
    with pytest.raises(InputError, match="compute_reward"):
        reward_function(gym.Wrapper(gym.make("CartPole-v1")))
    with pytest.raises(InputError, match="compute_reward"):
        reward_function(Walk())


def test_dense_rewards_are_refused_and_sparse_ones_are_not() -> None:
    check_sparse(Line(), GOALS, DESIRED)
    with pytest.raises(InputError, match="dense"):
        check_sparse(ENVIRONMENTS["UserDense-v0"](), GOALS, DESIRED)


def test_where_the_reward_tells_success_a_dense_one_is_refused_in_training_too() -> None:
    with pytest.raises(InputError, match="dense"):
        PCHID("GoalPolicy", gym.make("UserDense-v0"), test="none", seed=0).learn(200)


def test_null_action() -> None:
    space = spaces.Box(-1.0, 2.0, (3,), np.float32)
    action = null_action(space)
    assert action is not None
    assert space.contains(action)
    assert not action.any()
    assert null_action(spaces.Box(0.5, 1.0, (3,))) is None
    assert null_action(spaces.Discrete(3)) is None


def test_attributes_are_found_through_wrappers_or_not_at_all() -> None:
    wrapped = gym.make("UserLine-v0", reach=3)
    assert attribute(wrapped, "compute_reward") is not None
    assert attribute(wrapped, "is_success") is None
    vec_env = DummyVecEnv([lambda: gym.make("UserLine-v0")])
    assert attribute(vec_env, "is_success") is None
    reward = attribute(vec_env, "compute_reward")
    assert reward is not None
    assert reward(GOALS, DESIRED, {}).tolist() == [0.0, -1.0, 0.0, 0.0]


def test_restorable() -> None:
    assert is_restorable(make_vector("BitFlip-v0", 2))
    assert is_restorable(make_vector("UserRestorableLine-v0", 2))
    assert not is_restorable(make_vector("UserLine-v0", 2))


def test_whole_numbers_are_always_finite() -> None:
    check_finite(np.arange(3), "anything", 0)
    with pytest.raises(RunError, match="NaN or infinity in anything at environment step 7"):
        check_finite(np.array([1.0, -np.inf]), "anything", 7)
