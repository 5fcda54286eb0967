"""A budget of TEST steps: never exceeded, spent evenly over all pairs, and remembered by a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from support import QUICK, Outcome, Scrambled, random_episodes

from pchid.algorithms import PCHID, PEHID, HindsightAlgorithm
from pchid.checkpoint import join, split
from pchid.config import new_config
from pchid.curriculum import Continuation, Convergence, Curriculum, Evolution
from pchid.distillation import RandomNetworkDistillation
from pchid.envs.make import make_probe, make_vector
from pchid.envs.sb3 import GoalVecEnv
from pchid.episodes import Episodes
from pchid.errors import InputError
from pchid.goals import success_function
from pchid.hindsight import HindsightPairs
from pchid.learner import HindsightLearner
from pchid.policies import ImitatingPolicy
from pchid.solvability import AcceptAll, GroundTruth, Interaction, SolvabilityTest

Call = Callable[..., Outcome]
NAME = "BitFlip-v0"
OPTIONS: dict[str, Any] = {"n_bits": 8}
both = pytest.mark.parametrize("curriculum", ["continuation", "evolution"])


class Recording(Interaction):
    """Remembers which k it was asked about."""

    def __init__(self) -> None:
        super().__init__(lambda: make_probe(NAME, 32, **OPTIONS))
        self.asked: list[np.ndarray] = []

    def __call__(self, pairs: HindsightPairs, policy: ImitatingPolicy, allowance: np.ndarray) -> np.ndarray:
        self.asked.append(pairs.k)
        return super().__call__(pairs, policy, allowance)


def make_curriculum(name: str, K_max: int = 4) -> Curriculum:
    """One whose K is complete."""
    if name == "evolution":
        return Evolution(K_max)
    curriculum = Continuation(K_max, Convergence(pairs=1))
    while curriculum.K[-1] < K_max:
        curriculum.observe(1, 1.0)
    return curriculum


def make_learner(curriculum: Curriculum, test_budget: float | None, test: SolvabilityTest) -> HindsightLearner:
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    is_success = success_function(make_vector(NAME, 1, **OPTIONS))
    rng = np.random.default_rng(0)
    return HindsightLearner(curriculum, test, is_success, optimizer, rng, test_budget=test_budget)


def recorded(curriculum: str, test_budget: float | None, rounds: list[Episodes]) -> tuple[HindsightLearner, Recording]:
    """A learner that has observed all rounds."""
    test = Recording()
    learner = make_learner(make_curriculum(curriculum), test_budget, test)
    for episodes in rounds:
        learner.observe(episodes, Scrambled(8, salt=2))
    return learner, test


@pytest.fixture(scope="module")
def rounds() -> list[Episodes]:
    """Random episodes, four at a time."""
    return random_episodes(GoalVecEnv.make(NAME, 4, **OPTIONS), 60)


def assert_same_pairs(one: HindsightLearner, other: HindsightLearner, names: list[int]) -> None:
    for name in names:
        left, right = (learner.buffers.buffers[name].everything() for learner in (one, other))
        for field in ("observation", "goal", "action", "k"):
            np.testing.assert_array_equal(getattr(left, field), getattr(right, field))


@both
@pytest.mark.parametrize("budget", [0, 0.05, 0.3, 1, 2.5])
def test_the_steps_never_exceed_the_budget_and_use_it_up(
    rounds: list[Episodes], curriculum: str, budget: float
) -> None:
    test = Recording()
    learner = make_learner(make_curriculum(curriculum), budget, test)
    seen = 0
    for episodes in rounds:
        learner.observe(episodes, Scrambled(8, salt=2))
        seen += int(episodes.length.sum())
        assert test.steps <= budget * seen
    unlimited = recorded(curriculum, None, rounds)[1].steps
    assert unlimited > 2.5 * seen  # so that every budget is one
    assert test.steps >= 0.9 * budget * seen


@both
def test_with_a_large_budget_nothing_is_left_out(rounds: list[Episodes], curriculum: str) -> None:
    (free, free_test), (rich, rich_test) = (recorded(curriculum, budget, rounds) for budget in (None, 1e6))
    assert_same_pairs(rich, free, [0] if curriculum == "evolution" else [1, 2, 3, 4])
    assert rich.buffers.sizes() == free.buffers.sizes()
    assert (rich.offered, rich.kept, rich_test.steps) == (free.offered, free.kept, free_test.steps)
    assert free_test.steps > 0


@pytest.mark.parametrize("budget", [0, 0.2])
def test_pairs_of_one_step_cost_nothing_in_pchid_and_all_are_kept(rounds: list[Episodes], budget: float) -> None:
    (free, _), (poor, _) = (recorded("continuation", given, rounds) for given in (None, budget))
    assert_same_pairs(poor, free, [1])
    assert set(poor.buffers.sizes()) == ({1, 2, 3, 4} if budget else {1})
    assert poor.buffers.sizes()[1] > 0


def test_in_pehid_all_pairs_cost_and_without_a_budget_none_is_kept(rounds: list[Episodes]) -> None:
    learner, test = recorded("evolution", 0, rounds)
    assert len(learner.buffers) == test.steps == learner.offered == 0


def deviation(counts: np.ndarray, expected: np.ndarray) -> float:
    """By how much counts differ from what is expected, as a fraction of what chance explains at one in a thousand."""
    return float(np.sum((counts - expected) ** 2 / expected) / chi2.ppf(0.999, len(counts) - 1))


@both
def test_every_start_and_every_k_has_the_same_chance(rounds: list[Episodes], curriculum: str) -> None:
    learner = make_learner(make_curriculum(curriculum), 1, Recording())
    pairs = learner._relabelled(rounds[0])
    costs = learner._allowance(pairs) > 0
    numbered = replace(pairs, action=np.arange(len(pairs)))
    counts = np.zeros(len(pairs))
    for _ in range(2000):
        learner.seen_steps = 0
        drawn = learner._affordable(numbered, 32)
        assert (np.diff(drawn.action) > 0).all()  # in their order, none twice
        np.testing.assert_array_equal(drawn.k, pairs.k[drawn.action])
        counts[drawn.action] += 1
    assert (counts[~costs] == 2000).all()
    counts = counts[costs]
    assert len(counts) > 2 * 32 // 4
    assert counts.sum() == 2000 * (32 // (4 if curriculum == "evolution" else 3))
    assert deviation(counts, np.full(len(counts), counts.mean())) < 1.0
    per_k = np.bincount(pairs.k[costs], counts)[pairs.k[costs].min() :]
    share = np.bincount(pairs.k[costs])[pairs.k[costs].min() :] / costs.sum()
    assert deviation(per_k, counts.sum() * share) < 1.0
    assert deviation(per_k, counts.sum() * share[::-1]) > 1.0  # the check sees other shares


@both
def test_so_each_k_keeps_its_share_over_many_rounds(rounds: list[Episodes], curriculum: str) -> None:
    (_, all_asked), (_, some_asked) = (recorded(curriculum, budget, rounds) for budget in (None, 1))
    ks = np.arange(1 if curriculum == "evolution" else 2, 5)
    drawn, expected = np.zeros(len(ks)), np.zeros(len(ks))
    rounds_drawn = [asked for asked in some_asked.asked if len(asked)]
    assert len(rounds_drawn) == len(all_asked.asked)
    for everything, some in zip(all_asked.asked, rounds_drawn, strict=True):
        candidates, chosen = ((asked[:, None] == ks).sum(axis=0) for asked in (everything, some))
        drawn += chosen
        expected += chosen.sum() * candidates / candidates.sum()
    assert 100 < drawn.sum() < 0.5 * sum(len(asked) for asked in all_asked.asked)
    assert deviation(drawn, expected) < 1.0
    assert deviation(drawn, np.full(len(ks), expected.mean())) > 1.0  # the shares differ, so the check says something


@pytest.mark.parametrize("make_test", [AcceptAll, lambda: RandomNetworkDistillation(seed=0), "ground-truth"])
def test_a_test_without_steps_takes_no_budget(make_test: Any) -> None:
    env: Any = make_vector(NAME, 1, **OPTIONS)
    test = GroundTruth(env) if make_test == "ground-truth" else make_test()
    with pytest.raises(InputError, match="budget of TEST steps is for the interaction TEST"):
        make_learner(Evolution(3), 0.5, test)


@pytest.mark.parametrize("kind", [PCHID, PEHID])
@pytest.mark.parametrize(("test", "K_max"), [("rnd", 3), ("none", 3), ("ground-truth", 3), ("auto", 1)])
def test_nor_does_an_algorithm_with_one(kind: type[HindsightAlgorithm], test: str, K_max: int) -> None:
    env = GoalVecEnv.make(NAME, 2, **OPTIONS)
    with pytest.raises(InputError, match="budget of TEST steps"):
        kind("GoalPolicy", env, K_max=K_max, test=test, test_budget=0.5)


@pytest.mark.parametrize("kind", [PCHID, PEHID])
def test_an_algorithm_keeps_to_its_budget(kind: type[HindsightAlgorithm]) -> None:
    env = GoalVecEnv.make(NAME, 4, **OPTIONS)
    settings: dict[str, Any] = {"updates_per_episode": 1, "policy_kwargs": {"hidden_sizes": [8]}, "seed": 0}
    agent = kind("GoalPolicy", env, K_max=3, convergence=Convergence(pairs=4), test_budget=0.25, **settings)
    spent = []
    for _ in range(20):
        agent.learn(80, reset_num_timesteps=False)
        spent.append(agent.test_steps / agent.num_timesteps)
    assert 0.15 < spent[-1] <= max(spent) <= 0.25


@both
def test_a_reloaded_learner_knows_what_is_left(rounds: list[Episodes], curriculum: str) -> None:
    learner, _ = recorded(curriculum, 0.3, rounds[:25])
    copy = make_learner(make_curriculum(curriculum), 0.3, Recording())
    copy.load_state(join(*split(learner.state())))
    policy = Scrambled(8, salt=2)
    for episodes in rounds[25:]:
        for one in (learner, copy):
            one.observe(episodes, policy)
        assert copy.test.steps == learner.test.steps
    assert copy.seen_steps == learner.seen_steps == sum(int(episodes.length.sum()) for episodes in rounds)
    assert_same_pairs(copy, learner, list(learner.buffers.sizes()))


# The command line.

TRAIN = ("train", NAME, "--env.n_bits", 5, "--K-max", 3, "--updates-per-episode", 2, "--eval-every", 20, *QUICK)


@pytest.mark.parametrize("method", ["pchid", "pehid"])
def test_a_run_keeps_its_budget_and_goes_on_with_it(call: Call, tmp_path: Path, method: str) -> None:
    words = (*TRAIN, "--method", method, "--num-envs", 1, "--test-budget", 0.2)
    straight, pieces = tmp_path / "straight", tmp_path / "pieces"
    assert call(*words, "--episodes", 60, "--out", straight).code == 0
    assert call(*words, "--episodes", 31, "--out", pieces).code == 0
    assert call("train", "--resume", "--episodes", 60, "--quiet", "--out", pieces).code == 0
    for out in (straight, pieces):
        assert json.loads((out / "config.json").read_text())["test_budget"] == 0.2
    summary, resumed = (json.loads((out / "summary.json").read_text()) for out in (straight, pieces))
    assert 0 < summary["test_steps"] <= 0.2 * summary["env_steps"]
    assert (resumed["test_steps"], resumed["env_steps"]) == (summary["test_steps"], summary["env_steps"])
    agents = [(out / "policy" / "agent.safetensors").read_bytes() for out in (straight, pieces)]
    assert agents[0] == agents[1]
    assert call("evaluate", pieces, "--episodes", 5).code == 0
    other = call("train", "--resume", "--test-budget", 0.5, "--quiet", "--out", pieces)
    assert other.code == 2
    assert "test_budget 0.2" in other.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--test-budget", -0.5], "test_budget is -0.5"),
        (["--test-budget", "nan"], "test_budget is nan"),
        (["--test-budget", "inf"], "test_budget"),
        (["--test-budget", "some"], "test-budget"),
        (["--test-budget", 0.5, "--test", "rnd"], "interaction"),
        (["--test-budget", 0.5, "--test", "none"], "interaction"),
        (["--test-budget", 0.5, "--test", "ground-truth"], "interaction"),
    ],
)
def test_wrong_budgets_are_refused(call: Call, tmp_path: Path, words: list[Any], sentence: str) -> None:
    outcome = call(*TRAIN, "--episodes", 40, "--method", "pehid", "--out", tmp_path / "run", *words)
    assert outcome.code == 2
    assert len(outcome.err.splitlines()) == 1
    assert sentence in outcome.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "budget"),
    [
        ({}, 10.0),
        ({"K_max": 20}, None),
        ({"K_max": 30}, None),
        ({"test": "rnd"}, None),
        ({"method": "hid"}, None),
        ({"test_budget": 2.0}, 2.0),
    ],
)
def test_a_recommended_budget_stays_only_where_test_takes_steps(given: dict[str, Any], budget: float | None) -> None:
    config = new_config({"env": "PointMaze_UMaze-v3", "env_options": {}, "policy_options": {}, **given})
    assert config["test_budget"] == budget
