"""The Fetch tasks as one vector environment: equal to gymnasium-robotics bit for bit, and restorable anywhere."""

from __future__ import annotations

import os
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

from pchid.envs.fetch import FETCH_IDS, TASKS, FetchVectorEnv
from pchid.envs.make import find_spec, make_vector
from pchid.envs.randomness import SlotEpisodes
from pchid.errors import InputError
from pchid.goals import is_restorable

HORIZON = 50
KEYS = ("observation", "achieved_goal", "desired_goal")
tasks = pytest.mark.parametrize("env_id", [f"{task}-v4" for task in TASKS])


def some_actions(steps: int, slots: int, seed: int = 0) -> np.ndarray:
    """Random actions, some of them beyond the bounds."""
    return np.random.default_rng(seed).uniform(-1.3, 1.3, (steps, slots, 4)).astype(np.float32)


def plain(env_id: str, **options: Any) -> gym.Env[Any, Any]:
    """The task as gymnasium-robotics has it."""
    find_spec(env_id)
    return gym.make(env_id, **options)


def assert_shows(observations: dict[str, np.ndarray], slot: Any, expected: dict[str, np.ndarray]) -> None:
    assert set(observations) == set(expected) == set(KEYS)
    for key in KEYS:
        assert observations[key].dtype == expected[key].dtype
        np.testing.assert_array_equal(observations[key][slot], expected[key])


def play(env: FetchVectorEnv, actions: np.ndarray) -> list[list[np.ndarray]]:
    """All that each step shows, one row a slot."""
    found = []
    for action in actions:
        observations, rewards, terminated, truncated, infos = env.step(action)
        found.append([*(observations[key] for key in KEYS), rewards, terminated, truncated, infos["is_success"]])
    return found


def assert_rows(found: list[list[np.ndarray]], expected: list[list[np.ndarray]], rows: Any, wanted: Any) -> None:
    for left, right in zip(found, expected, strict=True):
        for one, other in zip(left, right, strict=True):
            np.testing.assert_array_equal(one[rows], other[wanted])


# What gymnasium-robotics does.


@pytest.mark.parametrize(
    ("env_id", "seeds"),
    [
        *((env_id, [2**31 - 1, 5]) for env_id in FETCH_IDS),
        *(pytest.param(f"{task}-v4", list(range(10)), marks=pytest.mark.slow) for task in TASKS),
    ],
)
def test_slots_equal_single_environments_bit_for_bit(env_id: str, seeds: list[int]) -> None:
    count, every = len(seeds), np.ones(len(seeds), bool)
    episodes = SlotEpisodes(count)
    episodes.seed(seeds, every)
    env = FetchVectorEnv(env_id, count, threads=2)
    observations, _ = env.reset(seed=seeds)
    singles = [plain(env_id) for _ in seeds]
    actions = some_actions(HORIZON + 5, count)
    for step in range(HORIZON + 5):
        if step in (0, HORIZON):  # the first episode, and the one that follows in the same step
            episodes.advance(every)
            for slot, seed in enumerate(episodes.reset_seeds(np.arange(count))):
                assert_shows(observations, slot, singles[slot].reset(seed=seed)[0])
        observations, rewards, terminated, truncated, infos = env.step(actions[step])
        last = step == HORIZON - 1
        for slot, single in enumerate(singles):
            expected, reward, *ended, info = single.step(actions[step, slot])
            shown = infos["final_obs"][slot] if last else {key: values[slot] for key, values in observations.items()}
            assert_shows(shown, ..., expected)
            assert (rewards[slot], [terminated[slot], truncated[slot]]) == (reward, ended)
            assert ended == [False, last]
            assert (infos["final_info"] if last else infos)["is_success"][slot] == info["is_success"]
        assert ("final_obs" in infos) == ("final_info" in infos) == last
    assert env.episode_numbers.tolist() == [1] * count
    assert env.elapsed.tolist() == [5] * count


@pytest.mark.parametrize("env_id", FETCH_IDS)
def test_rewards_and_successes_are_equal_near_the_goal_too(env_id: str) -> None:
    env = FetchVectorEnv(env_id, 4)
    env.reset(seed=0)
    states = env.get_state()
    # Random actions hardly ever lead there, so each goal is put above what is to be brought to it.
    states[:, 1:4] = env.observe()["achieved_goal"] + [[0.0, 0.0, height] for height in (0.0, 0.02, 0.08, 0.3)]
    env.set_state(states)
    actions = np.full((4, 4), 0.1, np.float32)
    observations, rewards, _, _, infos = env.step(actions)
    single = plain(env_id)
    for slot in range(4):
        single.reset(seed=slot)
        single.unwrapped.goal = states[slot, 1:4]  # type: ignore[attr-defined]
        expected, reward, _, _, info = single.step(actions[slot])
        assert_shows(observations, slot, expected)
        assert (rewards[slot], infos["is_success"][slot]) == (reward, info["is_success"])
    assert infos["is_success"].tolist() == [True, True, False, False]


@tasks
def test_wider_types_are_taken_as_they_are(env_id: str) -> None:
    env, single = FetchVectorEnv(env_id), plain(env_id)
    assert_shows(env.reset(seed=3)[0], 0, single.reset(seed=3)[0])
    for actions in some_actions(10, 1).astype(np.float64) * (1 + 1e-9):
        assert_shows(env.step(actions)[0], 0, single.step(actions[0])[0])


def test_spaces_and_options_are_those_of_the_task() -> None:
    single = plain("FetchPush-v4", reward_type="dense")
    env = FetchVectorEnv("FetchPush-v4", 3, reward_type="dense")
    assert env.single_observation_space == single.observation_space
    assert env.single_action_space == single.action_space
    observations, _ = env.reset(seed=1)
    assert env.observation_space.contains(observations)
    goals = observations["achieved_goal"], observations["desired_goal"]
    rewards = env.compute_reward(*goals)
    np.testing.assert_array_equal(rewards, single.unwrapped.compute_reward(*goals, {}))  # type: ignore[attr-defined]
    assert len(np.unique(rewards)) == 3


@pytest.mark.parametrize("env_id", FETCH_IDS)
def test_it_is_what_an_id_of_fetch_gives(env_id: str) -> None:
    env = make_vector(env_id, 2)
    assert isinstance(env, FetchVectorEnv)
    assert is_restorable(env)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert make_vector(env_id, autoreset=False).metadata["autoreset_mode"] is AutoresetMode.DISABLED


# Episodes.


def test_an_episode_depends_on_seed_and_number_alone() -> None:
    env = FetchVectorEnv("FetchPush-v4", 3, horizon=2)
    env.reset(seed=[5, 6, 7])
    for actions in some_actions(4, 3):  # two episodes of two steps
        env.step(actions)
    assert env.episode_numbers.tolist() == [2, 2, 2]
    other = FetchVectorEnv("FetchPush-v4", 2)
    other.reset(seed=[7, 5], options={"episode": np.array([2, 2])})
    np.testing.assert_array_equal(other.get_state(), env.get_state()[[2, 0]])
    assert len(np.unique(env.get_state()[:, 1:4], axis=0)) == 3  # three goals


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_the_horizon_ends_an_episode(mode: AutoresetMode) -> None:
    env = FetchVectorEnv("FetchReach-v4", 2, horizon=3, autoreset_mode=mode)
    env.reset(seed=0)
    found = [env.step(actions)[3].tolist() for actions in some_actions(5, 2)]
    over = [[False, False], [False, False], [True, True]]
    going_on = mode is AutoresetMode.DISABLED
    assert found == [*over, *(over[2:] * 2 if going_on else over[:2])]
    assert env.elapsed.tolist() == ([5, 5] if going_on else [2, 2])


def test_slots_end_by_themselves() -> None:
    """One slot has taken two steps more than the other when its time is up."""
    env = FetchVectorEnv("FetchReach-v4", 2, horizon=4)
    env.reset(seed=0)
    actions = some_actions(4, 2)
    for action in actions[:2]:
        env.advance(action[1:], np.array([1]))
    for step, action in enumerate(actions[:2], start=1):
        observations, _, _, truncated, infos = env.step(action)
        assert truncated.tolist() == [False, step == 2]
    assert infos["_final_obs"].tolist() == infos["_final_info"].tolist() == [False, True]
    assert infos["final_obs"][0] is None
    assert env.episode_numbers.tolist() == [0, 1]
    assert not np.array_equal(infos["final_obs"][1]["desired_goal"], observations["desired_goal"][1])


# Saved states.


@tasks
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_a_restored_state_plays_on_in_any_slot_of_any_simulator(env_id: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    env = FetchVectorEnv(env_id, 3, threads=2, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=seed)
    played = int(rng.integers(31, HORIZON))  # so that the time is up within the next twenty steps
    play(env, some_actions(played, 3, seed))
    saved, shown = env.get_state(), env.observe()
    actions = some_actions(20, 3, seed + 100)
    expected = play(env, actions)
    truncated = [step[5].all() for step in expected]
    assert truncated == [step >= HORIZON - played for step in range(1, 21)]
    larger = FetchVectorEnv(env_id, 5, threads=3, autoreset_mode=AutoresetMode.DISABLED)
    larger.reset(seed=99)
    smaller = FetchVectorEnv(env_id, 1, threads=1, autoreset_mode=AutoresetMode.DISABLED)  # never reset
    for simulator, slots, rows in (
        (env, [0, 1, 2], [0, 1, 2]),
        (env, [0, 1, 2], [2, 0, 1]),
        (larger, [4, 0, 3], [0, 1, 2]),
        (smaller, [0], [1]),
    ):
        simulator.set_state(saved[rows], np.array(slots))
        np.testing.assert_array_equal(simulator.get_state()[slots], saved[rows])
        for key, values in simulator.observe().items():
            np.testing.assert_array_equal(values[slots], shown[key][rows])
        others = some_actions(20, simulator.num_envs, seed + 200)
        others[:, slots] = actions[:, rows]
        assert_rows(play(simulator, others), expected, slots, rows)


def test_a_saved_state_and_what_is_shown_are_copies() -> None:
    env = FetchVectorEnv("FetchPickAndPlace-v4", 2)
    shown, _ = env.reset(seed=0)
    saved = env.get_state()
    kept = [saved.copy(), *(shown[key].copy() for key in KEYS)]
    stepped = env.step(some_actions(1, 2)[0])[0]
    for one, other in zip([saved, *(shown[key] for key in KEYS)], kept, strict=True):
        np.testing.assert_array_equal(one, other)
    now = env.get_state()
    for values in (*stepped.values(), *env.observe().values(), env.get_state()):
        values[:] = 7.0
    np.testing.assert_array_equal(env.get_state(), now)


@pytest.mark.parametrize(
    ("rows", "columns", "slots"),
    [(1, 0, None), (3, 0, None), (2, -1, None), (2, 1, None), (2, 0, [0]), (1, 0, [0, 1]), (0, 0, [1])],
)
def test_states_of_the_wrong_shape_are_refused(rows: int, columns: int, slots: list[int] | None) -> None:
    env = FetchVectorEnv("FetchReach-v4", 2)
    env.reset(seed=0)
    before = env.get_state()
    wrong = np.zeros((rows, before.shape[1] + columns))
    with pytest.raises(InputError, match="states must have shape"):
        env.set_state(wrong, slots)
    np.testing.assert_array_equal(env.get_state(), before)


def test_a_state_of_another_task_is_refused() -> None:
    push, reach = FetchVectorEnv("FetchPush-v4"), FetchVectorEnv("FetchReach-v4")
    push.reset(seed=0)
    with pytest.raises(InputError, match="states must have shape"):
        reach.set_state(push.get_state())


# Threads and single slots.


@tasks
def test_the_number_of_threads_changes_nothing(env_id: str) -> None:
    actions = some_actions(25, 5)
    results = []
    for threads in (1, 2, 4):
        env = FetchVectorEnv(env_id, 5, threads=threads, horizon=10)
        env.reset(seed=4)
        results.append((play(env, actions), env.get_state()))
        env.close()
    for found, state in results[1:]:
        assert_rows(found, results[0][0], ..., ...)
        np.testing.assert_array_equal(state, results[0][1])


@tasks
@pytest.mark.parametrize("slots", [[2], [3, 0], [0, 1, 2, 3]])
def test_some_slots_advance_as_they_would_among_all(env_id: str, slots: list[int]) -> None:
    env, twin = (FetchVectorEnv(env_id, 4, threads=2) for _ in range(2))
    env.reset(seed=8)
    twin.reset(seed=8)
    others = [slot for slot in range(4) if slot not in slots]
    before = env.get_state()
    for actions in some_actions(6, 4):
        found, expected = env.advance(actions[slots], np.array(slots)), twin.step(actions)[0]
        for key in KEYS:
            np.testing.assert_array_equal(found[key], expected[key][slots])
            np.testing.assert_array_equal(env.observe()[key][slots], expected[key][slots])
    np.testing.assert_array_equal(env.get_state()[slots], twin.get_state()[slots])
    np.testing.assert_array_equal(env.get_state()[others], before[others])
    assert env.elapsed[slots].tolist() == [6] * len(slots)


# Pictures.


@pytest.fixture
def off_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips the test where gymnasium-robotics itself cannot draw."""
    if "DISPLAY" not in os.environ and "MUJOCO_GL" not in os.environ:
        monkeypatch.setenv("MUJOCO_GL", "egl")
    env = plain("FetchReach-v4", render_mode="rgb_array")
    env.reset(seed=0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env.render()
    except Exception as error:  # each way to draw fails in its own way
        pytest.skip(f"there is no off-screen rendering here: {error}")
    env.close()


@pytest.mark.usefixtures("off_screen")
@pytest.mark.parametrize("env_id", ["FetchReach-v4", "FetchPickAndPlace-v4"])
def test_pictures_are_those_of_the_single_environments(env_id: str) -> None:
    env = FetchVectorEnv(env_id, 2, render_mode="rgb_array", width=96, height=96)
    single = plain(env_id, render_mode="rgb_array", width=96, height=96)
    env.reset(seed=[3, 4])
    actions = some_actions(10, 2)
    play(env, actions)
    pictures = env.render()
    assert pictures is not None
    for slot, picture in enumerate(pictures):
        single.reset(seed=3 + slot)
        for action in actions[:, slot]:
            single.step(action)
        expected = single.render()
        assert picture.shape == (96, 96, 3)
        assert picture.dtype == np.uint8
        np.testing.assert_array_equal(picture, expected)
    assert not np.array_equal(pictures[0], pictures[1])
    env.close()
    single.close()


@pytest.mark.usefixtures("off_screen")
def test_the_goal_is_in_the_picture() -> None:
    env = FetchVectorEnv("FetchReach-v4", 3, render_mode="rgb_array")
    env.reset(seed=0)
    states = env.get_state()[[0, 0, 0]]
    states[1, 1:4] += [0.0, 0.1, 0.1]  # the goal alone
    env.set_state(states)
    first, moved, same = env.render() or ()
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, moved)
    env.close()


@pytest.mark.usefixtures("off_screen")
@pytest.mark.parametrize("env_id", ["FetchReach-v4", "FetchPickAndPlace-v4"])
def test_drawing_disturbs_nothing(env_id: str) -> None:
    drawn = FetchVectorEnv(env_id, 2, horizon=4, render_mode="rgb_array", width=64, height=64)
    other = FetchVectorEnv(env_id, 2, horizon=4)
    drawn.reset(seed=6)
    other.reset(seed=6)
    for actions in some_actions(10, 2):
        drawn.render()
        assert_rows(play(drawn, actions[None]), play(other, actions[None]), ..., ...)
        np.testing.assert_array_equal(drawn.get_state(), other.get_state())
    drawn.close()


def test_without_a_render_mode_nothing_is_drawn() -> None:
    env = FetchVectorEnv("FetchReach-v4")
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None


# Wrong calls.


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"env_id": "FetchReach-v3"}, "FetchReach-v4, .*not 'FetchReach-v3'"),
        ({"env_id": "BitFlip-v0"}, "not 'BitFlip-v0'"),
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"num_envs": -2}, "num_envs must be at least 1, got -2"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"horizon": 0}, "horizon must be at least 1, got 0"),
        ({"render_mode": "human"}, "render_mode .*'human'"),
        ({"autoreset_mode": AutoresetMode.NEXT_STEP}, "SAME_STEP or DISABLED, got NEXT_STEP"),
    ],
)
def test_wrong_settings_are_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        FetchVectorEnv(**arguments)


def test_unknown_options_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"FetchReach-v4.*colour"):
        make_vector("FetchReach-v4", 2, colour="red")


@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 3), (3, 4), (2, 4, 1)])
def test_actions_of_the_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    env = FetchVectorEnv("FetchReach-v4", 2)
    env.reset(seed=0)
    before = env.get_state()
    with pytest.raises(InputError, match=r"actions must have shape \(2, 4\)"):
        env.step(np.zeros(shape, np.float32))
    np.testing.assert_array_equal(env.get_state(), before)


def test_there_is_nothing_to_see_before_the_first_reset() -> None:
    env = FetchVectorEnv("FetchReach-v4")
    with pytest.raises(ResetNeeded):
        env.observe()
    with pytest.raises(ResetNeeded):
        env.step(np.zeros((1, 4), np.float32))
