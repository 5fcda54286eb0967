"""A budget of TEST that is spent on pairs whose goals are like those that are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support import Scrambled, random_episodes

from pchid.asked import NEAREST, REMEMBERED, AskedGoals
from pchid.checkpoint import join, split
from pchid.config import new_config
from pchid.curriculum import Evolution
from pchid.envs.make import make_probe, make_vector
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError
from pchid.goals import success_function
from pchid.learner import HindsightLearner
from pchid.solvability import Interaction

NAME = "BitFlip-v0"
OPTIONS: dict[str, Any] = {"n_bits": 8}


def make_learner(draw: str, test_budget: float | None = 1.0) -> HindsightLearner:
    return HindsightLearner(
        Evolution(4),
        Interaction(lambda: make_probe(NAME, 32, **OPTIONS)),
        success_function(make_vector(NAME, 1, **OPTIONS)),
        torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]),
        np.random.default_rng(0),
        test_budget=test_budget,
        draw=draw,
    )


def test_what_is_drawn_is_spread_as_the_goals_are() -> None:
    """A hundred candidates lie here and five there; goals are asked for here and there alike, and none in between."""
    rng = np.random.default_rng(0)
    asked = AskedGoals()
    asked.remember(np.concatenate([rng.normal(0.0, 0.1, (50, 3)), rng.normal(5.0, 0.1, (50, 3))]))
    parts = [rng.normal(0.0, 0.1, (100, 3)), rng.normal(2.5, 0.1, (400, 3)), rng.normal(5.0, 0.1, (20, 3))]
    candidates = np.concatenate(parts)
    drawn = asked.draw(candidates, 40, rng)
    assert len(set(drawn.tolist())) == len(drawn) <= 40
    here, between, there = ((start <= drawn) & (drawn < end) for start, end in ((0, 100), (100, 500), (500, 520)))
    assert not between.any()
    assert here.sum() > 8 and there.sum() > 8
    even = rng.choice(len(candidates), 40, replace=False)
    assert ((even >= 100) & (even < 500)).mean() > 0.5  # so that being left out means something


@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_no_more_are_drawn_than_there_are_or_than_are_wanted(count: int) -> None:
    asked = AskedGoals()
    asked.remember(np.zeros((4, 2)))
    rng = np.random.default_rng(0)
    assert len(asked.draw(rng.normal(size=(3, 2)), count, rng)) <= min(count, 3)
    assert len(asked.draw(np.empty((0, 2)), count, rng)) == 0
    if count == 50:
        assert len(asked.draw(rng.normal(size=(3, 2)), count, rng)) == 3 < NEAREST


def test_old_goals_are_forgotten() -> None:
    asked = AskedGoals()
    asked.remember(np.zeros((10, 2)))
    for _ in range(3):
        asked.remember(np.ones((REMEMBERED // 2, 2)))
    assert asked.goals.shape == (REMEMBERED, 2)
    assert (asked.goals == 1).all()


def test_the_budget_goes_to_goals_that_are_asked_for() -> None:
    """All episodes ask for states with the first bit set; random flips end at either with the same chance."""
    rounds = random_episodes(GoalVecEnv.make(NAME, 4, **OPTIONS), 40)
    shares = {}
    for draw in ("even", "asked"):
        learner = make_learner(draw, 0.5)
        for episodes in rounds:
            episodes.desired_goal[:, 0] = 1
            learner.observe(episodes, Scrambled(8, salt=2))
        goals = learner.buffers.buffers[0].everything().goal
        shares[draw] = float(goals[:, 0].mean())
    assert shares["even"] < 0.65 < 0.7 < shares["asked"]


def test_it_goes_on_alike_from_a_checkpoint() -> None:
    rounds = random_episodes(GoalVecEnv.make(NAME, 4, **OPTIONS), 12)
    whole, first, second = (make_learner("asked") for _ in range(3))
    policy = Scrambled(8, salt=2)
    for episodes in rounds:
        whole.observe(episodes, policy)
    for episodes in rounds[:6]:
        first.observe(episodes, policy)
    second.load_state(join(*split({"state": first.state()}))["state"])
    for episodes in rounds[6:]:
        second.observe(episodes, policy)
    left, right = (learner.buffers.buffers[0].everything() for learner in (whole, second))
    np.testing.assert_array_equal(left.goal, right.goal)
    np.testing.assert_array_equal(left.action, right.action)
    assert len(left) > 0
    assert "asked" not in make_learner("even").state()


def test_an_unknown_way_to_draw_is_refused() -> None:
    with pytest.raises(InputError, match="even, asked, both"):
        make_learner("all")
    with pytest.raises(InputError, match="draw"):
        new_config({"env": NAME, "draw": "all"})


def test_half_of_both() -> None:
    rng = np.random.default_rng(0)
    asked = AskedGoals()
    asked.remember(rng.normal(0.0, 0.1, (50, 2)))
    candidates = np.concatenate([rng.normal(0.0, 0.1, (500, 2)), rng.normal(9.0, 0.1, (500, 2))])
    drawn = asked.draw(candidates, 200, rng, share=0.5)
    assert 0.6 < (drawn < 500).mean() < 0.9  # all that are near, and half of the others
    assert (asked.draw(candidates, 200, rng) < 500).all()
