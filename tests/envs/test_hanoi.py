"""The Tower of Hanoi (Sec. 1)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from pchid.envs.hanoi import MOVES, HanoiVectorEnv, moves_between


def neighbours(configuration: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return all configurations one legal move away, from the rules as one would read them out."""
    result = []
    for source, target in itertools.permutations(range(3), 2):
        on_source = [disc for disc, peg in enumerate(configuration) if peg == source]
        on_target = [disc for disc, peg in enumerate(configuration) if peg == target]
        if on_source and (not on_target or min(on_source) < min(on_target)):
            moved = list(configuration)
            moved[min(on_source)] = target
            result.append(tuple(moved))
    return result


def breadth_first(start: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    distances = {start: 0}
    queue = [start]
    for configuration in queue:
        for other in neighbours(configuration):
            if other not in distances:
                distances[other] = distances[configuration] + 1
                queue.append(other)
    return distances


@pytest.mark.parametrize("n_discs", [1, 2, 3, 4, 5])
def test_distance_agrees_with_a_search_from_every_start(n_discs: int) -> None:
    configurations = list(itertools.product(range(3), repeat=n_discs))
    starts = configurations if n_discs < 5 else configurations[::10]
    pegs = np.array([start for start in starts for _ in configurations])
    goals = np.array([goal for _ in starts for goal in configurations])
    ours = moves_between(pegs, goals).reshape(len(starts), -1)
    for row, start in zip(ours, starts, strict=True):
        distances = breadth_first(start)
        assert row.tolist() == [distances[goal] for goal in configurations]
    assert ours.max() <= 2**n_discs - 1


def test_a_whole_tower_takes_the_famous_number_of_moves() -> None:
    env = HanoiVectorEnv(1, n_discs=10)
    tower = np.zeros((1, 21), dtype=np.int64)
    goal = np.tile([0, 0, 1], 10)[None]
    assert env.distance(tower, goal)[0] == 1023
    assert env.horizon == 2046


@given(st.integers(1, 6), st.integers(0, 10_000), st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_every_move_is_legal_or_changes_nothing(n_discs: int, seed: int, actions: list[int]) -> None:
    env = HanoiVectorEnv(1, autoreset_mode=AutoresetMode.DISABLED, n_discs=n_discs)
    env.reset(seed=seed)
    for action in actions:
        before = tuple(env.get_state()[0, 1 : 1 + n_discs].tolist())
        observations = env.step([action])[0]
        after = tuple(env.get_state()[0, 1 : 1 + n_discs].tolist())
        source, target = MOVES[action]
        top = min((disc for disc in range(n_discs) if before[disc] == source), default=None)
        blocking = min((disc for disc in range(n_discs) if before[disc] == target), default=n_discs)
        if top is None or top > blocking:
            assert after == before
        else:
            assert after in neighbours(before)
            assert after[top] == target
        one_hot = observations["observation"].reshape(n_discs, 3)
        assert (one_hot.sum(axis=1) == 1).all()
        assert tuple(one_hot.argmax(axis=1).tolist()) == after


@given(st.integers(1, 4), st.integers(0, 1000))
def test_start_and_goal_differ(n_discs: int, seed: int) -> None:
    observations, _ = HanoiVectorEnv(64, n_discs=n_discs).reset(seed=seed)
    assert (observations["achieved_goal"] != observations["desired_goal"]).any(axis=1).all()


def test_starts_and_goals_are_uniform() -> None:
    env = HanoiVectorEnv(24_000, n_discs=1)
    env.reset(seed=0)
    _, start, goal = env.get_state().T
    counts = np.bincount(3 * start + goal, minlength=9).reshape(3, 3)
    assert (np.diag(counts) == 0).all()
    assert np.abs(counts[~np.eye(3, dtype=bool)] - 4000).max() < 5 * np.sqrt(4000)


def test_rewards_and_termination() -> None:
    env = HanoiVectorEnv(1, autoreset_mode=AutoresetMode.DISABLED, n_discs=2)
    env.reset(seed=0)
    env.set_state([[0, 0, 0, 1, 2]])  # both discs on peg 0; wanted: small on 1, large on 2
    _, rewards, terminated, _, _ = env.step([0])
    assert (rewards[0], terminated[0]) == (-1.0, False)
    _, rewards, terminated, truncated, _ = env.step([1])
    assert (rewards[0], terminated[0], truncated[0]) == (0.0, True, False)


def test_text_shows_both_configurations() -> None:
    env = HanoiVectorEnv(1, "ansi", n_discs=2)
    env.set_state([[1, 0, 0, 1, 2]])
    (text,) = env.render()
    assert text.splitlines() == [
        "discs                goal",
        "   █     │     │        │     │     │  ",
        "  ███    │     │        │     █    ███ ",
        "━" * 18 + "   " + "━" * 18,
        "step 1 of 6",
    ]
