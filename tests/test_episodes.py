"""The recorder: what was executed, padded into arrays, against plain lists."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from user_envs import LoggedLine, Reused

from pchid.algorithms import PCHID
from pchid.envs.sb3 import GoalVecEnv
from pchid.episodes import Episodes, Recorder
from pchid.errors import RunError

GOAL = spaces.Box(-np.inf, np.inf, (2,), np.float64)
SPACE = spaces.Dict(observation=spaces.Box(-np.inf, np.inf, (2, 3), np.float32), achieved_goal=GOAL, desired_goal=GOAL)


def random_observations(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    return {
        "observation": rng.random((count, 2, 3)).astype(np.float32),
        "achieved_goal": rng.random((count, 2)),
        "desired_goal": rng.random((count, 2)),
    }


class NaiveRecorder:
    """One list for each slot."""

    def __init__(self, first: dict[str, np.ndarray]) -> None:
        self.slots = [self.fresh(first, slot) for slot in range(len(first["observation"]))]

    @staticmethod
    def fresh(observations: dict[str, np.ndarray], slot: int) -> dict[str, Any]:
        seen = {key: values[slot].copy() for key, values in observations.items()}
        return {"seen": [seen], "actions": [], "states": [], "reward": 0.0}

    def record(
        self,
        actions: np.ndarray,
        observations: dict[str, np.ndarray],
        rewards: np.ndarray,
        dones: np.ndarray,
        infos: list[dict[str, Any]],
        states: np.ndarray | None,
    ) -> list[dict[str, Any]]:
        ended = []
        for slot, episode in enumerate(self.slots):
            episode["actions"].append(actions[slot].copy())
            episode["states"].append(None if states is None else states[slot].copy())
            episode["reward"] += rewards[slot]
            shown = (
                infos[slot]["terminal_observation"] if dones[slot] else {k: v[slot] for k, v in observations.items()}
            )
            episode["seen"].append({key: value.copy() for key, value in shown.items()})
            if dones[slot]:
                ended.append({**episode, "success": infos[slot]["is_success"]})
                self.slots[slot] = self.fresh(observations, slot)
        return ended


def assert_equal(episodes: Episodes | None, expected: list[dict[str, Any]], with_states: bool) -> None:
    assert (0 if episodes is None else len(episodes)) == len(expected)
    if episodes is None:
        return
    assert episodes.action.shape[1] + 1 == episodes.observation.shape[1] == episodes.achieved_goal.shape[1]
    for index, episode in enumerate(expected):
        length = len(episode["actions"])
        assert episodes.length[index] == length
        for key in ("observation", "achieved_goal"):
            wanted = np.stack([seen[key] for seen in episode["seen"]])
            np.testing.assert_array_equal(getattr(episodes, key)[index, : length + 1], wanted)
        np.testing.assert_array_equal(episodes.desired_goal[index], episode["seen"][0]["desired_goal"])
        np.testing.assert_array_equal(episodes.action[index, :length], np.stack(episode["actions"]))
        if with_states:
            assert episodes.state is not None
            np.testing.assert_array_equal(episodes.state[index, :length], np.stack(episode["states"]))
        else:
            assert episodes.state is None
        assert episodes.total_reward[index] == pytest.approx(episode["reward"])
        assert episodes.final_success[index] == episode["success"]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    slots=st.integers(1, 4),
    steps=st.integers(1, 90),
    end_chance=st.sampled_from([0.0, 0.02, 0.2, 0.7]),
    with_states=st.booleans(),
    discrete=st.booleans(),
    reloaded_at=st.integers(0, 90),
)
def test_episodes_equal_those_of_a_naive_recorder(
    seed: int, slots: int, steps: int, end_chance: float, with_states: bool, discrete: bool, reloaded_at: int
) -> None:
    rng = np.random.default_rng(seed)
    action_space: spaces.Space[Any] = spaces.Discrete(5) if discrete else spaces.Box(-1, 1, (3,), np.float32)
    recorder = Recorder(SPACE, action_space, slots)
    first = random_observations(rng, slots)
    recorder.start(first)
    naive = NaiveRecorder(first)
    for step in range(steps):
        if step == reloaded_at:  # as a checkpoint would: into a recorder that knows nothing
            saved = recorder.state()
            recorder = Recorder(SPACE, action_space, slots)
            recorder.load_state(saved)
        actions = rng.integers(5, size=slots) if discrete else rng.random((slots, 3)).astype(np.float32)
        observations, rewards, dones = (
            random_observations(rng, slots),
            rng.random(slots),
            rng.random(slots) < end_chance,
        )
        last = random_observations(rng, slots)
        infos = [
            {"is_success": bool(rng.random() < 0.5), "terminal_observation": {key: last[key][slot] for key in last}}
            if dones[slot]
            else {"is_success": False}
            for slot in range(slots)
        ]
        states = rng.random((slots, 4)) if with_states else None
        given_arrays = (actions, observations, rewards, dones, infos, states)
        expected = naive.record(*given_arrays)
        episodes = recorder.record(*given_arrays)
        # Whatever the environment does to its arrays afterwards, what was recorded stays.
        for array in (actions, rewards, *observations.values(), *last.values(), *([] if states is None else [states])):
            array[...] = 99
        assert_equal(episodes, expected, with_states)
    now = recorder.last_observations()
    for slot, episode in enumerate(naive.slots):
        for key in now:
            np.testing.assert_array_equal(now[key][slot], episode["seen"][-1][key])


def test_handed_out_episodes_share_no_memory_with_what_comes_next() -> None:
    rng = np.random.default_rng(0)
    recorder = Recorder(SPACE, spaces.Discrete(3), 1)
    recorder.start(random_observations(rng, 1))

    def one_step() -> Episodes:
        last = {key: values[0] for key, values in random_observations(rng, 1).items()}
        infos = [{"is_success": True, "terminal_observation": last}]
        episodes = recorder.record(
            rng.integers(3, size=1),
            random_observations(rng, 1),
            rng.random(1),
            np.ones(1, bool),
            infos,
            rng.random((1, 2)),
        )
        assert episodes is not None
        return episodes

    episodes = one_step()
    arrays = {name: value.copy() for name, value in vars(episodes).items()}
    for _ in range(3):
        one_step()
    for name, value in arrays.items():
        np.testing.assert_array_equal(getattr(episodes, name), value)


def test_first_cuts_every_array() -> None:
    rng = np.random.default_rng(0)
    recorder = Recorder(SPACE, spaces.Discrete(3), 4)
    recorder.start(random_observations(rng, 4))
    last = random_observations(rng, 4)
    infos = [{"terminal_observation": {key: last[key][slot] for key in last}} for slot in range(4)]
    episodes = recorder.record(
        rng.integers(3, size=4), random_observations(rng, 4), rng.random(4), np.ones(4, bool), infos
    )
    assert episodes is not None
    assert len(episodes) == 4
    cut = episodes.first(3)
    assert {len(value) for value in vars(cut).values() if value is not None} == {3}
    np.testing.assert_array_equal(cut.action, episodes.action[:3])
    assert len(episodes.first(10)) == 4


@pytest.mark.parametrize("key", ["observation", "achieved_goal", "desired_goal"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["start", "step", "end"])
def test_what_is_not_a_number_is_named(key: str, value: float, where: str) -> None:
    rng = np.random.default_rng(0)
    recorder = Recorder(SPACE, spaces.Discrete(3), 2)
    bad = random_observations(rng, 2)
    bad[key][1].flat[0] = value
    if where == "start":
        with pytest.raises(RunError, match=f"'{key}' at environment step 0"):
            recorder.start(bad)
        return
    recorder.start(random_observations(rng, 2))
    shown = bad if where == "step" else random_observations(rng, 2)
    infos = [{"terminal_observation": {name: bad[name][slot] for name in bad}} for slot in range(2)]
    with pytest.raises(RunError, match=f"'{key}' at environment step 2"):
        recorder.record(np.zeros(2, int), shown, np.zeros(2), np.full(2, where == "end"), infos)


def test_a_reward_that_is_not_a_number_is_named() -> None:
    rng = np.random.default_rng(0)
    recorder = Recorder(SPACE, spaces.Discrete(3), 2)
    recorder.start(random_observations(rng, 2))
    with pytest.raises(RunError, match="the reward at environment step 2"):
        recorder.record(
            np.zeros(2, int), random_observations(rng, 2), np.array([0.0, np.nan]), np.zeros(2, bool), [{}, {}]
        )


def test_an_episode_that_never_ends_is_warned_of() -> None:
    rng = np.random.default_rng(0)
    recorder = Recorder(SPACE, spaces.Discrete(3), 1)
    observations = random_observations(rng, 1)
    recorder.start(observations)

    def play(steps: int) -> None:
        for _ in range(steps):
            recorder.record(np.zeros(1, np.int64), observations, np.zeros(1), np.zeros(1, bool), [{}], None)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(8000)
    with pytest.warns(UserWarning, match="time limit"):
        play(200)


@pytest.mark.parametrize("kind", [LoggedLine, Reused])
def test_labels_are_the_executed_actions_and_goals_what_they_achieved(kind: type[LoggedLine]) -> None:
    env = gym.wrappers.TimeLimit(kind(), 7)
    agent = PCHID("GoalPolicy", env, K_max=1, updates_per_episode=2, policy_kwargs={"hidden_sizes": [8]}, seed=3)
    agent.learn(7 * 6)
    log = env.unwrapped.log  # type: ignore[attr-defined]
    assert len(log) == 42
    pairs = agent.learner.buffers.buffers[1].everything()
    assert len(pairs) == 42
    for index, (before, action, after) in enumerate(log):
        np.testing.assert_array_equal(pairs.observation[index], before)
        np.testing.assert_array_equal(pairs.action[index], action)
        np.testing.assert_array_equal(pairs.goal[index], after)


def test_training_data_never_aliases_the_environment() -> None:
    env = GoalVecEnv.make("BitFlip-v0", 3, n_bits=4)
    agent = PCHID("GoalPolicy", env, K_max=1, updates_per_episode=1, policy_kwargs={"hidden_sizes": [8]}, seed=0)
    agent.learn(60)
    pairs = agent.learner.recent[1]
    before = {name: value.copy() for name, value in vars(pairs.everything()).items()}
    for _ in range(10):
        env.step(np.zeros(3, np.int64))
    env.reset()
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(pairs.everything(), name), value)
    assert not any(np.shares_memory(value, env.vector._states) for value in vars(pairs.everything()).values())
