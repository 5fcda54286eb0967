"""Environments that exist one at a time, as one vector environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from user_envs import RestorableLine, Reused

from pchid.envs.make import make_vector
from pchid.envs.single import SingleEnvsVectorEnv


def starts(env: Any, count: int, seed: Any) -> list[list[float]]:
    found = [env.reset(seed=seed)[0]]
    found += [env.reset()[0] for _ in range(count - 1)]
    return [observation["desired_goal"].ravel().tolist() for observation in found]


@pytest.mark.parametrize("seed", [0, 1, [0, 0], [4, 0]])
def test_episodes_follow_from_the_seed(seed: Any) -> None:
    one, other = (starts(make_vector("UserLine-v0", 2, reach=50), 6, seed) for _ in range(2))
    assert one == other
    assert len({tuple(goals) for goals in one}) > 3


def test_the_first_episode_is_the_one_that_the_plain_environment_starts_with() -> None:
    vector = make_vector("UserLine-v0", 2, reach=50)
    observations, _ = vector.reset(seed=[11, 12])
    for slot, seed in enumerate((11, 12)):
        plain, _ = gym.make("UserLine-v0", reach=50).reset(seed=seed)
        np.testing.assert_array_equal(observations["desired_goal"][slot], plain["desired_goal"])


def test_an_episode_can_be_started_by_its_number() -> None:
    env: Any = make_vector("UserLine-v0", 2, reach=50)
    goals = starts(env, 4, [3, 4])
    assert env.episode_numbers.tolist() == [3, 3]
    other: Any = make_vector("UserLine-v0", 2, reach=50)
    observations, _ = other.reset(seed=[3, 4], options={"episode": np.array([2, 1])})
    assert observations["desired_goal"].ravel().tolist() == [goals[2][0], goals[1][1]]


def test_autoreset_shows_the_next_start_and_keeps_the_end() -> None:
    env: Any = make_vector("UserLine-v0", 2)
    env.reset(seed=1)
    for step in range(1, 7):
        observations, _, terminated, truncated, infos = env.step(np.array([1, 0]))
        assert not terminated.any()
        assert truncated.all() == (step == 6)
    assert observations["achieved_goal"].ravel().tolist() == [0.0, 0.0]
    assert [infos["final_obs"][slot]["achieved_goal"].item() for slot in range(2)] == [6.0, -6.0]
    assert env.episode_numbers.tolist() == [1, 1]
    assert env.elapsed.tolist() == [0, 0]


def test_the_end_of_an_episode_survives_an_environment_that_reuses_its_arrays() -> None:
    env = SingleEnvsVectorEnv([Reused], horizon=3)
    env.reset(seed=0)
    action = np.array([[0.5, -0.5]], np.float32)
    for _ in range(3):
        observations, _, _, truncated, infos = env.step(action)
    assert truncated.all()
    np.testing.assert_array_equal(infos["final_obs"][0]["achieved_goal"], [1.5, -1.5])
    np.testing.assert_array_equal(observations["achieved_goal"][0], [0.0, 0.0])


def test_without_autoreset_the_environment_goes_on() -> None:
    env: Any = make_vector("UserLine-v0", 1, autoreset=False)
    env.reset(seed=1)
    for step in range(1, 10):
        observations, _, _, truncated, infos = env.step(np.array([1]))
        assert observations["achieved_goal"].item() == step
        assert truncated[0] == (step >= 6)
        assert "final_obs" not in infos


def test_a_saved_state_knows_its_time() -> None:
    env: Any = make_vector("UserRestorableLine-v0", 2)
    env.reset(seed=1)
    for _ in range(4):
        env.step(np.array([1, 1]))
    saved = env.get_state()
    env.reset(seed=2)
    env.set_state(saved)
    assert env.observe()["achieved_goal"].ravel().tolist() == [4.0, 4.0]
    assert not env.step(np.array([1, 1]))[3].any()
    assert env.step(np.array([1, 1]))[3].all()


def test_a_domain_as_a_single_environment_is_restored_too() -> None:
    env: Any = SingleEnvsVectorEnv([lambda: gym.make("Hanoi-v0", n_discs=3)], autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=3)
    saved, shown = env.get_state(), env.observe()
    env.step(np.array([0]))
    env.step(np.array([3]))
    env.set_state(saved)
    for key, value in env.observe().items():
        np.testing.assert_array_equal(value, shown[key])


def test_restorable_is_what_its_environments_are() -> None:
    assert SingleEnvsVectorEnv([RestorableLine]).restorable
    assert not SingleEnvsVectorEnv([lambda: gym.make("UserLine-v0")]).restorable


class ByteLine(RestorableLine):
    """Its state is bytes."""

    def get_state(self) -> np.ndarray:
        return np.concatenate([self.position, self.goal]).astype(np.uint8)


def test_steps_are_counted_beside_a_state_of_bytes() -> None:
    env = SingleEnvsVectorEnv([lambda: ByteLine()])
    env.reset(seed=0)
    env.elapsed[:] = 290
    saved = env.get_state()
    env.elapsed[:] = 0
    env.set_state(saved)
    assert env.elapsed.tolist() == [290]
