"""Scenes that the Fetch tasks do not tell apart: in a mirror and aside, nearly the same happens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from pchid.algorithms import PEHID
from pchid.envs.fetch import FetchVectorEnv
from pchid.envs.fetch_symmetry import SHIFT, FetchSymmetry
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


OBJECTS = np.array([[1.34, 0.87], [1.42, 0.66], [1.25, 0.72], [1.45, 0.8]])


def steer(env: FetchVectorEnv, target: np.ndarray, steps: int = 25) -> None:
    """Bring every gripper to a place, (4, 3)."""
    for _ in range(steps):
        way = target - env.observe()["observation"][:, :3]
        env.step(np.concatenate([np.clip(way / 0.05, -1, 1), np.zeros((4, 1))], axis=1).astype(np.float32))


def put(env: FetchVectorEnv, objects: np.ndarray) -> None:
    """Put each object at x and y, with the arm where it is."""
    states = env.get_state()
    place = 1 + 3 + env._object_place  # after the steps taken and the goal
    states[:, place : place + 2] = objects
    env.set_state(states)


def pushed(env: FetchVectorEnv, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far gripper and object have come after six steps of the same action."""
    start = env.observe()["observation"][:, :3]
    for _ in range(6):
        env.step(actions)
    shown = env.observe()
    return shown["observation"][:, :3] - start, shown["achieved_goal"]


def observed(env: FetchVectorEnv) -> np.ndarray:
    return env.observe()["observation"]


def laid(env: FetchVectorEnv, side: float) -> np.ndarray:
    """What is shown of a turned, spinning and flying object and of uneven fingers; side -1 is the scene in a mirror.

    In a mirror across, what points across changes its sign, and so do turns about the other two axes.
    """
    model: Any = env._model
    start, first = env._start.copy(), env._object_place
    velocities = 1 + model.nq  # after the time and the joint positions
    turn = np.array([0.3 * side, 0.2, 0.4 * side])
    angle = np.linalg.norm(turn)
    start[first + 2] += 0.2
    start[first + 3 : first + 7] = np.r_[np.cos(angle / 2), np.sin(angle / 2) * turn / angle]
    flight = velocities + int(model.jnt_dofadr[model.joint("object0:joint").id])
    start[flight : flight + 6] = [0.1, 0.2 * side, 0.3, 1.0 * side, 2.0, 3.0 * side]
    right, left = (model.joint(f"robot0:{name}_gripper_finger_joint").id for name in "rl")
    wide, narrow = (right, left) if side > 0 else (left, right)
    start[[1 + model.jnt_qposadr[wide], 1 + model.jnt_qposadr[narrow]]] = 0.04, 0.01
    start[[velocities + model.jnt_dofadr[wide], velocities + model.jnt_dofadr[narrow]]] = 0.3, 0.1
    for robot in env._robots:
        robot.begin(start)
    env._read(np.arange(env.num_envs))
    return observed(env)


def test_turns_flights_and_fingers_are_those_of_the_scene_in_a_mirror() -> None:
    env = scene("FetchPickAndPlace-v4", 1)
    rows, expected = laid(env, 1.0), laid(env, -1.0)
    shown = {"observation": rows, "achieved_goal": rows[:, 3:6], "desired_goal": rows[:, 3:6]}
    found = FetchSymmetry(np.ones(1, bool), np.zeros((1, 2))).observations(shown)["observation"]
    apart = slice(9, 20), slice(23, 25)  # what does not depend on where the arm is
    for part in apart:
        assert np.abs(rows[:, part] - expected[:, part]).max() > 0.001
        np.testing.assert_allclose(found[:, part], expected[:, part], atol=1e-6)  # the arm is not quite at rest


@pytest.mark.parametrize(("mirrored", "shift"), [(True, (0.0, 0.0)), (False, (0.03, -0.04)), (True, (-0.03, 0.04))])
def test_nearly_the_same_happens_in_the_other_scene(mirrored: bool, shift: tuple[float, float]) -> None:
    """Arm and objects are put where the symmetry says, the actions are those it gives: the push ends where it says."""
    symmetry = FetchSymmetry(NONE | mirrored, np.full((4, 2), shift))
    env, other = scene("FetchPush-v4"), scene("FetchPush-v4")
    corners = np.array([1.1, 0.45]) + 0.05 * np.indices((2, 2)).reshape(2, 4).T  # out of the way
    for scenery in (env, other):
        place(scenery, corners)
    start = env.observe()["observation"][:, :3]
    steer(env, start)
    moved = {**env.observe(), "achieved_goal": start}
    steer(other, symmetry.observations(moved)["achieved_goal"])
    put(env, OBJECTS)
    at = {**env.observe(), "achieved_goal": np.c_[OBJECTS, np.zeros(4)]}
    put(other, symmetry.observations(at)["achieved_goal"][:, :2])
    way = np.concatenate([OBJECTS - start[:, :2], np.zeros((4, 2))], axis=1)
    actions = (way / np.abs(way).max(axis=1, keepdims=True)).astype(np.float32)
    gripper, ends = pushed(env, actions)
    other_gripper, other_ends = pushed(other, symmetry.actions(actions))
    assert (np.linalg.norm(ends[:, :2] - OBJECTS, axis=1) > 0.02).sum() >= 3  # so that there is a push to compare
    expected = symmetry.observations({**env.observe(), "achieved_goal": ends})["achieved_goal"]
    assert np.linalg.norm(other_ends - expected, axis=1).max() < 0.03
    velocities = [rows[:, 20:23] for rows in (symmetry.observations(env.observe())["observation"], observed(other))]
    assert np.abs(velocities[0][:, 1]).max() > 0.02 and np.abs(np.subtract(*velocities)).max() < 0.01
    assert np.abs(other_gripper - gripper * [1.0, -1.0 if mirrored else 1.0, 1.0]).max() < 0.02


def test_tasks_without_an_object_have_none() -> None:
    reach = FetchVectorEnv("FetchReach-v4")
    assert symmetries_of(reach, False) is None
    with pytest.raises(InputError, match="draw_symmetry"):
        symmetries_of(reach, True)
    with pytest.raises(InputError, match="draw_symmetry"):
        PEHID("GoalPolicy", "FetchReach-v4", symmetries=True)
