"""TEST: the probe against one try at a time, Interaction against the ground truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import DOMAINS, Scrambled, ShortestWay, naive_solves, random_episodes

from pchid.algorithms import PCHID
from pchid.buffers import concatenate
from pchid.envs.make import make_probe, make_vector
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError
from pchid.hindsight import HindsightPairs, hindsight_pairs
from pchid.solvability import AcceptAll, GroundTruth, Interaction, Probe, Verdicts

domains = pytest.mark.parametrize(("name", "options"), DOMAINS, ids=[name for name, _ in DOMAINS])


def some_pairs(name: str, options: dict[str, Any], seed: int, K: list[int], rounds: int = 6) -> HindsightPairs:
    env = GoalVecEnv.make(name, 4, **options)
    return concatenate([hindsight_pairs(episodes, K) for episodes in random_episodes(env, rounds, seed)])


@settings(max_examples=25)
@given(
    domain=st.sampled_from(DOMAINS),
    slots=st.integers(1, 9),
    seed=st.integers(0, 10_000),
    count=st.integers(0, 25),
    longest=st.integers(1, 8),
)
def test_a_probe_finds_what_one_try_at_a_time_finds(
    domain: tuple[str, dict[str, Any]], slots: int, seed: int, count: int, longest: int
) -> None:
    name, options = domain
    rng = np.random.default_rng(seed)
    pairs = some_pairs(name, options, seed, [1, 2, 3], rounds=3)
    chosen = pairs.select(rng.integers(len(pairs), size=count))
    limits = rng.integers(1, longest + 1, size=count)
    assert chosen.state is not None
    policy = Scrambled(8 if name.startswith("Grid") else 5, salt=seed)
    expected, expected_steps = naive_solves(name, options, policy, chosen.state, chosen.goal, limits)
    for other_slots in {slots, 64}:
        probe = Probe(make_vector(name, other_slots, autoreset=False, **options))
        solved, steps = probe.solves(policy, chosen.state, chosen.goal, limits)
        assert solved.tolist() == expected
        assert steps == expected_steps


@domains
def test_the_tries_of_a_probe_do_not_depend_on_those_before(name: str, options: dict[str, Any]) -> None:
    pairs = some_pairs(name, options, 0, [1, 2, 3])
    assert pairs.state is not None
    probe = Probe(make_vector(name, 3, autoreset=False, **options))
    policy = Scrambled(5, salt=3)
    first = probe.solves(policy, pairs.state, pairs.goal, pairs.k)
    probe.solves(Scrambled(5, salt=4), pairs.state, pairs.goal, pairs.k)
    again = probe.solves(policy, pairs.state, pairs.goal, pairs.k)
    np.testing.assert_array_equal(first[0], again[0])
    assert first[1] == again[1]


@domains
def test_interaction_with_an_optimal_policy_agrees_with_the_ground_truth(name: str, options: dict[str, Any]) -> None:
    pairs = some_pairs(name, options, 5, [1, 2, 3, 4, 5], rounds=12)
    truth = GroundTruth(make_vector(name, 1, **options))  # type: ignore[arg-type]
    interaction = Interaction(lambda: make_probe(name, 32, **options))
    policy = ShortestWay(name, options)
    expected = truth(pairs, policy, pairs.k - 1)
    found = interaction(pairs, policy, pairs.k - 1)
    np.testing.assert_array_equal(found, expected)
    longer = pairs.k > 1
    assert 0 < expected[longer].sum() < longer.sum()
    # With an allowance of k steps, as PEHID gives, an optimal policy leaves nothing to learn.
    assert not interaction(pairs, policy, pairs.k)[longer].any()


def test_interaction_counts_its_steps_and_tries_nothing_without_an_allowance() -> None:
    name, options = DOMAINS[0]
    pairs = some_pairs(name, options, 1, [1, 2])
    interaction = Interaction(lambda: make_probe(name, 4, **options))
    ones = pairs.select(pairs.k == 1)
    assert interaction(ones, Scrambled(5), ones.k - 1).all()
    assert interaction.steps == 0
    twos = pairs.select(pairs.k == 2)
    interaction(twos, Scrambled(5), twos.k - 1)
    assert interaction.steps == len(twos)
    copy = Interaction(lambda: make_probe(name, 4, **options))
    copy.load_state(interaction.state())
    assert copy.steps == len(twos)


@domains
def test_interaction_leaves_the_behaviour_environment_as_it_is(name: str, options: dict[str, Any]) -> None:
    env = GoalVecEnv.make(name, 4, **options)
    policy_kwargs = {"hidden_sizes": [8]}
    agent = PCHID("GoalPolicy", env, K_max=3, test="interaction", policy_kwargs=policy_kwargs, seed=0)
    agent.learn(40)
    while agent.learner.curriculum.K[-1] < 3:  # so that there is something to test
        agent.learner.curriculum.observe(100, 1.0)
    known = random_episodes(GoalVecEnv.make(name, 4, **options), 6)
    before = {key: np.array(value) for key, value in env.state().items()}
    shown = env.vector.observe()
    for episodes in known:
        agent.learner.observe(episodes, agent.policy)
    assert agent.test_steps > 0
    assert agent.continuation()
    for key, value in env.state().items():
        np.testing.assert_array_equal(value, before[key])
    for key, value in env.vector.observe().items():
        np.testing.assert_array_equal(value, shown[key])


def test_what_cannot_be_tested_is_refused_with_what_would_work() -> None:
    with pytest.raises(InputError, match=r"restored.*--test rnd"):
        Probe(make_probe("UserLine-v0"))
    with pytest.raises(InputError, match=r"distance.*--test interaction or --test rnd"):
        GroundTruth(make_vector("UserLine-v0"))  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"test_tolerance": 0.01}, {"hold_steps": 2}])
def test_a_test_of_the_users_own_that_disagrees_with_the_settings_is_refused(settings: dict[str, Any]) -> None:
    env = GoalVecEnv.make("FetchReach-v4")
    with pytest.raises(InputError, match="give both the same"):
        PCHID("GoalPolicy", env, test=Interaction(env.make_probe), **settings)
    agreeing = Interaction(env.make_probe, settings.get("test_tolerance"), settings.get("hold_steps", 0))
    assert PCHID("GoalPolicy", env, test=agreeing, **settings).learner.test is agreeing


def test_accept_all_accepts_all() -> None:
    pairs = some_pairs(*DOMAINS[0], 0, [1, 2, 3])
    test = AcceptAll()
    assert test(pairs, Scrambled(5), pairs.k).all()
    assert test.steps == 0


@given(st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=10), max_size=5))
def test_accuracy_recall_and_pass_rate(batches: list[list[tuple[bool, bool]]]) -> None:
    verdicts = Verdicts()
    for batch in batches:
        array = np.array(batch, bool).reshape(-1, 2)
        verdicts.add(array[:, 0], array[:, 1])
    everything = [pair for batch in batches for pair in batch]
    kept = [keep for keep, _ in everything]
    right = [keep == truth for keep, truth in everything]
    kept_of_true = [keep for keep, truth in everything if truth]
    for found, values in ((verdicts.pass_rate, kept), (verdicts.accuracy, right), (verdicts.recall, kept_of_true)):
        np.testing.assert_allclose(found, np.mean(values) if values else np.nan)
