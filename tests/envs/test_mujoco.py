"""Saved states of MuJoCo environments, for real."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pchid.envs.make import make_vector
from pchid.goals import is_restorable

NAMES = ["FetchReach-v4", "FetchPush-v4", "FetchPickAndPlace-v4", "FetchSlide-v4"]


def replay(env: Any, actions: np.ndarray) -> list[Any]:
    found = []
    for action in actions:
        observations, rewards, terminated, truncated, _ = env.step(action[None])
        found += [*observations.values(), rewards, terminated, truncated]
    return found


def assert_identical(one: list[Any], other: list[Any]) -> None:
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_restored_state_replays_exactly_here_and_elsewhere(name: str) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    env: Any = make_vector(name, 1, autoreset=False)
    other: Any = make_vector(name, 1, autoreset=False)
    assert is_restorable(env)
    other.reset(seed=99)
    for _ in range(3):
        env.reset(seed=int(rng.integers(1000)))
        replay(env, rng.uniform(-1, 1, (int(rng.integers(1, 40)), 4)).astype(np.float32))
        saved, shown = env.get_state(), env.observe()
        actions = rng.uniform(-1, 1, (20, 4)).astype(np.float32)
        expected = replay(env, actions)
        for probe in (env, other):
            replay(probe, rng.uniform(-1, 1, (5, 4)).astype(np.float32))
            probe.set_state(saved)
            for key, value in probe.observe().items():
                np.testing.assert_array_equal(value, shown[key])
            np.testing.assert_array_equal(probe.get_state(), saved)
            assert_identical(replay(probe, actions), expected)


def test_looking_changes_nothing_and_a_saved_state_is_a_copy() -> None:
    env: Any = make_vector("FetchPickAndPlace-v4", 1, autoreset=False)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    warm, actions = rng.uniform(-1, 1, (2, 10, 4)).astype(np.float32)
    replay(env, warm)
    saved = env.get_state()
    kept = saved.copy()
    expected = replay(env, actions)
    np.testing.assert_array_equal(saved, kept)
    env.set_state(saved)
    env.observe()
    env.get_state()
    assert_identical(replay(env, actions), expected)


def test_slots_are_restored_apart() -> None:
    env: Any = make_vector("FetchReach-v4", 2, autoreset=False)
    env.reset(seed=[1, 2])
    start = env.get_state()
    action = np.full((2, 4), 0.5, np.float32)
    env.step(action)
    moved = env.get_state()
    env.set_state(start[:1], np.array([1]))  # the start of slot 0, into slot 1
    now = env.get_state()
    np.testing.assert_array_equal(now[0], moved[0])
    np.testing.assert_array_equal(now[1], start[0])
    observations = env.observe()
    env.set_state(start)
    np.testing.assert_array_equal(observations["desired_goal"][1], env.observe()["desired_goal"][0])
