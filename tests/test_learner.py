"""The learner between two rollouts: what it keeps, how it fits, how it measures itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support import DOMAINS, Scrambled, ShortestWay, random_episodes

from pchid.buffers import concatenate
from pchid.checkpoint import join, split
from pchid.curriculum import Continuation, Convergence, Curriculum, Evolution
from pchid.envs.make import make_probe, make_vector
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError
from pchid.goals import success_function
from pchid.learner import HindsightLearner
from pchid.policies import GoalPolicy
from pchid.solvability import AcceptAll, GroundTruth, Interaction, Probe, SolvabilityTest

domains = pytest.mark.parametrize(("name", "options"), DOMAINS, ids=[name for name, _ in DOMAINS])


def grown(K_max: int) -> Continuation:
    curriculum = Continuation(K_max, Convergence(pairs=1))
    while curriculum.K[-1] < K_max:
        curriculum.observe(1, 1.0)
    return curriculum


def make_learner(
    name: str, options: dict[str, Any], curriculum: Curriculum, test: SolvabilityTest, **settings: Any
) -> tuple[HindsightLearner, GoalPolicy]:
    env = make_vector(name, 1, **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        policy = GoalPolicy(env.single_observation_space, env.single_action_space, lambda _: 3e-3, hidden_sizes=[32])  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    return HindsightLearner(
        curriculum, test, success_function(env), policy.optimizer, rng, batch_size=32, **settings
    ), policy


@domains
def test_with_an_optimal_policy_the_continuation_is_one_and_interaction_is_never_wrong(
    name: str, options: dict[str, Any]
) -> None:
    truth = GroundTruth(make_vector(name, 1, **options))  # type: ignore[arg-type]
    test = Interaction(lambda: make_probe(name, 16, **options))
    learner, _ = make_learner(name, options, grown(4), test, truth=truth)
    policy = ShortestWay(name, options)
    for episodes in random_episodes(GoalVecEnv.make(name, 4, **options), 12):
        learner.observe(episodes, policy)
    probe = Probe(make_probe(name, 16, **options))
    found = learner.continuation(policy, probe)
    assert set(found) >= {1, 2}
    assert set(found.values()) == {1.0}
    assert len(learner.verdicts) > 1
    assert {(verdicts.accuracy, verdicts.recall) for verdicts in learner.verdicts.values()} == {(1.0, 1.0)}
    assert learner.diagnostics()["test_accuracy"] == learner.diagnostics()["test_recall"] == 1.0
    for salt in range(3):
        for share in learner.continuation(Scrambled(5, salt), probe).values():
            assert 0.0 <= share < 1.0


def test_verdicts_are_counted_by_k_and_a_checkpoint_keeps_them() -> None:
    name, options = DOMAINS[0]
    truth = GroundTruth(make_vector(name, 1, **options))  # type: ignore[arg-type]
    learner, policy = make_learner(name, options, grown(4), AcceptAll(), truth=truth)
    seen = list(random_episodes(GoalVecEnv.make(name, 4, **options), 5))
    for episodes in seen:
        learner.observe(episodes, policy)
    pairs = [learner._relabelled(episodes) for episodes in seen]
    for k, verdicts in learner.verdicts.items():
        asked = [found.select(found.k == k) for found in pairs]
        right = np.concatenate([truth(found, policy, found.k) for found in asked])
        assert verdicts.accuracy == right.mean()
        assert verdicts.recall == 1.0 or not right.any()
    assert sorted(learner.verdicts) == [2, 3, 4]
    other, _ = make_learner(name, options, grown(4), AcceptAll(), truth=truth)
    other.load_state(learner.state())
    assert other.verdicts == learner.verdicts


def test_diagnostic_steps_are_counted_apart() -> None:
    name, options = DOMAINS[0]
    test = Interaction(lambda: make_probe(name, 16, **options))
    learner, policy = make_learner(name, options, grown(3), test)
    for episodes in random_episodes(GoalVecEnv.make(name, 4, **options), 5):
        learner.observe(episodes, policy)
    before = test.steps
    assert before > 0
    assert learner.diagnostic_steps == 0
    learner.continuation(policy, Probe(make_probe(name, 16, **options)))
    assert test.steps == before
    assert learner.diagnostic_steps > 0


@domains
def test_ground_truth_keeps_what_really_needs_k_steps(name: str, options: dict[str, Any]) -> None:
    env: Any = make_vector(name, 1, **options)
    learner, policy = make_learner(name, options, grown(4), GroundTruth(env))
    for episodes in random_episodes(GoalVecEnv.make(name, 4, **options), 12):
        learner.observe(episodes, policy)
    assert {1, 2} <= set(learner.buffers.sizes())
    assert set(learner.recent) == set(learner.buffers.sizes())
    for k, buffer in learner.recent.items():
        pairs = buffer.everything()
        assert (pairs.k == k).all()
        assert (env.distance(pairs.state, pairs.goal) == k).all()


def test_evolution_merges_its_buffers_and_keeps_what_the_policy_cannot_do_within_k_steps() -> None:
    name, options = DOMAINS[0]
    learner, _ = make_learner(name, options, Evolution(3), Interaction(lambda: make_probe(name, 16, **options)))
    policy = Scrambled(5, salt=2)
    for episodes in random_episodes(GoalVecEnv.make(name, 4, **options), 8):
        learner.observe(episodes, policy)
    assert list(learner.buffers.sizes()) == [0]
    assert set(learner.buffers.buffers[0].everything().k) == {1, 2, 3}
    pairs = concatenate([buffer.everything() for buffer in learner.recent.values()])
    assert set(pairs.k) == {1, 2, 3}
    assert pairs.state is not None
    solved, _ = Probe(make_probe(name, 16, **options)).solves(policy, pairs.state, pairs.goal, pairs.k)
    assert not solved.any()


def test_without_relabelling_the_goal_is_the_one_that_was_meant() -> None:
    name, options = DOMAINS[0]
    learner, policy = make_learner(name, options, Continuation(1), AcceptAll(), relabel=False)
    episodes = random_episodes(GoalVecEnv.make(name, 1, **options), 1)[0]
    learner.observe(episodes, policy)
    pairs = learner.buffers.buffers[1].everything()
    assert len(pairs) == episodes.length[0]
    assert (pairs.goal == episodes.desired_goal[0]).all()


def test_min_displacement_reaches_the_pairs() -> None:
    name, options = "GridWorld-v0", {"size": 8, "n_obstacles": 2, "horizon": 20}
    learner, policy = make_learner(name, options, Continuation(1), AcceptAll(), min_displacement=1.2)
    for episodes in random_episodes(GoalVecEnv.make(name, 4, **options), 8):
        learner.observe(episodes, policy)
    pairs = learner.buffers.buffers[1].everything()
    start = np.argwhere(pairs.observation[:, 1])[:, 1:]
    assert (np.abs(pairs.goal - start) == 1).all()  # one diagonal move is longer than 1.2, one straight move is not


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("buffer_size", 0),
        ("hold_steps", -1),
        ("min_displacement", float("nan")),
        ("passes_per_pair", float("nan")),
        ("passes_per_pair", 0.0),
    ],
)
def test_amounts_that_mean_nothing_are_refused(name: str, value: float) -> None:
    domain, options = DOMAINS[0]
    settings = {"batch_size": 32, name: value}
    env = make_vector(domain, 1, **options)
    policy = GoalPolicy(env.single_observation_space, env.single_action_space, lambda _: 3e-3)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=f"{name} is"):
        HindsightLearner(Continuation(1), AcceptAll(), np.equal, policy.optimizer, rng, **settings)  # type: ignore[arg-type]


def test_updates_lower_the_loss_and_without_pairs_nothing_happens() -> None:
    name, options = DOMAINS[0]
    learner, policy = make_learner(name, options, Continuation(1), AcceptAll())
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    learner.update(policy, 3)
    assert learner.updates == 0 and np.isnan(learner.last_loss)
    assert all(torch.equal(value, before[key]) for key, value in policy.state_dict().items())
    for episodes in random_episodes(GoalVecEnv.make(name, 4, **options), 10):
        learner.observe(episodes, policy)
    losses = []
    for steps in (1, 200, 1):
        learner.update(policy, steps)
        losses.append(learner.last_loss)
    assert learner.updates == 202
    assert losses[-1] < 0.2 * losses[0]


def test_pass_rate_counts_pairs_of_more_than_one_step() -> None:
    name, options = DOMAINS[0]
    truth = GroundTruth(make_vector(name, 1, **options))  # type: ignore[arg-type]
    learner, policy = make_learner(name, options, Evolution(3), truth, truth=truth)
    for episodes in random_episodes(GoalVecEnv.make(name, 4, **options), 6):
        learner.observe(episodes, policy)
    kept = learner.buffers.buffers[0].everything()
    assert learner.kept == (kept.k > 1).sum()
    assert learner.offered > learner.kept


def test_a_reloaded_learner_goes_on_alike() -> None:
    name, options = DOMAINS[2]
    many = random_episodes(GoalVecEnv.make(name, 4, **options), 12)

    def fresh() -> tuple[HindsightLearner, GoalPolicy]:
        test = Interaction(lambda: make_probe(name, 16, **options))
        return make_learner(name, options, Continuation(3, Convergence(pairs=4)), test)

    learner, policy = fresh()
    for episodes in many[:6]:
        learner.observe(episodes, policy)
        learner.update(policy, 5)
    copy, copied_policy = fresh()
    copied_policy.load_state_dict(policy.state_dict())
    copy.load_state(join(*split(learner.state())))
    for episodes in many[6:]:
        results = []
        for one, its_policy in ((learner, policy), (copy, copied_policy)):
            one.learn(episodes, its_policy, 5)
            results.append((one.last_loss, one.updates, one.curriculum.K, one.buffers.sizes(), one.test.steps))
        assert results[0] == results[1]
    for key, value in policy.state_dict().items():
        assert torch.equal(value, copied_policy.state_dict()[key])
