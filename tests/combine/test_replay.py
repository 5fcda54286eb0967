"""The hindsight replay buffer: Stable-Baselines3's samples, with the ends that belong to the new goals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import DQN, SAC, HerReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from support import DOMAINS
from user_envs import Line

from pchid import GoalVecEnv, make_vector
from pchid.combine.replay import HindsightReplayBuffer
from pchid.envs.make import find_spec
from pchid.errors import InputError
from pchid.goals import check_sparse, reward_function, success_function

BATCH = 200
REAL = BATCH - int(0.8 * BATCH)  # four relabelled transitions for each real one; the real ones come first


class EndsAtTheGoal(Line):
    """A line that ends at the goal, but whose author does not say so."""

    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, reward == 0.0, truncated, info


class OneEndAtATime(EndsAtTheGoal):
    """A line that says so, but for a single pair of goals: of many pairs it answers for all at once."""

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> bool:
        return bool(np.abs(achieved - desired).max() < 0.5)


class EndsOnEvenSteps(EndsAtTheGoal):
    """A line that ends at the goal in even steps only, which the info tells."""

    def reset(self, **settings: Any) -> Any:
        self.count = 0
        return super().reset(**settings)

    def step(self, action: Any) -> Any:
        self.count += 1
        observation, reward, _, truncated, _ = super().step(action)
        info = {"count": self.count}
        return observation, reward, self.compute_terminated(self.position, self.goal, info), truncated, info

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> bool:
        return bool(np.abs(achieved - desired).max() < 0.5 and info["count"] % 2 == 0)


def singles(kind: Callable[[], gym.Env[Any, Any]], count: int = 2) -> DummyVecEnv:
    return DummyVecEnv([lambda: TimeLimit(kind(), 6)] * count)


def plain_fetch() -> DummyVecEnv:
    find_spec("FetchReach-v4")
    return DummyVecEnv([lambda: gym.make("FetchReach-v4", max_episode_steps=12)])


def fetch() -> GoalVecEnv:
    return GoalVecEnv.make("FetchReach-v4", 2, horizon=12)


def model(env: Any, kind: type[HerReplayBuffer], steps: int = 300, **options: Any) -> Any:
    """An algorithm whose buffer is full of random play, the same for both kinds of buffer."""
    algorithm = DQN if isinstance(env.action_space, gym.spaces.Discrete) else SAC
    settings: dict[str, Any] = {"replay_buffer_class": kind, "replay_buffer_kwargs": options, "buffer_size": 1000}
    made = algorithm("MultiInputPolicy", env, seed=3, learning_starts=10**6, **settings)
    return made.learn(steps)


def sample(made: Any, seed: int = 0, env: VecNormalize | None = None) -> Any:
    np.random.seed(seed)
    return made.replay_buffer.sample(BATCH, env)


def both(make_env: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    """Samples of Stable-Baselines3's buffer and of ours, after the same play and from the same seed."""
    theirs, their_next = sample(model(make_env(), HerReplayBuffer, **options)), np.random.random()
    ours, our_next = sample(model(make_env(), HindsightReplayBuffer, **options)), np.random.random()
    assert our_next == their_next  # nothing more was drawn
    return theirs, ours


def assert_same(theirs: Any, ours: Any, dones: bool = False) -> None:
    """The same samples, with all ends if `dones`, and with those of the real transitions otherwise."""
    for name in ("observations", "next_observations"):
        for key, value in getattr(theirs, name).items():
            np.testing.assert_array_equal(value, getattr(ours, name)[key])
    np.testing.assert_array_equal(theirs.actions, ours.actions)
    np.testing.assert_array_equal(theirs.rewards, ours.rewards)
    count = BATCH if dones else REAL
    np.testing.assert_array_equal(theirs.dones[:count], ours.dones[:count])
    assert ours.dones.shape == theirs.dones.shape
    assert ours.dones.dtype == theirs.dones.dtype


def reached(samples: Any) -> np.ndarray:
    """Whether each sampled transition reaches its goal, to the accuracy of half a step."""
    achieved, desired = (samples.next_observations[key].numpy() for key in ("achieved_goal", "desired_goal"))
    return (np.abs(achieved.astype(float) - desired).max(axis=1) < 0.5)[:, None]


@pytest.mark.parametrize(
    "make_env",
    [
        *(pytest.param(lambda n=n, o=o: GoalVecEnv.make(n, 3, **o), id=f"{n}, vector") for n, o in DOMAINS),
        *(
            pytest.param(lambda n=n, o=o: DummyVecEnv([lambda: gym.make(n, **o)]), id=f"{n}, single")
            for n, o in DOMAINS
        ),
        pytest.param(lambda: singles(OneEndAtATime), id="one pair at a time"),
    ],
)
def test_where_the_goal_ends_the_episode_relabelled_transitions_end_at_their_goal(make_env: Any) -> None:
    theirs, ours = both(make_env)
    assert_same(theirs, ours)
    virtual = slice(REAL, None)
    np.testing.assert_array_equal(ours.dones[virtual], reached(ours)[virtual])
    assert set(ours.dones[virtual].unique().tolist()) == {0.0, 1.0}
    assert not np.array_equal(ours.dones, theirs.dones)


@pytest.mark.parametrize("make_env", [fetch, plain_fetch])
def test_where_it_does_not_nothing_ends(make_env: Any) -> None:
    theirs, ours = both(make_env)
    assert_same(theirs, ours, dones=True)
    assert (ours.rewards[REAL:] == 0).any()
    assert (ours.dones == 0).all()


def test_an_environment_that_cannot_tell_keeps_its_ends() -> None:
    theirs, ours = both(lambda: singles(EndsAtTheGoal))
    assert_same(theirs, ours, dones=True)
    ended = ours.dones[REAL:].numpy()
    assert set(np.unique(ended)) == {0.0, 1.0}
    assert not np.array_equal(ended, reached(ours)[REAL:])


def test_stored_infos_reach_the_environment() -> None:
    made = model(singles(EndsOnEvenSteps), HindsightReplayBuffer, copy_info_dict=True)
    drawn = []
    buffer = made.replay_buffer
    get = buffer._get_virtual_samples
    buffer._get_virtual_samples = lambda batch, env, *rest: drawn.append((batch, env)) or get(batch, env, *rest)
    samples = sample(made)
    counts = np.array([info["count"] for info in buffer.infos[drawn[0]]])
    at_goal = reached(samples)[REAL:, 0]
    np.testing.assert_array_equal(samples.dones[REAL:, 0], at_goal & (counts % 2 == 0))
    assert (at_goal & (counts % 2 == 1)).any()


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_every_choice_of_goals_draws_the_same_numbers(strategy: str) -> None:
    theirs, ours = both(lambda: GoalVecEnv.make("BitFlip-v0", 3, n_bits=4), goal_selection_strategy=strategy)
    assert_same(theirs, ours)
    np.testing.assert_array_equal(ours.dones[REAL:], reached(ours)[REAL:])


def test_ends_are_those_of_raw_goals() -> None:
    made = model(VecNormalize(GoalVecEnv.make("GridWorld-v0", 3, **DOMAINS[1][1])), HindsightReplayBuffer)
    raw, seen = sample(made), sample(made, env=made.get_vec_normalize_env())
    assert not np.array_equal(raw.observations["desired_goal"], seen.observations["desired_goal"])
    np.testing.assert_array_equal(raw.dones, seen.dones)
    np.testing.assert_array_equal(raw.dones[REAL:], reached(raw)[REAL:])


def test_a_saved_buffer_samples_alike(tmp_path: Path) -> None:
    made = model(GoalVecEnv.make("BitFlip-v0", 2, n_bits=4), HindsightReplayBuffer)
    before = sample(made)
    made.save_replay_buffer(tmp_path / "buffer")
    made.load_replay_buffer(tmp_path / "buffer", truncate_last_traj=False)
    assert isinstance(made.replay_buffer, HindsightReplayBuffer)
    assert_same(before, sample(made), dones=True)


def test_algorithms_train_on_it() -> None:
    def weights(kind: type[HerReplayBuffer]) -> np.ndarray:
        env = GoalVecEnv.make("BitFlip-v0", 2, n_bits=4)
        settings: dict[str, Any] = {"buffer_size": 200, "policy_kwargs": {"net_arch": [16]}}
        made = DQN("MultiInputPolicy", env, seed=0, replay_buffer_class=kind, learning_starts=50, **settings)
        made.learn(150)
        return np.concatenate([value.detach().numpy().ravel() for value in made.policy.parameters()])

    ours = weights(HindsightReplayBuffer)
    np.testing.assert_array_equal(ours, weights(HindsightReplayBuffer))
    assert np.isfinite(ours).all()
    assert not np.array_equal(ours, weights(HerReplayBuffer))


# What it asks of the environments.


@pytest.mark.parametrize(("name", "options"), DOMAINS)
def test_the_domains_end_at_the_goal(name: str, options: dict[str, Any]) -> None:
    env = GoalVecEnv.make(name, 3, **options)
    env.seed(0)
    starts = env.reset()
    achieved, desired = starts["achieved_goal"], starts["desired_goal"].copy()
    desired[1] = achieved[1]
    for form in (env, DummyVecEnv([lambda: gym.make(name, **options)])):
        (terminated,) = form.env_method("compute_terminated", achieved, desired, {}, indices=[0])
        assert terminated.tolist() == [False, True, False]
        (truncated,) = form.env_method("compute_truncated", achieved, desired, {}, indices=[0])
        assert truncated.tolist() == [False] * 3
        assert form.env_method("compute_terminated", achieved[1], desired[1], {}, indices=[0]) == [True]
        assert form.env_method("compute_truncated", achieved[1], desired[1], {}, indices=[0]) == [False]


def test_fetch_never_ends() -> None:
    env = fetch()
    goals = np.zeros((4, 3))
    for name in ("compute_terminated", "compute_truncated"):
        assert env.env_method(name, goals, goals, {}, indices=[0])[0].tolist() == [False] * 4
        assert env.env_method(name, goals[0], goals[0], {}, indices=[0]) == [False]


def test_the_reward_of_success_can_be_raised() -> None:
    plain, raised = (make_vector("FetchReach-v4", 4, horizon=20, **o) for o in ({}, {"success_reward": 10.0}))
    actions = np.random.default_rng(0).uniform(-1, 1, (40, 4, 4))
    plain.reset(seed=3)
    raised.reset(seed=3)
    found = []
    for action in actions:
        action[:, :3] = (plain.observe()["desired_goal"] - plain.observe()["achieved_goal"]) * 5
        rewards, expected = raised.step(action)[1], plain.step(action)[1]
        np.testing.assert_array_equal(rewards, np.where(expected == 0, 10.0, expected))
        found += rewards.tolist()
    assert set(found) == {-1.0, 10.0}
    far, near = np.zeros(3), np.full(3, 1.0)
    assert raised.compute_reward(near, near) == 10.0
    assert raised.compute_reward(near, far) == -1.0
    assert plain.compute_reward(near, near) == 0.0


def test_success_and_sparsity_are_what_they_were() -> None:
    env = make_vector("FetchReach-v4", 1, success_reward=10.0)
    goals = np.random.default_rng(0).uniform(0, 0.1, (12, 3))
    rows, columns = np.indices((12, 12)).reshape(2, -1)
    success = success_function(env)(goals[rows], goals[columns])
    near = np.linalg.norm(goals[rows] - goals[columns], axis=1) < 0.05
    assert 12 < near.sum() < 144
    np.testing.assert_array_equal(success, near)
    np.testing.assert_array_equal(reward_function(env)(goals[rows], goals[columns]), np.where(near, 10.0, -1.0))
    check_sparse(env, goals, goals)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("FetchReachDense-v4", {"success_reward": 10.0}, "sparse"),
        ("FetchReach-v4", {"success_reward": 10.0, "reward_type": "dense"}, "sparse"),
        ("FetchReach-v4", {"success_reward": -1.0}, "above the -1"),
        ("FetchReach-v4", {"success_reward": float("nan")}, "finite"),
        ("FetchReach-v4", {"success_reward": float("inf")}, "finite"),
    ],
)
def test_a_reward_that_makes_no_sense_is_refused(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make_vector(name, **options)


def pushes(**settings: Any) -> HindsightReplayBuffer:
    """Random pushes of several episodes, in a buffer."""
    env = GoalVecEnv.make("FetchPush-v4", 4, horizon=8)
    buffer = HindsightReplayBuffer(400, env.observation_space, env.action_space, env, "cpu", 4, **settings)
    rng = np.random.default_rng(0)
    env.seed(0)
    seen = env.reset()
    for _ in range(24):
        actions = rng.uniform(-1, 1, (4, 4)).astype(np.float32)
        after, rewards, dones, infos = env.step(actions)
        ends = {key: values.copy() for key, values in after.items()}
        for slot in np.flatnonzero(dones):
            for key in ends:
                ends[key][slot] = infos[slot]["terminal_observation"][key]
        buffer.add(seen, ends, actions, rewards, dones, infos)
        seen = after
    return buffer


def test_symmetries_show_the_same_transitions_in_other_scenes() -> None:
    plain, turned = pushes(), pushes(symmetries=True)
    np.random.seed(3)
    one = plain.sample(BATCH)
    np.random.seed(3)
    two = turned.sample(BATCH)
    assert np.array_equal(one.rewards, two.rewards) and np.array_equal(one.dones, two.dones)
    mirrored = ~np.isclose(one.actions[:, 1], two.actions[:, 1])
    assert 0.3 < mirrored.mean() < 0.7
    assert np.allclose(two.actions[:, 1], np.where(mirrored, -one.actions[:, 1], one.actions[:, 1]), atol=1e-6)
    assert np.allclose(np.delete(two.actions, 1, 1), np.delete(one.actions, 1, 1), atol=1e-6)
    sides = np.where(mirrored, -1.0, 1.0)[:, None] * [[0.0, 1.0, 0.0]] + [[1.0, 0.0, 1.0]]
    for samples, others in ((one.observations, two.observations), (one.next_observations, two.next_observations)):
        way, other_way = (s["desired_goal"] - s["achieved_goal"] for s in (samples, others))
        assert np.allclose(other_way, way * sides, atol=1e-6)
        assert not np.allclose(others["achieved_goal"], samples["achieved_goal"], atol=1e-3)
    # A transition is shown in one scene, not in two: what moved, moved alike.
    moves, other_moves = (
        s.next_observations["observation"][:, :3] - s.observations["observation"][:, :3] for s in (one, two)
    )
    assert np.allclose(other_moves, moves * sides, atol=1e-6)


def test_symmetries_are_the_same_again_with_the_same_seed() -> None:
    buffer = pushes(symmetries=True)
    samples = []
    for _ in range(2):
        np.random.seed(5)
        samples.append(buffer.sample(20).observations["observation"])
    assert np.array_equal(*samples)


def test_symmetries_where_there_are_none_or_inputs_are_normalised_are_refused() -> None:
    env = GoalVecEnv.make("FetchReach-v4", 2)
    with pytest.raises(InputError, match="symmetries needs an environment"):
        HindsightReplayBuffer(100, env.observation_space, env.action_space, env, symmetries=True)
    normalised = VecNormalize(GoalVecEnv.make("FetchPush-v4", 2))
    with pytest.raises(InputError, match="VecNormalize"):
        HindsightReplayBuffer(100, env.observation_space, env.action_space, normalised, symmetries=True)
