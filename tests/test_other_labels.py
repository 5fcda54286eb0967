"""Several labels for one pair: actions that were not executed, but are as good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import DOMAINS, ShortestWay, random_episodes

from pchid.algorithms import PCHID
from pchid.buffers import concatenate
from pchid.envs.make import make_probe
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError
from pchid.hindsight import HindsightPairs, hindsight_pairs
from pchid.solvability import GroundTruth, Interaction

domains = pytest.mark.parametrize(("name", "options"), DOMAINS, ids=[name for name, _ in DOMAINS])


def true_pairs(name: str, options: dict[str, Any]) -> HindsightPairs:
    """Pairs that need as many steps as they say."""
    env = GoalVecEnv.make(name, 4, **options)
    pairs = concatenate([hindsight_pairs(episodes, [1, 2, 3, 4]) for episodes in random_episodes(env, 2, 1)])
    return pairs.select(GroundTruth(env.vector)(pairs, None, pairs.k))  # type: ignore[arg-type]


@domains
def test_with_an_optimal_policy_they_are_the_optimal_actions(name: str, options: dict[str, Any]) -> None:
    pairs = true_pairs(name, options)
    test = Interaction(lambda: make_probe(name, 16, **options))
    others = test.other_labels(pairs, ShortestWay(name, options))
    simulator: Any = make_probe(name, 1, **options)
    assert pairs.state is not None
    expected = []
    for state, goal, action, k in zip(pairs.state, pairs.goal, pairs.action, pairs.k, strict=True):
        for other in range(simulator.single_action_space.n):
            simulator.set_state(state[None], np.zeros(1, np.int64))
            simulator.step(np.array([other]))
            if other != action and simulator.distance(simulator.get_state(), goal[None])[0] == k - 1:
                expected.append((state.tobytes(), goal.tobytes(), other, int(k)))
    assert others.state is not None
    found = zip(others.state, others.goal, others.action, others.k, strict=True)
    assert [(s.tobytes(), g.tobytes(), int(a), int(k)) for s, g, a, k in found] == expected
    assert test.steps > 0
    if name != "BitFlip-v0":
        return
    # On bits, a piece of k steps has k! orders and so k first moves.
    assert len(others) == int((pairs.k - 1).sum())


def test_the_buffers_get_them_and_the_curriculum_does_not() -> None:
    def trained(other_labels: bool) -> PCHID:
        env = GoalVecEnv.make("BitFlip-v0", 4, n_bits=6)
        return PCHID(
            "GoalPolicy", env, K_max=3, updates_per_episode=2, other_labels=other_labels, seed=0, device="cpu"
        ).learn(400)

    with_them, without = trained(True), trained(False)
    assert with_them.learner.buffers.added > without.learner.buffers.added
    assert with_them.test_steps > without.test_steps
    assert sum(buffer.added for buffer in with_them.learner.recent.values()) < with_them.learner.buffers.added
    assert sum(buffer.added for buffer in without.learner.recent.values()) == without.learner.buffers.added


def test_where_actions_cannot_be_tried_it_is_refused() -> None:
    with pytest.raises(InputError, match="discrete"):
        PCHID("GoalPolicy", "FetchReach-v4", other_labels=True)
    with pytest.raises(InputError, match="interaction TEST"):
        PCHID("GoalPolicy", "BitFlip-v0", test="ground-truth", other_labels=True)


def test_on_the_command_line(call: Any, tmp_path: Path) -> None:
    words = ("train", "BitFlip-v0", "--episodes", 6, "--eval-episodes", 2, "--final-episodes", 2)
    words += ("--other-labels", True)
    assert call(*words, "--out", tmp_path / "run").code == 0
    refused = call(*words, "--method", "dqn+pchid", "--out", tmp_path / "other")
    assert refused.code == 2 and "--other-labels goes with pchid's own methods" in refused.err
