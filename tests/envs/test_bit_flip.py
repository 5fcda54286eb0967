"""Bit flipping (Sec. 3.2)."""

from __future__ import annotations

import numpy as np
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from pchid.envs.bit_flip import BitFlipVectorEnv


@given(st.integers(1, 20), st.integers(0, 1000), st.data())
def test_flipping_twice_changes_nothing(n_bits: int, seed: int, data: st.DataObject) -> None:
    env = BitFlipVectorEnv(3, autoreset_mode=AutoresetMode.DISABLED, n_bits=n_bits)
    before, _ = env.reset(seed=seed)
    actions = np.array(data.draw(st.lists(st.integers(0, n_bits - 1), min_size=3, max_size=3)))
    once = env.step(actions)[0]
    assert (once["observation"] != before["observation"]).sum(axis=1).tolist() == [1, 1, 1]
    assert (once["observation"][np.arange(3), actions] != before["observation"][np.arange(3), actions]).all()
    np.testing.assert_array_equal(env.step(actions)[0]["observation"], before["observation"])


@given(st.integers(1, 6), st.integers(0, 1000))
def test_start_and_goal_differ(n_bits: int, seed: int) -> None:
    observations, _ = BitFlipVectorEnv(64, n_bits=n_bits).reset(seed=seed)
    assert (observations["achieved_goal"] != observations["desired_goal"]).any(axis=1).all()


def test_starts_and_goals_are_uniform() -> None:
    env = BitFlipVectorEnv(24_000, n_bits=2)
    observations, _ = env.reset(seed=0)
    pairs = np.concatenate([observations["observation"], observations["desired_goal"]], axis=1)
    counts = np.bincount(pairs @ np.array([8, 4, 2, 1]), minlength=16).reshape(4, 4)
    assert (np.diag(counts) == 0).all()
    assert np.abs(counts[~np.eye(4, dtype=bool)] - 2000).max() < 5 * np.sqrt(2000)


def test_rewards_termination_and_horizon() -> None:
    env = BitFlipVectorEnv(1, autoreset_mode=AutoresetMode.DISABLED, n_bits=5)
    assert env.horizon == 5
    observations, _ = env.reset(seed=1)
    wrong = np.flatnonzero(observations["observation"][0] != observations["desired_goal"][0])
    for bit in wrong[:-1]:
        _, rewards, terminated, truncated, _ = env.step([bit])
        assert (rewards[0], terminated[0], truncated[0]) == (-1.0, False, False)
    _, rewards, terminated, _, infos = env.step([wrong[-1]])
    assert (rewards[0], terminated[0], infos["is_success"][0]) == (0.0, True, True)


def test_distance_counts_wrong_bits() -> None:
    env = BitFlipVectorEnv(10, n_bits=50)
    observations, _ = env.reset(seed=0)
    wrong = (observations["achieved_goal"] != observations["desired_goal"]).sum(axis=1)
    np.testing.assert_array_equal(env.distance(env.get_state(), observations["desired_goal"]), wrong)


def test_text_marks_wrong_bits() -> None:
    env = BitFlipVectorEnv(1, "ansi", n_bits=3)
    env.reset(seed=0)
    env.set_state([[2, 1, 0, 1, 1, 1, 0]])
    assert env.render() == ("step 2 of 3\nbits 1 0 1\n       ↕ ↕\ngoal 1 1 0",)
