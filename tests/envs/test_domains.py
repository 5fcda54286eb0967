"""What all three domains have in common: the Gymnasium interface, seeding, autoreset, saved states."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import pchid.envs
from pchid.envs.domain import DomainEnv, DomainVectorEnv

CASES = [
    ("BitFlip-v0", {}),
    ("BitFlip-v0", {"n_bits": 4}),
    ("GridWorld-v0", {}),
    ("GridWorld-v0", {"size": 7, "n_obstacles": 5, "horizon": 9}),
    ("Hanoi-v0", {}),
    ("Hanoi-v0", {"n_discs": 2}),
]
cases = pytest.mark.parametrize(("name", "options"), CASES, ids=lambda value: str(value))


def make_vector(name: str, options: dict[str, Any], num_envs: int, **settings: Any) -> DomainVectorEnv:
    env = gym.make_vec(name, num_envs=num_envs, vectorization_mode="vector_entry_point", **settings, **options)
    assert isinstance(env, DomainVectorEnv)
    return env


def make_single(name: str, options: dict[str, Any], **settings: Any) -> DomainEnv:
    env = gym.make(name, **settings, **options).unwrapped
    assert isinstance(env, DomainEnv)
    return env


def random_actions(env: DomainVectorEnv, steps: int) -> np.ndarray:
    return np.random.default_rng(0).integers(env.single_action_space.n, size=(steps, env.num_envs))  # type: ignore[attr-defined]


def assert_same(left: Any, right: Any) -> None:
    """Compare nested dictionaries, arrays and scalars, types and all."""
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, np.ndarray) and left.dtype == object:
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    else:
        assert left == right


@cases
@pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array"])
def test_gymnasium_accepts_the_environment(name: str, options: dict[str, Any], render_mode: str | None) -> None:
    env = make_single(name, options, render_mode=render_mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # A spec would make the checker build every render mode again; they are parameters here.
        check_env(env, skip_render_check=render_mode is None)


@cases
def test_the_vector_environment_is_made_and_described(name: str, options: dict[str, Any]) -> None:
    env = make_vector(name, options, 3)
    observations, infos = env.reset(seed=1)
    assert env.observation_space.contains(observations)
    assert set(env.single_observation_space) == {"observation", "achieved_goal", "desired_goal"}  # type: ignore[call-overload]
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert not infos["is_success"].any()
    assert infos["_is_success"].all()
    assert env.spec is not None
    again = gym.make_vec(env.spec)
    assert again.num_envs == 3


def test_registering_twice_changes_nothing() -> None:
    before = gym.spec("Hanoi-v0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pchid.envs.register()
    assert gym.spec("Hanoi-v0") is before


@cases
def test_slots_equal_single_environments_through_autoresets(name: str, options: dict[str, Any]) -> None:
    ours = make_vector(name, options, 5)
    theirs = SyncVectorEnv([lambda: gym.make(name, **options)] * 5, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.single_observation_space == theirs.single_observation_space
    assert_same(ours.reset(seed=11)[0], theirs.reset(seed=11)[0])
    ended = 0
    for actions in random_actions(ours, 2 * ours.horizon + 10):
        left, right = ours.step(actions), theirs.step(actions)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
        ended += int((left[2] | left[3]).sum())
    assert ended >= 10
    assert ours.episode_numbers.sum() == ended


@cases
def test_an_episode_depends_on_seed_and_number_alone(name: str, options: dict[str, Any]) -> None:
    env = make_vector(name, options, 4)
    env.reset(seed=[5, 6, 7, 8])
    env.reset()
    env.reset()
    wanted = env.get_state()
    assert env.episode_numbers.tolist() == [2, 2, 2, 2]
    other = make_vector(name, options, 2)
    other.reset(seed=[8, 6], options={"episode": np.array([2, 2])})
    np.testing.assert_array_equal(other.get_state(), wanted[[3, 1]])
    other.reset(options={"episode": 0})
    other.reset(options={"episode": 2})
    np.testing.assert_array_equal(other.get_state(), wanted[[3, 1]])
    assert other.seeds.tolist() == [8, 6]


@cases
def test_unseeded_environments_differ(name: str, options: dict[str, Any]) -> None:
    states = []
    for _ in range(2):
        env = make_vector(name, options, 20)
        env.reset()
        states.append(env.get_state())
    assert not np.array_equal(*states)


@cases
def test_reset_mask_leaves_the_other_slots_alone(name: str, options: dict[str, Any]) -> None:
    env = make_vector(name, options, 4, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    env.step(np.zeros(4, dtype=np.int64))
    before = env.get_state()
    mask = np.array([True, False, True, False])
    observations, infos = env.reset(options={"reset_mask": mask})
    after = env.get_state()
    np.testing.assert_array_equal(before[~mask], after[~mask])
    assert (after[mask, 0] == 0).all()
    assert env.episode_numbers.tolist() == [1, 0, 1, 0]
    np.testing.assert_array_equal(infos["_is_success"], mask)
    assert_same(observations, env.observe())


@cases
def test_a_saved_state_replays_alike_in_any_slot_of_any_environment(name: str, options: dict[str, Any]) -> None:
    env = make_vector(name, options, 4, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=3)
    actions = random_actions(env, 12)
    for action in actions[:3]:
        env.step(action)
    saved = env.get_state()
    assert saved.dtype == np.int64
    expected = [env.step(action) for action in actions[3:]]
    order = np.array([2, 0, 3, 1])
    for probe in (env, make_vector(name, options, 6, autoreset_mode=AutoresetMode.DISABLED)):
        probe.set_state(saved[order], slots=[3, 1, 0, 2])
        place = np.argsort(order)  # where in `slots` each original slot went
        slots = np.array([3, 1, 0, 2])[place]
        np.testing.assert_array_equal(probe.get_state()[slots], saved)
        for action, (observations, *results, _) in zip(actions[3:], expected, strict=True):
            full = np.zeros(probe.num_envs, dtype=np.int64)
            full[slots] = action
            replayed, *others, _ = probe.step(full)
            for key in observations:
                np.testing.assert_array_equal(replayed[key][slots], observations[key])
            for one, other in zip(others, results, strict=True):
                np.testing.assert_array_equal(one[slots], other)


@cases
def test_nothing_returned_shares_memory_with_the_environment(name: str, options: dict[str, Any]) -> None:
    env = make_vector(name, options, 3)
    kept = [env.reset(seed=2)[0]]
    states = [env.get_state()]
    copies = [({key: value.copy() for key, value in kept[0].items()}, states[0].copy())]
    for actions in random_actions(env, 5):
        observations, rewards, terminated, truncated, infos = env.step(actions)
        kept.append(observations)
        states.append(env.get_state())
        copies.append(({key: value.copy() for key, value in observations.items()}, states[-1].copy()))
        for array in (rewards, terminated, truncated, infos["is_success"], infos["_is_success"]):
            array[:] = 1 - array if array.dtype != bool else ~array
    for observations, state, (observation_copies, state_copy) in zip(kept, states, copies, strict=True):
        assert_same(observations, observation_copies)
        np.testing.assert_array_equal(state, state_copy)
    # And the other way round: writing to what was returned does not reach the environment.
    before = env.get_state()
    for value in env.observe().values():
        value[:] = 0
    env.get_state()[:] = 0
    np.testing.assert_array_equal(env.get_state(), before)


@cases
def test_rewards_and_success_of_batches_and_single_pairs(name: str, options: dict[str, Any]) -> None:
    env = make_single(name, options)
    vector = env.vector_env
    observations, _ = make_vector(name, options, 6).reset(seed=0)
    achieved, desired = observations["achieved_goal"], observations["desired_goal"]
    mixed = np.concatenate([achieved[:3], desired[3:]])
    expected = [vector.step_reward] * 3 + [vector.success_reward] * 3
    assert env.compute_reward(mixed, desired, [{}] * 6).tolist() == expected
    assert env.is_success(mixed, desired).tolist() == [False] * 3 + [True] * 3
    assert env.compute_terminated(mixed, desired, {}).tolist() == [False] * 3 + [True] * 3
    assert env.compute_truncated(mixed, desired, {}).tolist() == [False] * 6
    assert env.compute_reward(mixed[0], desired[0], {}) == vector.step_reward
    assert isinstance(env.compute_reward(mixed[0], desired[0], {}), float)
    assert env.is_success(desired[0], desired[0]) is True
    assert env.compute_truncated(desired[0], desired[0], {}) is False
    assert vector.compute_reward(mixed, desired).dtype == np.float64


@cases
def test_the_horizon_truncates_and_disabled_autoreset_goes_on(name: str, options: dict[str, Any]) -> None:
    env = make_vector(name, options, 8, autoreset_mode="Disabled")
    observations, _ = env.reset(seed=4)
    for step, actions in enumerate(random_actions(env, env.horizon + 3), start=1):
        observations, rewards, terminated, truncated, infos = env.step(actions)
        reached = env.is_success(observations["achieved_goal"], observations["desired_goal"])
        np.testing.assert_array_equal(terminated, reached)
        np.testing.assert_array_equal(infos["is_success"], reached)
        np.testing.assert_array_equal(rewards, env.compute_reward(**goals(observations)))
        assert (truncated == (step >= env.horizon)).all()
        assert set(infos) == {"is_success", "_is_success"}
    assert env.episode_numbers.tolist() == [0] * 8


def goals(observations: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"achieved": observations["achieved_goal"], "desired": observations["desired_goal"]}


@cases
def test_following_the_distance_leads_to_the_goal_one_step_at_a_time(name: str, options: dict[str, Any]) -> None:
    env = make_single(name, options)
    n_actions = int(env.action_space.n)  # type: ignore[attr-defined]
    probe = make_vector(name, options, n_actions, autoreset_mode=AutoresetMode.DISABLED)
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        desired = observation["desired_goal"]
        away = float(env.distance(env.get_state()[None], desired[None])[0])
        assert away >= 1
        terminated = False
        while away:
            probe.set_state(np.repeat(env.get_state()[None], n_actions, axis=0))
            probe.step(np.arange(n_actions))
            ahead = probe.distance(probe.get_state(), np.repeat(desired[None], n_actions, axis=0))
            assert ahead.min() == away - 1
            assert (ahead <= away + 1).all()
            _, _, terminated, _, _ = env.step(ahead.argmin())
            away -= 1
        assert terminated


@cases
def test_the_final_observation_belongs_to_the_ended_episode(name: str, options: dict[str, Any]) -> None:
    env = make_vector(name, options, 6)
    twin = make_vector(name, options, 6, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=9)
    checked = 0
    for actions in random_actions(env, env.horizon + 5):
        twin.set_state(env.get_state())
        last = twin.step(actions)[0]
        _, _, terminated, truncated, infos = env.step(actions)
        done = terminated | truncated
        assert ("final_obs" in infos) == bool(done.any())
        for slot in np.flatnonzero(done):
            assert_same(infos["final_obs"][slot], {key: value[slot] for key, value in last.items()})
            assert infos["final_info"]["is_success"][slot] == terminated[slot]
            checked += 1
    assert checked


@cases
def test_pictures_and_text(name: str, options: dict[str, Any]) -> None:
    pictures = make_vector(name, options, 2, render_mode="rgb_array")
    pictures.reset(seed=0)
    before = pictures.render()
    pictures.set_state(pictures.get_state()[::-1])
    after = pictures.render()
    for frame in before:
        assert frame.dtype == np.uint8
        assert frame.ndim == 3
        assert frame.shape[2] == 3
        assert frame.shape[0] % 2 == 0 == frame.shape[1] % 2  # video encoders refuse odd sizes
    np.testing.assert_array_equal(before[0], after[1])
    assert not np.array_equal(before[0], before[1])
    text = make_single(name, options, render_mode="ansi")
    text.reset(seed=0)
    assert f"step 0 of {text.vector_env.horizon}" in text.render()


@cases
def test_wrong_calls_are_refused_in_one_sentence(name: str, options: dict[str, Any]) -> None:
    env = make_vector(name, options, 2)
    n_actions = int(env.single_action_space.n)  # type: ignore[attr-defined]
    size = env.get_state().shape[1]
    with pytest.raises(ResetNeeded, match="Call reset"):
        env.step([0, 0])
    observations, _ = env.reset(seed=0)
    with pytest.raises(ValueError, match=f"between 0 and {n_actions - 1}"):
        env.step([0, n_actions])
    with pytest.raises(ValueError, match=f"between 0 and {n_actions - 1}"):
        env.step([-1, 0])
    with pytest.raises(ValueError, match="must be 2 integers"):
        env.step([0, 0, 0])
    with pytest.raises(ValueError, match="must be 2 integers"):
        env.step([0.0, 1.0])
    with pytest.raises(ValueError, match=rf"shape \(2, {size}\)"):
        env.set_state(env.get_state()[:, 1:])
    with pytest.raises(ValueError, match=rf"shape \(1, {size}\)"):
        env.set_state(env.get_state(), slots=[1])
    with pytest.raises(ValueError, match="goals must have shape"):
        env.distance(env.get_state(), observations["desired_goal"][:1])
    with pytest.raises(ValueError, match="states must have shape"):
        env.distance(env.get_state()[0], observations["desired_goal"])
    with pytest.raises(ValueError, match="seed must be"):
        env.reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match="seed must be"):
        env.reset(seed=-1)
    with pytest.raises(ValueError, match=r"options\['episode'\]"):
        env.reset(options={"episode": [0.5, 1.0]})
    with pytest.raises(ValueError, match="reset_mask"):
        env.reset(options={"reset_mask": np.zeros(2, dtype=np.bool_)})
    with pytest.raises(ValueError, match="SAME_STEP or DISABLED, got NEXT_STEP"):
        make_vector(name, options, 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    with pytest.raises(ValueError, match="num_envs must be at least 1"):
        make_vector(name, options, 0)
    with pytest.raises(ValueError, match="render_mode must be"):
        make_vector(name, options, 2, render_mode="human")


@cases
def test_single_environment_saves_and_restores(name: str, options: dict[str, Any]) -> None:
    env = make_single(name, options)
    env.reset(seed=1)
    saved, observation = env.get_state(), env.observe()
    first = env.step(np.int64(1))
    env.set_state(saved)
    assert data_equivalence(env.observe(), observation)
    assert data_equivalence(env.step(1), first)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("BitFlip-v0", {"n_bits": 0}, "n_bits must be at least 1"),
        ("Hanoi-v0", {"n_discs": 0}, "n_discs must be at least 1"),
        ("GridWorld-v0", {"size": 3}, "size must lie between 4 and 64"),
        ("GridWorld-v0", {"size": 65}, "size must lie between 4 and 64"),
        ("GridWorld-v0", {"n_obstacles": -1}, "n_obstacles must not be negative"),
        ("GridWorld-v0", {"horizon": 0}, "horizon must be at least 1"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_vector(name, options, 1)
