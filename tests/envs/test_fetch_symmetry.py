"""Scenes that the Fetch tasks do not tell apart: in a mirror and aside, nearly the same happens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from pchid.algorithms import PEHID
from pchid.envs.fetch import FetchVectorEnv
from pchid.envs.fetch_symmetry import MIDDLE, SHIFT, FetchSymmetry
from pchid.errors import InputError
from pchid.goals import symmetries_of

WITH_OBJECT = ("FetchPush-v4", "FetchSlide-v4", "FetchPickAndPlace-v4")
NONE = np.zeros(4, bool)
STILL = np.zeros((4, 2))


def scene(env_id: str, slots: int = 4) -> FetchVectorEnv:
    env = FetchVectorEnv(env_id, slots, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=3)
    return env


def shown(env: FetchVectorEnv, steps: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        env.step(rng.uniform(-1, 1, (env.num_envs, 4)).astype(np.float32))
    return env.observe()


def place(env: FetchVectorEnv, objects: np.ndarray) -> None:
    """Put each object at x and y, as a reset would, with the arm where every episode starts."""
    starts = env._start[None].repeat(env.num_envs, axis=0)
    starts[:, env._object_place : env._object_place + 2] = objects
    for robot, start in zip(env._robots, starts, strict=True):
        robot.begin(start)
    env._read(np.arange(env.num_envs))


@pytest.mark.parametrize("env_id", WITH_OBJECT)
def test_a_mirror_twice_is_no_mirror_and_there_and_back_is_nowhere(env_id: str) -> None:
    before = shown(scene(env_id), 5)
    there = FetchSymmetry(~NONE, np.full((4, 2), (0.02, -0.03)))
    # The mirror turns the way back across, too.
    back = FetchSymmetry(~NONE, np.full((4, 2), (-0.02, -0.03)))
    after = back.observations(there.observations(before))
    for key, values in before.items():
        np.testing.assert_allclose(after[key], values, atol=1e-12)
    actions = np.arange(16.0).reshape(4, 4)
    np.testing.assert_array_equal(there.actions(there.actions(actions)), actions)


@pytest.mark.parametrize("env_id", WITH_OBJECT)
def test_what_is_given_stays_as_it_was(env_id: str) -> None:
    before = shown(scene(env_id), 2)
    copies = {key: values.copy() for key, values in before.items()}
    actions = np.ones((4, 4), np.float32)
    drawn = FetchSymmetry.draw(4, np.random.default_rng(0))
    drawn.observations(before)
    drawn.actions(actions)
    for key, values in before.items():
        np.testing.assert_array_equal(values, copies[key])
    assert (actions == 1).all()


def test_an_observation_stays_one_of_a_scene() -> None:
    """Places move together: what is relative to the gripper, and the achieved goal, still say the same."""
    before = shown(scene("FetchPush-v4", 64), 8)
    after = FetchSymmetry.draw(64, np.random.default_rng(1)).observations(before)
    rows = after["observation"]
    np.testing.assert_allclose(rows[:, 6:9], rows[:, 3:6] - rows[:, :3], atol=1e-12)
    np.testing.assert_allclose(after["achieved_goal"], rows[:, 3:6], atol=1e-12)
    away = [np.linalg.norm(seen["desired_goal"] - seen["achieved_goal"], axis=1) for seen in (before, after)]
    np.testing.assert_allclose(*away, atol=1e-12)
    assert np.abs(rows[:, 0] - before["observation"][:, 0]).max() <= SHIFT


def test_draws_mirror_half_and_differ() -> None:
    drawn = FetchSymmetry.draw(2000, np.random.default_rng(0))
    assert 0.45 < drawn.mirrored.mean() < 0.55
    assert len(np.unique(drawn.shift[:, 0])) == 2000


@pytest.mark.parametrize(("mirrored", "shift"), [(True, (0.0, 0.0)), (False, (0.03, -0.04)), (True, (-0.02, 0.03))])
def test_nearly_the_same_happens_in_the_other_scene(mirrored: bool, shift: tuple[float, float]) -> None:
    """Objects lie in the other scene where the symmetry puts them, the actions are its too: the push ends there, too.

    The arm is not moved with the scene, so the gripper starts elsewhere beside the object unless there is no shift:
    only the mirror is checked by touch, the shift by what the gripper does without.
    """
    env, other = scene("FetchPush-v4"), scene("FetchPush-v4")
    symmetry = FetchSymmetry(NONE | mirrored, STILL + np.asarray(shift))
    objects = np.array([[1.34, 0.87], [1.42, 0.66], [1.25, 0.72], [1.45, 0.8]])
    places = symmetry.observations({**env.observe(), "achieved_goal": np.c_[objects, np.zeros(4)]})["achieved_goal"]
    place(env, objects)
    place(other, places[:, :2] if shift == (0.0, 0.0) else objects)
    direction = np.concatenate([objects - env.observe()["observation"][:, :2], np.zeros((4, 2))], axis=1)
    actions = (direction / np.abs(direction).max(axis=1, keepdims=True)).astype(np.float32)
    start = [scenery.observe()["observation"][:, :3].copy() for scenery in (env, other)]
    for _ in range(6):
        env.step(actions)
        other.step(symmetry.actions(actions))
    here, there = (scenery.observe() for scenery in (env, other))
    if shift == (0.0, 0.0):
        moved = np.linalg.norm(here["achieved_goal"][:, :2] - objects, axis=1)
        assert (moved > 0.02).sum() >= 3
        expected = symmetry.observations(here)["achieved_goal"]
        assert np.linalg.norm(there["achieved_goal"] - expected, axis=1).max() < 0.02
    way = here["observation"][:, :3] - start[0]
    sign = np.array([1.0, -1.0 if mirrored else 1.0, 1.0])
    assert np.abs(there["observation"][:, :3] - start[1] - way * sign).max() < 0.02
    assert abs(MIDDLE - start[0][0, 1]) < 0.005


def test_tasks_without_an_object_have_none() -> None:
    reach = FetchVectorEnv("FetchReach-v4")
    assert symmetries_of(reach, False) is None
    with pytest.raises(InputError, match="draw_symmetry"):
        symmetries_of(reach, True)
    with pytest.raises(InputError, match="draw_symmetry"):
        PEHID("GoalPolicy", "FetchReach-v4", symmetries=True)
