"""A probe over Fetch: many pairs at once, and the same verdicts and steps as one after the other."""

from __future__ import annotations

import functools
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from pchid.config import new_config
from pchid.envs.fetch import FetchVectorEnv
from pchid.errors import InputError
from pchid.hindsight import HindsightPairs
from pchid.solvability import Interaction, Probe

PAIRS = 60
FAR = {"FetchReach-v4": 0.08, "FetchPush-v4": 0.05, "FetchPickAndPlace-v4": 0.05}
"""How far goals lie at most, in each direction: about half are then solved, the objects' by where they are."""
tasks = pytest.mark.parametrize("env_id", FAR)


class Hurries:
    """Goes straight for the goal, a little astray, as observation and goal alone decide."""

    def act(self, observations: dict[str, np.ndarray]) -> np.ndarray:
        gripper, goal = observations["observation"][:, :3], observations["desired_goal"]
        astray = 0.8 * np.sin(1e4 * (observations["achieved_goal"] + goal))
        actions = np.zeros((len(goal), 4), np.float32)
        actions[:, :3] = np.clip(10.0 * (goal - gripper) + astray, -1.0, 1.0)
        return actions

    def imitation_loss(self, observations: dict[str, np.ndarray], action: np.ndarray) -> torch.Tensor:
        return torch.ones(len(action))

    def normalise_by(self, observations: dict[str, np.ndarray]) -> None:
        """Nothing to normalise."""


class Counting(FetchVectorEnv):
    """Counts the steps of its slots."""

    stepped = 0

    def advance(self, actions: Any, slots: np.ndarray) -> dict[str, np.ndarray]:
        self.stepped += len(slots)
        return super().advance(actions, slots)


class StepsAll:
    """A simulator that can only step all its slots together."""

    def __init__(self, env: FetchVectorEnv) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name == "advance":
            raise AttributeError(name)
        return getattr(self.env, name)


def probe(env_id: str, slots: int, kind: type[FetchVectorEnv] = FetchVectorEnv, **settings: Any) -> Probe:
    return Probe(kind(env_id, slots, autoreset_mode=AutoresetMode.DISABLED, **settings))


def some_pairs(env_id: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Saved states on random ways, goals near what they achieved, and limits of one to four steps."""
    rng = np.random.default_rng(seed)
    env = FetchVectorEnv(env_id, 12, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=seed)
    states, goals = [], []
    for _ in range(PAIRS // 12):
        for _ in range(7):
            env.step(rng.uniform(-1.0, 1.0, (12, 4)).astype(np.float32))
        states.append(env.get_state())
        goals.append(env.observe()["achieved_goal"] + rng.uniform(-FAR[env_id], FAR[env_id], (12, 3)))
    return np.concatenate(states), np.concatenate(goals), rng.integers(1, 5, PAIRS)


def one_after_the_other(env_id: str, states: np.ndarray, goals: np.ndarray, limits: np.ndarray) -> tuple[Any, int]:
    """What a probe should find, by steps of one simulator alone."""
    env = FetchVectorEnv(env_id, threads=1, autoreset_mode=AutoresetMode.DISABLED)
    policy, solved, steps = Hurries(), [], 0
    for state, goal, limit in zip(states, goals, limits, strict=True):
        env.set_state(state[None])
        shown, reached = env.observe(), False
        for _ in range(limit):
            shown = env.step(policy.act({**shown, "desired_goal": goal[None]}))[0]
            steps += 1
            reached = bool(np.linalg.norm(shown["achieved_goal"][0] - goal) < 0.05)
            if reached:
                break
        solved.append(reached)
    return solved, steps


@tasks
def test_verdicts_and_steps_are_those_of_one_pair_after_the_other(env_id: str) -> None:
    pairs = some_pairs(env_id)
    expected, expected_steps = one_after_the_other(env_id, *pairs)
    assert 5 < sum(expected) < PAIRS - 5
    assert PAIRS < expected_steps < pairs[2].sum()  # some were left early, and others took more than a step
    for slots, threads in ((1, 1), (7, 2), (64, 2)):
        solved, steps = probe(env_id, slots, threads=threads).solves(Hurries(), *pairs)
        assert solved.tolist() == expected
        assert steps == expected_steps


def test_only_busy_slots_are_stepped_and_counted() -> None:
    pairs = some_pairs("FetchReach-v4")
    for slots in (1, 13, 64):
        tried = probe("FetchReach-v4", slots, Counting)
        assert isinstance(tried.simulator, Counting)
        before = tried.simulator.stepped
        _, steps = tried.solves(Hurries(), *pairs)
        assert tried.simulator.stepped - before == steps == one_after_the_other("FetchReach-v4", *pairs)[1]


@tasks
@pytest.mark.parametrize("slots", [9, 64])
def test_a_simulator_that_steps_all_its_slots_finds_the_same(env_id: str, slots: int) -> None:
    pairs = some_pairs(env_id)
    together = Probe(StepsAll(FetchVectorEnv(env_id, slots, autoreset_mode=AutoresetMode.DISABLED)))
    assert not hasattr(together.simulator, "advance")
    solved, steps = together.solves(Hurries(), *pairs)
    expected, expected_steps = probe(env_id, 1).solves(Hurries(), *pairs)
    np.testing.assert_array_equal(solved, expected)
    assert steps == expected_steps


def test_a_verdict_depends_on_its_pair_alone() -> None:
    """Neither the order of the pairs, nor what the slots held before, nor the time of the saved state matters."""
    states, goals, limits = some_pairs("FetchPush-v4")
    tried = probe("FetchPush-v4", 8)
    expected, steps = tried.solves(Hurries(), states, goals, limits)
    late = states.copy()
    late[:, 0] = 49  # steps taken: the time is up in the next one
    order = np.random.default_rng(1).permutation(PAIRS)
    for some_states in (states, late):
        solved, again = tried.solves(Hurries(), some_states[order], goals[order], limits[order])
        np.testing.assert_array_equal(solved, expected[order])
        assert again == steps


def test_without_pairs_there_is_nothing_to_do() -> None:
    states, goals, limits = some_pairs("FetchReach-v4")
    solved, steps = probe("FetchReach-v4", 4).solves(Hurries(), states[:0], goals[:0], limits[:0])
    assert (len(solved), steps) == (0, 0)


class Forgets(FetchVectorEnv):
    """Restores everything but the pose that the next target is measured from."""

    def set_state(self, states: Any, slots: Any = None) -> None:
        poses = self._poses.copy()
        super().set_state(states, slots)
        self._poses[:] = poses


class Refreshes(FetchVectorEnv):
    """Computes that pose afresh, although the task itself reads one that is a substep old."""

    def set_state(self, states: Any, slots: Any = None) -> None:
        super().set_state(states, slots)
        for pose, robot in zip(self._poses, self._robots, strict=True):
            mujoco.mj_kinematics(robot.model, robot.data)
            pose[:] = [*robot.data.xpos[self._weld], *robot.data.xquat[self._weld]]


@pytest.mark.parametrize("kind", [Forgets, Refreshes])
def test_a_simulator_that_goes_on_otherwise_than_before_is_refused(kind: type[FetchVectorEnv]) -> None:
    with pytest.raises(InputError, match="restored state"):
        probe("FetchPickAndPlace-v4", 1, kind)


def test_a_tolerance_of_its_own_makes_the_test_stricter() -> None:
    """What the policy reaches by the task's 5 cm, but not by 1 cm, is kept too."""
    make = functools.partial(FetchVectorEnv, "FetchPush-v4", 8, autoreset_mode=AutoresetMode.DISABLED)
    env = make()
    env.reset(seed=0)
    states = np.concatenate([env.get_state()] * 4)
    achieved = np.concatenate([env.observe()["achieved_goal"]] * 4)
    goals = achieved + np.repeat([[0.0, 0.02, 0.0], [0.0, 0.2, 0.0]], 16, axis=0)
    count = len(goals)
    pairs = HindsightPairs(np.zeros((count, 25)), achieved, goals, np.zeros((count, 4)), np.full(count, 2), states)

    class Rests(Hurries):
        def act(self, observations: dict[str, np.ndarray]) -> np.ndarray:
            return np.zeros((len(observations["desired_goal"]), 4), np.float32)

    near = np.arange(count) < 16
    np.testing.assert_array_equal(Interaction(make)(pairs, Rests(), pairs.k), ~near)
    assert Interaction(make, 0.01)(pairs, Rests(), pairs.k).all()
    np.testing.assert_array_equal(Interaction(make, 0.03)(pairs, Rests(), pairs.k), ~near)


@pytest.mark.parametrize("tolerance", [0.0, -0.1, float("inf"), float("nan")])
def test_a_tolerance_is_a_distance(tolerance: float) -> None:
    with pytest.raises(InputError, match="tolerance"):
        Interaction(lambda: None, tolerance)


def test_a_tolerance_goes_with_interaction() -> None:
    given = {"env": "FetchPush-v4", "method": "pehid"}
    assert new_config(given)["test_tolerance"] == 0.03
    assert "test_tolerance" not in new_config({**given, "test": "none"})
    with pytest.raises(InputError, match="interaction"):
        new_config({**given, "test": "none", "test_tolerance": 0.01})


def test_who_only_passes_by_has_not_held_the_goal() -> None:
    """The gripper goes on to the right: it passes its goal, and is beyond it when TEST looks again."""
    make = functools.partial(FetchVectorEnv, "FetchReach-v4", 4, autoreset_mode=AutoresetMode.DISABLED)
    env = make()
    env.reset(seed=0)
    states, start = env.get_state(), env.observe()["achieved_goal"]
    goals = start + np.array([0.0, 0.1, 0.0])
    pairs = HindsightPairs(np.zeros((4, 10)), start, goals, np.zeros((4, 4)), np.full(4, 8), states)

    class GoesOn(Hurries):
        def act(self, observations: dict[str, np.ndarray]) -> np.ndarray:
            return np.tile(np.array([0.0, 1.0, 0.0, 0.0], np.float32), (len(observations["desired_goal"]), 1))

    passing, holding = Interaction(make), Interaction(make, hold_steps=4)
    assert not passing(pairs, GoesOn(), pairs.k).any()
    assert holding(pairs, GoesOn(), pairs.k).all()
    assert holding.steps == 4 * (8 + 4) > passing.steps
    with pytest.raises(InputError, match="hold_steps"):
        Interaction(make, hold_steps=-1)
