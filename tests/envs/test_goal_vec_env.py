"""The adapter to Stable-Baselines3's VecEnv."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv
from support import DOMAINS

from pchid.envs.make import find_spec, make_probe, make_vector
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError

domains = pytest.mark.parametrize(("name", "options"), DOMAINS, ids=[name for name, _ in DOMAINS])


@domains
def test_steps_and_infos_are_what_stable_baselines_expects(name: str, options: dict[str, Any]) -> None:
    env = GoalVecEnv.make(name, 4, **options)
    twin: Any = make_vector(name, 4, autoreset=False, **options)
    env.seed(5)
    env.reset()
    rng = np.random.default_rng(0)
    ended = succeeded = cut = 0
    for _ in range(200):
        twin.set_state(env.vector.get_state())
        actions = rng.integers(env.action_space.n, size=4)  # type: ignore[attr-defined]
        last, rewards, terminated, truncated, _ = twin.step(actions)
        shown, found_rewards, dones, infos = env.step(actions)
        np.testing.assert_array_equal(dones, terminated | truncated)
        np.testing.assert_allclose(found_rewards, rewards)
        assert found_rewards.dtype == np.float32
        for slot, info in enumerate(infos):
            assert info["is_success"] == terminated[slot]
            assert info["TimeLimit.truncated"] == (truncated[slot] and not terminated[slot])
            assert ("terminal_observation" in info) == dones[slot]
            wanted = info["terminal_observation"] if dones[slot] else {key: shown[key][slot] for key in shown}
            for key, value in wanted.items():
                np.testing.assert_array_equal(value, last[key][slot])
        ended += int(dones.sum())
        succeeded += int(terminated.sum())
        cut += int((truncated & ~terminated).sum())
    assert ended
    assert succeeded
    assert cut


@pytest.mark.parametrize("num_envs", [1, 3])
def test_seeds_decide_and_slots_differ(num_envs: int) -> None:
    def first(seed: int) -> np.ndarray:
        env = GoalVecEnv.make("BitFlip-v0", num_envs, n_bits=20)
        env.seed(seed)
        return env.reset()["desired_goal"]

    np.testing.assert_array_equal(first(1), first(1))
    assert not np.array_equal(first(1), first(2))
    assert len({row.tobytes() for row in first(1)}) == num_envs


def test_a_slots_episodes_do_not_depend_on_the_number_of_slots() -> None:
    goals = []
    for num_envs in (1, 5):
        env = GoalVecEnv.make("BitFlip-v0", num_envs, n_bits=20)
        env.seed(3)
        goals.append(env.reset()["desired_goal"][0])
    np.testing.assert_array_equal(*goals)


@pytest.mark.parametrize(
    ("name", "options", "exact"),
    [*((name, options, True) for name, options in DOMAINS), ("UserRestorableLine-v0", {}, True)],
)
def test_a_reloaded_environment_goes_on_alike_through_resets(name: str, options: dict[str, Any], exact: bool) -> None:
    env = GoalVecEnv.make(name, 3, **options)
    env.seed(1)
    env.reset()
    actions = np.random.default_rng(0).integers(2, size=(60, 3))
    for action in actions[:25]:
        env.step(action)
    copy = GoalVecEnv.make(name, 3, **options)
    copy.load_state(env.state())
    for action in actions[25:]:
        for left, right in zip(env.step(action)[:3], copy.step(action)[:3], strict=True):
            for key in left if isinstance(left, dict) else [...]:
                np.testing.assert_array_equal(left[key], right[key])


def test_an_environment_that_cannot_be_restored_starts_its_episode_again() -> None:
    env = GoalVecEnv.make("UserLine-v0", 1, reach=50)
    env.seed(1)
    env.reset()
    for _ in range(8):
        env.step(np.array([1]))
    saved = env.state()
    goal = env.step(np.array([1]))[0]["desired_goal"]
    copy = GoalVecEnv.make("UserLine-v0", 1, reach=50)
    copy.load_state(saved)
    observations = copy.step(np.array([1]))[0]
    np.testing.assert_array_equal(observations["desired_goal"], goal)
    assert observations["achieved_goal"].item() == 1.0


def test_vector_environments_must_reset_in_the_same_step() -> None:
    with pytest.raises(InputError, match="SAME_STEP"):
        GoalVecEnv(make_vector("BitFlip-v0", 2, autoreset=False))
    makers = [lambda: gym.make("BitFlip-v0")]
    with pytest.raises(InputError, match="SAME_STEP"):
        GoalVecEnv(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP))
    GoalVecEnv(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP))


def test_methods_and_attributes_reach_the_environment() -> None:
    env = GoalVecEnv.make("BitFlip-v0", 3, n_bits=7)
    assert env.get_attr("n_bits") == [7, 7, 7]
    assert env.get_attr("n_bits", indices=1) == [7]
    zeros, ones = np.zeros((2, 7)), np.ones((2, 7))
    (rewards,) = env.env_method("compute_reward", zeros, ones, {}, indices=[0])
    assert rewards.tolist() == [-1.0, -1.0]
    assert env.env_is_wrapped(gym.Wrapper) == [False] * 3
    single = GoalVecEnv.make("UserLine-v0", 2, reach=9)
    assert single.get_attr("reach") == [9, 9]
    assert single.env_method("compute_reward", zeros[:, :1], ones[:, :1], {}, indices=[0])[0].tolist() == [-1.0, -1.0]
    env.set_attr("colour", "red")
    assert env.get_attr("colour", indices=[2]) == ["red"]


def test_frames_come_from_each_slot() -> None:
    env = GoalVecEnv.make("Hanoi-v0", 2, render_mode="rgb_array")
    env.reset()
    frames = env.get_images()
    assert len(frames) == 2
    assert all(frame is not None and frame.ndim == 3 for frame in frames)


def test_one_existing_environment_as_one_slot() -> None:
    env = GoalVecEnv.of_single(gym.make("UserRestorableLine-v0"))
    reference = DummyVecEnv([lambda: gym.make("UserRestorableLine-v0")])
    assert env.num_envs == 1
    env.seed(0)
    env.reset()
    reference.reset()
    for _ in range(20):
        dones, infos = env.step(np.array([1]))[2:]
        expected_dones, expected_infos = reference.step(np.array([1]))[2:]
        np.testing.assert_array_equal(dones, expected_dones)
        assert infos[0]["TimeLimit.truncated"] == expected_infos[0].get("TimeLimit.truncated", False)
    assert env.make_probe is not None
    assert env.make_probe().metadata["autoreset_mode"] is AutoresetMode.DISABLED


def test_probes_go_past_the_end() -> None:
    probe: Any = make_probe("BitFlip-v0", 2, n_bits=3)
    probe.reset(seed=0)
    for _ in range(10):
        probe.step(np.zeros(2, np.int64))
    assert probe.episode_numbers.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["BitFlop-v0", "bitflip-v0", "FetchReech-v4", "BitFlip-v7"])
def test_a_wrong_name_gets_the_nearest_ones(name: str) -> None:
    nearest = "FetchReach-v" if name.startswith("Fetch") else "BitFlip-v0"
    with pytest.raises(InputError, match=f"no environment '{name}'.*{nearest}"):
        find_spec(name)


def test_a_module_is_imported_first() -> None:
    assert find_spec("user_envs:UserLine-v0").id == "UserLine-v0"
    assert make_vector("user_envs:UserLine-v0", 2).num_envs == 2
    with pytest.raises(InputError, match=r"cannot import the module .*'no_such_module"):
        find_spec("no_such_module:UserLine-v0")
