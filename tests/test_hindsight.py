"""Relabelling against a plain triple loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pchid.episodes import Episodes
from pchid.hindsight import displacement, hindsight_pairs, inverse_dynamics_pairs

Success = Callable[[np.ndarray, np.ndarray], np.ndarray]


def near(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    return np.abs(achieved - desired).max(axis=-1) <= 1


def same(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    return (achieved == desired).all(axis=-1)


@st.composite
def some_episodes(draw: st.DrawFn) -> Episodes:
    lengths = np.array(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    padding = draw(st.integers(0, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, horizon = len(lengths), int(lengths.max()) + padding
    # Few different places, so that episodes stand still, come back and cross their own way; what lies beyond the end
    # of an episode is filled with places too, which nobody may see.
    states = rng.integers(0, draw(st.sampled_from([2, 3, 1000])), (count, horizon + 1, 2))
    return Episodes(
        observation=np.concatenate([states, states[..., :1] * 0.5], axis=2),
        achieved_goal=states % draw(st.integers(1, 4)),
        desired_goal=rng.integers(0, 4, (count, 2)),
        action=np.arange(count * horizon).reshape(count, horizon),  # every step has its own, by which it is known
        state=rng.random((count, horizon, 5)) if draw(st.booleans()) else None,
        length=lengths,
        total_reward=np.zeros(count),
        final_success=np.zeros(count, bool),
    )


def naive_pairs(
    episodes: Episodes, K: list[int], min_displacement: float, is_success: Success | None
) -> list[tuple[Any, ...]]:
    found = []
    for episode in range(len(episodes)):
        places = episodes.achieved_goal[episode]
        for time in range(episodes.length[episode]):
            for k in K:
                if time + k > episodes.length[episode]:
                    continue
                goal = places[time + k]
                if np.sqrt(((goal - places[time]) ** 2).sum()) <= min_displacement:
                    continue
                if is_success is not None and k > min(K):
                    met = [bool(is_success(place[None], goal[None])[0]) for place in places[time : time + k]]
                    if met[0] or any(before and not after for before, after in itertools.pairwise(met)):
                        continue
                    visited = [tuple(state) for state in episodes.observation[episode, time : time + k + 1]]
                    if len(set(visited)) < len(visited):
                        continue
                found.append((episode, time, k))
    return found


@given(
    some_episodes(),
    st.lists(st.integers(1, 9), min_size=1, max_size=5, unique=True),
    st.sampled_from([0.0, 0.5, 1.0, 1.2, 5.0]),
    st.sampled_from([None, near, same]),
)
def test_pairs_equal_those_of_a_triple_loop(
    episodes: Episodes, K: list[int], min_displacement: float, is_success: Success | None
) -> None:
    pairs = hindsight_pairs(episodes, K, min_displacement, is_success)
    expected = naive_pairs(episodes, K, min_displacement, is_success)
    assert len(pairs) == len(expected)
    # The order of the pairs is nobody's business.
    found = {(int(pairs.action[i]), int(pairs.k[i])): i for i in range(len(pairs))}
    assert len(found) == len(expected)
    for episode, time, k in expected:
        index = found[int(episodes.action[episode, time]), k]
        np.testing.assert_array_equal(pairs.goal[index], episodes.achieved_goal[episode, time + k])
        np.testing.assert_array_equal(pairs.observation[index], episodes.observation[episode, time])
        if episodes.state is None:
            assert pairs.state is None
        else:
            assert pairs.state is not None
            np.testing.assert_array_equal(pairs.state[index], episodes.state[episode, time])


@given(some_episodes(), st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True))
def test_no_pair_is_trivial_and_none_shares_memory_with_its_episode(episodes: Episodes, K: list[int]) -> None:
    # Writing the place into the observation shows, pair by pair, where each one started.
    episodes.observation[..., :2] = episodes.achieved_goal
    pairs = hindsight_pairs(episodes, K)
    assert (pairs.observation[:, :2] != pairs.goal).any(axis=1).all()
    before = pairs.goal.copy(), pairs.action.copy(), pairs.observation.copy()
    episodes.achieved_goal[...] = -1
    episodes.action[...] = -1
    episodes.observation[...] = -1
    for now, then in zip((pairs.goal, pairs.action, pairs.observation), before, strict=True):
        np.testing.assert_array_equal(now, then)


@given(some_episodes())
def test_inverse_dynamics_take_every_step_with_the_goal_that_was_meant(episodes: Episodes) -> None:
    pairs = inverse_dynamics_pairs(episodes)
    steps = [(episode, time) for episode in range(len(episodes)) for time in range(episodes.length[episode])]
    assert len(pairs) == len(steps)
    found = {int(pairs.action[i]): i for i in range(len(pairs))}
    for episode, time in steps:
        index = found[int(episodes.action[episode, time])]
        np.testing.assert_array_equal(pairs.goal[index], episodes.desired_goal[episode])
        np.testing.assert_array_equal(pairs.observation[index], episodes.observation[episode, time])
        assert pairs.k[index] == 1


@given(some_episodes(), st.data())
def test_selecting_by_mask_or_by_index_keeps_rows_together(episodes: Episodes, data: st.DataObject) -> None:
    pairs = hindsight_pairs(episodes, [1, 2])
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs))), bool)
    chosen = pairs.select(mask)
    assert len(chosen) == mask.sum()
    for part in (chosen, pairs.select(np.flatnonzero(mask))):
        np.testing.assert_array_equal(part.goal, pairs.goal[mask])
        np.testing.assert_array_equal(part.k, pairs.k[mask])
        assert (part.state is None) == (pairs.state is None)


def test_displacement_is_the_euclidean_distance_whatever_the_type() -> None:
    start = np.array([[0, 255], [3, 4]], np.uint8)
    end = np.array([[255, 0], [0, 0]], np.uint8)
    np.testing.assert_allclose(displacement(start, end), [255 * np.sqrt(2), 5])
    assert displacement(np.zeros((2, 2, 2)), np.ones((2, 2, 2))) == pytest.approx([2.0, 2.0])
    flags = np.array([[True, False]])
    assert displacement(flags, ~flags) == pytest.approx([np.sqrt(2)])


def test_a_goal_that_is_not_held_is_not_reached() -> None:
    """A puck that is hit at once, passes three places and rests at the fourth."""
    places = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 4.0, 4.0])[None, :, None]
    count = places.shape[1]
    puck = Episodes(
        observation=places,
        achieved_goal=places,
        desired_goal=np.zeros((1, 1)),
        action=np.arange(count - 1.0)[None, :, None],
        state=None,
        length=np.array([count - 1]),
        total_reward=np.zeros(1),
        final_success=np.zeros(1, bool),
    )
    every = hindsight_pairs(puck, range(1, 5))
    held = hindsight_pairs(puck, range(1, 5), hold_steps=2)
    assert set(every.goal.ravel()) == {1.0, 2.0, 3.0, 4.0}
    assert set(held.goal.ravel()) == {4.0}
    assert sorted(zip(held.action.ravel(), held.k, strict=True)) == [(0.0, 4), (1.0, 3), (2.0, 2), (3.0, 1)]
    assert len(hindsight_pairs(puck, range(1, 5), hold_steps=3)) == 0  # the episode ends before anybody can tell
    assert set(hindsight_pairs(puck, range(1, 5), 1.0, hold_steps=1).goal.ravel()) == {2.0, 3.0, 4.0}  # 1 is no move
