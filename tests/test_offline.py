"""Learning from logged episodes: what is taken from a log, that it teaches, and how training goes on from there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from support import DOMAINS, random_episodes
from test_examples import load as load_example

from pchid import PCHID, PEHID, GoalVecEnv, evaluate, make_probe
from pchid.curriculum import Convergence
from pchid.distillation import RandomNetworkDistillation
from pchid.episodes import Episodes, Recorder
from pchid.errors import InputError
from pchid.goals import KEYS
from pchid.hindsight import hindsight_pairs
from pchid.logged import LoggedEpisodes, with_spaces
from pchid.offline import (
    episodes_from_arrays,
    episodes_from_minari,
    join_episodes,
    load_episodes,
    save_episodes,
)
from pchid.solvability import AcceptAll, Interaction

SMALL: dict[str, Any] = {"batch_size": 16, "updates_per_episode": 2, "policy_kwargs": {"hidden_sizes": [8]}, "seed": 0}
BITS = {"n_bits": 5}


def bits_log(rounds: int = 6, seed: int = 0) -> LoggedEpisodes:
    """Random episodes of BitFlip, of different lengths."""
    env = GoalVecEnv.make("BitFlip-v0", 4, **BITS)
    episodes = join_episodes(random_episodes(env, rounds, seed))
    return with_spaces(episodes, env.observation_space, env.action_space)  # type: ignore[arg-type]


def reach_log(count: int, seed: int = 0) -> LoggedEpisodes:
    """Random episodes of FetchReach."""
    env = GoalVecEnv.make("FetchReach-v4", 4)
    recorder = Recorder(env.observation_space, env.action_space, 4)  # type: ignore[arg-type]
    env.seed(seed)
    recorder.start(env.reset())
    rng, found = np.random.default_rng(seed), []
    while sum(map(len, found)) < count:
        actions = rng.uniform(-1, 1, (4, 4)).astype(np.float32)
        episodes = recorder.record(actions, *env.step(actions))  # type: ignore[arg-type]
        found += [] if episodes is None else [episodes]
    return with_spaces(join_episodes(found).first(count), env.observation_space, env.action_space)  # type: ignore[arg-type]


def lists(episodes: Episodes) -> tuple[dict[str, list[np.ndarray]], list[np.ndarray]]:
    """The same as one array for each episode."""
    ends = episodes.length
    seen = {key: [values[: n + 1] for values, n in zip(getattr(episodes, key), ends, strict=True)] for key in KEYS[:2]}
    goals = [np.repeat(goal[None], n + 1, axis=0) for goal, n in zip(episodes.desired_goal, ends, strict=True)]
    return {**seen, "desired_goal": goals}, [a[:n] for a, n in zip(episodes.action, ends, strict=True)]


def assert_same(one: Episodes, other: Episodes) -> None:
    for name in (*KEYS, "action", "length"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


# What is taken from arrays, files and datasets.


def test_lists_and_padded_arrays_are_the_same_episodes() -> None:
    log = bits_log()
    assert len(set(log.length.tolist())) > 1  # otherwise padding would not be seen
    observations, actions = lists(log)
    listed = episodes_from_arrays(observations, actions, observation_space=log.observation_space)
    assert_same(listed, log)
    padded = {key: getattr(log, key).copy() for key in KEYS}
    for values, action, length in zip(padded["observation"], log.action, log.length, strict=True):
        values[length + 1 :], action[length:] = 7, 99  # what lies beyond the end is nobody's business
    again = episodes_from_arrays(padded, log.action, log.length, action_space=log.action_space)
    for name in KEYS:
        inside = np.arange(getattr(listed, name).shape[1]) <= log.length[:, None] if name != "desired_goal" else ...
        np.testing.assert_array_equal(getattr(again, name)[inside], getattr(listed, name)[inside])


def test_spaces_are_inferred_where_data_can_tell() -> None:
    observations, actions = lists(bits_log())
    log = episodes_from_arrays({key: [v.astype(bool) for v in values] for key, values in observations.items()}, actions)
    assert log.action_space == spaces.Discrete(5)
    assert log.observation_space["observation"] == spaces.Box(-128, 127, (5,), np.int8)
    whole = episodes_from_arrays({k: [v.astype(np.float32) for v in vs] for k, vs in observations.items()}, actions)
    assert whole.observation_space["desired_goal"] == spaces.Box(-np.inf, np.inf, (5,), np.float32)


def test_logged_arrays_are_copies() -> None:
    observations, actions = lists(bits_log())
    log = episodes_from_arrays(observations, actions)
    before = log.observation.copy()
    observations["observation"][0][:] = 9
    np.testing.assert_array_equal(log.observation, before)


def broken(change: str) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """A log with one thing wrong."""
    log = reach_like()
    observations, actions = lists(log)
    more: dict[str, Any] = {"action_space": log.action_space}
    if change == "key":
        del observations["achieved_goal"]
    elif change == "empty":
        observations, actions = {key: [] for key in KEYS}, []
    elif change == "no steps":
        observations["observation"][2], actions[2] = observations["observation"][2][:1], actions[2][:0]
    elif change == "short":
        observations["observation"][1] = observations["observation"][1][:-1]
    elif change == "long":
        observations["achieved_goal"][1] = np.concatenate([observations["achieved_goal"][1]] * 2)
    elif change == "count":
        observations["desired_goal"] = observations["desired_goal"][:-1]
    elif change == "nan":
        observations["observation"][2][3, 1] = np.nan
    elif change == "action nan":
        actions[1][2, 0] = np.inf
    elif change == "outside":
        actions[1][2, 0] = 1.5
    elif change == "unknown bounds":
        more = {}
    elif change == "action shape":
        more = {"action_space": spaces.Box(-1, 1, (3,))}
    elif change == "goal shape":
        observations["desired_goal"] = [goal[:, :1] for goal in observations["desired_goal"]]
    elif change == "shapes":
        observations["observation"][1] = observations["observation"][1][:, :1]
    elif change == "text":
        observations["observation"][0] = observations["observation"][0].astype(str)
    elif change == "space":
        more["observation_space"] = spaces.Dict({key: spaces.MultiBinary(2) for key in KEYS})
    elif change == "lengths":
        more["lengths"] = [3, 99, 4]
    elif change == "lengths count":
        more["lengths"] = [3, 3]
    elif change == "lengths type":
        more["lengths"] = [3.0, 3.0, 3.0]
    elif change == "unbounded":
        more = {"action_space": spaces.Box(-np.inf, np.inf, (2,))}
    return observations, actions, more


def reach_like() -> LoggedEpisodes:
    """Three short episodes of two numbers, with continuous actions."""
    rng = np.random.default_rng(0)
    steps = [5, 4, 6]
    places = [rng.normal(size=(n + 1, 2)) for n in steps]
    return episodes_from_arrays(
        {"observation": places, "achieved_goal": places, "desired_goal": [place[-1] for place in places]},
        [rng.uniform(-1, 1, (n, 2)) for n in steps],
        action_space=spaces.Box(-1, 1, (2,)),
    )


@pytest.mark.parametrize(
    ("change", "sentences"),
    [
        ("key", ["lack achieved_goal", "desired_goal"]),
        ("empty", ["no episodes"]),
        ("no steps", ["episode 2", "no actions"]),
        ("short", ["episode 1", "'observation'", "5 times", "there 4"]),
        ("long", ["episode 1", "'achieved_goal'", "5 times", "there 10"]),
        ("count", ["3 episodes", "'desired_goal'", "2"]),
        ("nan", ["episode 2", "NaN", "'observation'", "step 3"]),
        ("action nan", ["episode 1", "NaN", "the action", "step 2"]),
        ("outside", ["episode 1", "step 2", "1.5", "Box"]),
        ("unknown bounds", ["continuous", "action_space"]),
        ("action shape", ["actions", "(2,)", "(3,)"]),
        ("goal shape", ["differ in shape"]),
        ("shapes", ["'observation'", "episode 1"]),
        ("text", ["'observation'", "episode 0", "numbers"]),
        ("space", ["'observation'", "cannot hold"]),
        ("lengths", ["episode 1", "99"]),
        ("lengths count", ["2 episodes", "the action", "3"]),
        ("lengths type", ["lengths", "whole"]),
        ("unbounded", ["unbounded"]),
    ],
)
def test_what_is_wrong_with_a_log_is_said_in_one_sentence(change: str, sentences: list[str]) -> None:
    observations, actions, more = broken(change)
    with pytest.raises(InputError) as refused:
        episodes_from_arrays(observations, actions, **more)
    assert "\n" not in str(refused.value)
    for sentence in sentences:
        assert sentence in str(refused.value)


def test_discrete_actions_are_checked_too() -> None:
    observations, actions = lists(bits_log())
    with pytest.raises(InputError, match=r"episode 0 takes the action . at step ., outside Discrete\(1\)"):
        episodes_from_arrays(observations, actions, action_space=spaces.Discrete(1))
    with pytest.raises(InputError, match="whole numbers"):
        episodes_from_arrays(observations, [a + 0.5 for a in actions], action_space=spaces.Discrete(5))


@pytest.mark.parametrize("log", [bits_log(), reach_like()], ids=["discrete", "continuous"])
def test_a_file_gives_back_the_episodes_and_the_action_space(tmp_path: Path, log: LoggedEpisodes) -> None:
    path = save_episodes(tmp_path / "folder" / "log", log)
    assert path == tmp_path / "folder" / "log.npz"
    again = load_episodes(path)
    assert_same(again, log)
    assert again.action_space == log.action_space
    assert_same(load_episodes(path, log.action_space, log.observation_space), log)


def test_batches_of_a_recorder_are_joined(tmp_path: Path) -> None:
    env = GoalVecEnv.make("BitFlip-v0", 3, **BITS)
    parts = random_episodes(env, 5)
    assert len({part.action.shape[1] for part in parts}) > 1
    again = load_episodes(save_episodes(tmp_path / "log.npz", parts, env.action_space))
    assert len(again) == sum(map(len, parts))
    first = 0
    for part in parts:
        horizon = part.action.shape[1]
        np.testing.assert_array_equal(again.action[first : first + len(part), :horizon], part.action)
        np.testing.assert_array_equal(again.observation[first : first + len(part), : horizon + 1], part.observation)
        first += len(part)


def test_files_that_are_no_logs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        load_episodes(tmp_path / "nowhere.npz")
    path = save_episodes(tmp_path / "log.npz", bits_log())
    (tmp_path / "cut.npz").write_bytes(path.read_bytes()[:200])
    (tmp_path / "text.npz").write_text("episodes")
    np.savez(tmp_path / "other.npz", observation=np.zeros((2, 3, 1)), action=np.zeros((2, 2)))
    (tmp_path / "one.npy").write_bytes(b"")
    np.save(tmp_path / "one.npy", np.zeros(3))
    for name, sentence in (("cut", "damaged"), ("text", "damaged"), ("other", "lacks achieved_goal, desired_goal")):
        with pytest.raises(InputError, match=sentence):
            load_episodes(tmp_path / f"{name}.npz")
    with pytest.raises(InputError, match="damaged"):
        load_episodes(tmp_path / "one.npy")


def test_a_file_cannot_run_code(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "harmed",)

    content = {key: np.array([Harmful()], object) for key in (*KEYS, "action", "length")}
    np.savez(tmp_path / "log.npz", allow_pickle=True, **content)
    with pytest.raises(InputError, match="damaged"):
        load_episodes(tmp_path / "log.npz")
    assert not (tmp_path / "harmed").exists()


# How a log is learned from.


def rows(pairs: Any, k: int) -> list[tuple[float, ...]]:
    """The pairs of k as sorted rows of numbers."""
    of_k = pairs.select(pairs.k == k)
    if len(of_k) == 0:
        return []
    parts = [np.asarray(part, np.float64).reshape(len(of_k), -1) for part in (of_k.observation, of_k.goal, of_k.action)]
    return sorted(map(tuple, np.concatenate(parts, axis=1)))


@pytest.mark.parametrize("kind", [PCHID, PEHID])
@pytest.mark.parametrize("episodes_per_round", [1, 5])
def test_every_pair_of_every_k_is_stored_once(kind: type[PCHID], episodes_per_round: int) -> None:
    log = bits_log()
    agent = kind.from_episodes(log, K_max=3, test="none", **SMALL)
    agent.fit(log, 8, episodes_per_round)
    assert agent.K == 3
    detours = None if kind is PEHID else agent.is_success
    expected = hindsight_pairs(log, [1, 2, 3], is_success=detours)
    stored = [buffer.everything() for buffer in agent.learner.buffers.buffers.values()]
    for k in (1, 2, 3):
        assert sorted(row for pairs in stored for row in rows(pairs, k)) == rows(expected, k) != []
    added, count = agent.learner.buffers.added, float(agent.policy.network.observation_normaliser.count)
    assert added == count == len(expected)
    agent.fit(log, 2, episodes_per_round)
    assert agent.learner.buffers.added == added


def test_k_grows_from_pass_to_pass_even_where_nothing_converges() -> None:
    log, never = bits_log(), Convergence(pairs=10_000, tolerance=0.0, patience=10_000)
    agent = PCHID.from_episodes(log, K_max=4, test="none", convergence=never, **SMALL)
    grown = [agent.fit(log, 1).K for _ in range(8)]
    assert grown[0] == 1
    assert grown[-1] == 4
    assert grown == sorted(grown)
    assert agent.learner.curriculum.convergence is never  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [PCHID, PEHID])
def test_a_log_that_is_longer_than_a_buffer_slides_through_it(kind: type[PCHID]) -> None:
    log = bits_log(20)
    size = 30
    assert log.length.sum() > 2 * size
    agent = kind.from_episodes(log, K_max=1, buffer_size=size, **SMALL)
    whole = rows(hindsight_pairs(log, [1]), 1)
    for _ in range(6):
        agent.fit(log, 1)
        (buffer,) = agent.learner.buffers.buffers.values()
        stored = rows(buffer.everything(), 1)
        assert len(stored) == size
        for row in set(stored):  # never more often than the log has it
            assert stored.count(row) <= whole.count(row)
    assert buffer.added > 4 * len(whole)  # what was pushed out has come in again


def test_test_compares_with_shorter_pairs_of_now() -> None:
    """RND's errors fall as it learns: a chunk that comes again for its longer pairs must bring the shorter ones too."""
    log = bits_log()
    agent = PCHID.from_episodes(log, K_max=2, **SMALL)
    asked: list[list[int]] = []
    test = agent.learner.test

    class Spy:
        needs_states, steps = False, 0

        def __call__(self, pairs: Any, *rest: Any) -> Any:
            asked.append(sorted(set(pairs.k.tolist())))
            return test(pairs, *rest)

        def learn(self, pairs: Any) -> None:
            test.learn(pairs)

    agent.learner.test = Spy()  # type: ignore[assignment]
    agent.fit(log, 5)
    assert isinstance(test, RandomNetworkDistillation)
    assert agent.K == 2
    assert [1, 2] in asked
    assert [2] not in asked


def test_nothing_of_a_log_counts_as_an_environment_step() -> None:
    log = bits_log()
    agent = PCHID.from_episodes(log, K_max=2, **SMALL).fit(log, 3)
    assert (agent.num_timesteps, agent.episodes, agent.learner.seen_steps, agent.test_steps) == (0, 0, 0, 0)
    assert agent._n_updates == 2 * len(log)
    assert agent.fit(log, 7)._n_updates == 4 * len(log)


@pytest.mark.parametrize("kind", [PCHID, PEHID])
def test_same_seed_same_policy(kind: type[PCHID]) -> None:
    def parameters(seed: int, passes: int = 4, noise: int = 0) -> torch.Tensor:
        log = bits_log(3)
        agent = kind.from_episodes(log, K_max=3, **{**SMALL, "seed": seed})
        torch.manual_seed(noise)  # global streams do not matter
        agent.fit(log, passes)
        return torch.cat([value.flatten() for value in agent.policy.state_dict().values()])

    one = parameters(0)
    assert torch.equal(one, parameters(0, noise=1))
    assert not torch.equal(one, parameters(0, passes=3))
    assert not torch.equal(one, parameters(1))


def test_a_progress_bar_is_shown_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    log = bits_log(2)
    agent = PCHID.from_episodes(log, K_max=1, **SMALL).fit(log, 1)
    assert capsys.readouterr().err == ""
    agent.fit(log, 1, progress_bar=True)
    assert "K=1" in capsys.readouterr().err


def test_test_is_rnd_or_none_without_an_environment() -> None:
    log = bits_log()
    assert isinstance(PCHID.from_episodes(log, K_max=2, **SMALL).learner.test, RandomNetworkDistillation)
    assert isinstance(PCHID.from_episodes(log, K_max=1, **SMALL).learner.test, AcceptAll)
    assert isinstance(PCHID.from_episodes(log, K_max=2, test="none", **SMALL).learner.test, AcceptAll)
    rnd = PCHID.from_episodes(log, K_max=2, test="rnd:0.9", **SMALL).learner.test
    assert isinstance(rnd, RandomNetworkDistillation)
    assert rnd.quantile == 0.9
    for name in ("interaction", "ground-truth"):
        with pytest.raises(InputError, match=f"{name} TEST asks an environment"):
            PCHID.from_episodes(log, K_max=2, test=name, **SMALL)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda log, agent: agent.learn(10), "no environment to learn in"),
        (lambda log, agent: agent.fit(log, 0), "passes is 0"),
        (lambda log, agent: agent.fit(log, 1, 0), "episodes_per_round is 0"),
        (lambda log, agent: agent.fit(reach_like()), "'observation' has the shape"),
        (lambda log, agent: agent.set_env(GoalVecEnv.make("BitFlip-v0", n_bits=6)), "does not go with what"),
        (lambda log, agent: PCHID.from_episodes(log, tolerance=0.1, is_success=np.equal), "not both"),
        (lambda log, agent: PCHID.from_episodes(log, tolerance=0.0), "positive"),
        (lambda log, agent: PCHID.from_episodes(log, min_displacement=99.0, **SMALL).fit(log), "nothing to learn"),
    ],
)
def test_wrong_calls_are_refused(call: Any, sentence: str) -> None:
    log = bits_log(2)
    with pytest.raises(InputError, match=sentence):
        call(log, PCHID.from_episodes(log, K_max=1, **SMALL))


def test_a_test_that_restores_cannot_judge_a_log() -> None:
    agent = PCHID("GoalPolicy", GoalVecEnv.make("BitFlip-v0", **BITS), K_max=2, **SMALL)
    with pytest.raises(InputError, match="restores the environment"):
        agent.fit(bits_log(2))
    PCHID("GoalPolicy", GoalVecEnv.make("BitFlip-v0", **BITS), K_max=2, test="rnd", **SMALL).fit(bits_log(2), 2)


def test_success_is_what_the_caller_says() -> None:
    log = reach_like()
    near, far = np.array([[0.0, 0.0]]), np.array([[0.3, 0.0]])
    settings = {"K_max": 1, **SMALL}
    assert not PCHID.from_episodes(log, **settings).is_success(near, far).any()
    assert PCHID.from_episodes(log, tolerance=0.4, **settings).is_success(near, far).all()
    always = PCHID.from_episodes(log, is_success=lambda a, d: np.ones(len(a), bool), **settings)
    assert always.is_success(near, far).all()
    holding = PCHID.from_episodes(log, tolerance=0.4, hold_goal=True, **settings).fit(log, 1)
    seen = {"observation": far, "achieved_goal": near, "desired_goal": far}
    assert np.all(holding.predict(seen)[0] == 0.0)
    assert np.all(holding.predict({**seen, "desired_goal": far + 1.0})[0] != 0.0)


# Going on in an environment.


@pytest.mark.parametrize("inferred", [False, True])
def test_training_goes_on_with_policy_buffers_and_k(inferred: bool) -> None:
    log = bits_log()
    observations, actions = lists(log)
    log = episodes_from_arrays(observations, actions) if inferred else log
    agent = PCHID.from_episodes(log, K_max=2, test_budget=100.0, **SMALL).fit(log, 6)
    before = [value.clone() for value in agent.policy.state_dict().values()]
    pairs, K, sizes = len(agent.learner.buffers), agent.K, agent.learner.buffers.sizes()
    optimizer = agent.learner.optimizer
    env = GoalVecEnv.make("BitFlip-v0", 3, **BITS)
    agent.set_env(env)
    assert isinstance(agent.learner.test, Interaction)
    assert (agent.K, len(agent.learner.buffers), agent.learner.buffers.sizes()) == (K, pairs, sizes)
    assert K == 2
    assert agent.observation_space == env.observation_space
    assert agent.learner.test_budget == 100.0
    assert all(map(torch.equal, before, agent.policy.state_dict().values()))
    assert agent.learner.optimizer is optimizer
    assert optimizer.state_dict()["state"]
    agent.learn(60)
    assert agent.num_timesteps == 60
    assert len(agent.learner.buffers) > pairs
    assert agent.K == 2
    agent.learn(30, reset_num_timesteps=False)
    assert agent.num_timesteps == 90


def test_the_behaviour_policy_is_the_fitted_one_at_once() -> None:
    log = bits_log()
    agent = PCHID.from_episodes(log, K_max=1, exploration=0.0, noise=0.0, **SMALL).fit(log, 1)
    agent.set_env(GoalVecEnv.make("BitFlip-v0", 2, **BITS))
    seen = agent.env.reset()  # type: ignore[union-attr]
    agent.recorder.start(seen)  # type: ignore[arg-type]
    np.testing.assert_array_equal(agent._behave(seen), agent.policy.act(seen))  # type: ignore[arg-type]


def test_a_loaded_agent_is_fitted_further_and_trained(tmp_path: Path) -> None:
    log = bits_log()
    PCHID.from_episodes(log, K_max=2, **SMALL).fit(log, 1).save(tmp_path / "agent")
    again = PCHID.load(tmp_path / "agent")
    again.fit(log, 1)
    again.set_env(GoalVecEnv.make("BitFlip-v0", **BITS))
    assert again.learn(20).num_timesteps == 20


def success(agent: Any, env_id: str, episodes: int, **options: Any) -> float:
    act = lambda seen: agent.predict(seen, deterministic=True)[0]  # noqa: E731
    return evaluate(act, make_probe(env_id, episodes, **options), episodes, 7).measures().final_success


def test_one_step_pieces_of_random_episodes_solve_bit_flipping_and_goals_as_they_were_do_not() -> None:
    name, options = DOMAINS[0]
    log = bits_log(15)
    settings = {"K_max": 1, "updates_per_episode": 8, "seed": 0, "policy_kwargs": {"hidden_sizes": [64]}}
    learned = PCHID.from_episodes(log, **settings).fit(log, 4)
    control = PCHID.from_episodes(log, relabel=False, **settings).fit(log, 4)
    assert success(learned, name, 200, **options) > 0.95
    assert success(control, name, 200, **options) < 0.6


@pytest.mark.slow
def test_twenty_random_episodes_solve_fetch_reach_and_training_goes_on_from_there() -> None:
    log = reach_log(20)
    agent = PCHID.from_episodes(log, tolerance=0.05, K_max=2, seed=0).fit(log, 2)
    assert success(agent, "FetchReach-v4", 50) >= 0.9
    control = PCHID.from_episodes(log, tolerance=0.05, K_max=2, relabel=False, seed=0).fit(log, 2)
    assert success(control, "FetchReach-v4", 50) <= 0.2
    agent.set_env("FetchReach-v4")
    assert isinstance(agent.learner.test, Interaction)
    agent.learn(150)
    assert success(agent, "FetchReach-v4", 50) >= 0.9


@pytest.mark.slow
def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = load_example("offline").found
    assert found["goals as they were"] < 0.2
    assert min(found["relabelled"], found["and 150 steps in the environment"]) > 0.9
    assert len(load_episodes("runs/reach-log.npz")) == 20


# Minari.


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for Minari's datasets."""
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path


def collect(env: gym.Env[Any, Any], dataset_id: str, episodes: int) -> Any:
    """A dataset of random episodes, written by Minari; not by its DataCollector, which would need jax."""
    import minari
    from minari.data_collector.episode_buffer import EpisodeBuffer

    env.action_space.seed(0)
    played = []
    for seed in range(episodes):
        seen, steps = [env.reset(seed=seed)[0]], []
        while not steps or not (steps[-1][2] or steps[-1][3]):
            action = env.action_space.sample()
            after, *outcome, _ = env.step(action)
            seen.append(after)
            steps.append((action, *outcome))
        named = isinstance(seen[0], dict)
        observations: Any = {key: [one[key] for one in seen] for key in seen[0]} if named else seen
        actions, rewards, terminations, truncations = (list(part) for part in zip(*steps, strict=True))
        played.append(EpisodeBuffer(seed, seed, None, observations, actions, rewards, terminations, truncations))
    return minari.create_dataset_from_buffers(dataset_id, played, env, algorithm_name="random", description="a test")


def test_a_minari_dataset_is_learned_from(local: Path) -> None:
    import gymnasium_robotics

    gym.register_envs(gymnasium_robotics)
    env = gym.make("FetchReach-v4", max_episode_steps=12)
    dataset = collect(env, "test/reach-v0", 3)
    log = episodes_from_minari("test/reach-v0")
    assert_same(log, episodes_from_minari(dataset))
    assert log.length.tolist() == [12, 12, 12]
    assert log.action_space == env.action_space
    assert log.observation_space == env.observation_space
    for number, episode in enumerate(dataset.iterate_episodes()):
        for key in ("observation", "achieved_goal"):
            np.testing.assert_array_equal(getattr(log, key)[number], episode.observations[key])
        np.testing.assert_array_equal(log.desired_goal[number], episode.observations["desired_goal"][0])
        np.testing.assert_array_equal(log.action[number], episode.actions)
        assert log.total_reward[number] == episode.rewards.sum()
    agent = PEHID.from_episodes(log, tolerance=0.05, K_max=2, **SMALL).fit(log, 2)
    assert len(agent.learner.buffers) >= 30
    agent.set_env(GoalVecEnv.make("FetchReach-v4"))
    assert isinstance(agent.learner.test, Interaction)


def test_other_datasets_are_refused_in_a_sentence(local: Path) -> None:
    collect(gym.make("CartPole-v1", max_episode_steps=5), "test/pole-v0", 1)
    with pytest.raises(InputError, match="'test/pole-v0' cannot be learned from: not a goal environment"):
        episodes_from_minari("test/pole-v0")
    with pytest.raises(InputError, match="no Minari dataset 'test/none-v0' here"):
        episodes_from_minari("test/none-v0")


def test_without_minari_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(InputError, match=r"pip install 'pchid\[minari\]'"):
        episodes_from_minari("test/reach-v0")
