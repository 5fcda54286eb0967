"""From settings and environments to the learner that serves them, for PCHID on its own and for every combination.

In: what an algorithm or a hindsight module was told, and what its environments can do. Out: a `HindsightLearner` with
its TEST.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv

from pchid.curriculum import Curriculum
from pchid.envs.randomness import named_seed
from pchid.errors import InputError
from pchid.goals import HasDistance, Success, attribute, is_restorable, symmetries_of, vector_of
from pchid.learner import HindsightLearner
from pchid.solvability import GroundTruth, Interaction, SolvabilityTest, make_test


class LearnerSettings(Protocol):
    """What PCHID, PEHID and the hindsight modules can all be told of how they learn; `PCHID` says what each means."""

    K_max: int
    K_step: int
    test: str | SolvabilityTest
    test_budget: float | None
    test_tolerance: float | None
    draw: str
    hold_steps: int
    symmetries: bool
    batch_size: int
    buffer_size: int
    min_displacement: float
    passes_per_pair: float | None


@dataclass(frozen=True)
class Surroundings:
    """The environments that episodes come from, as far as a learner has a use for them."""

    vector: Any
    """The vector environment in them, where they have one."""
    make_probe: Callable[[], Any] | None
    """Gives a simulator like them, where one can be had."""
    saves_states: bool
    """Whether the episodes carry saved states, from which such a simulator can go on."""

    @classmethod
    def of(cls, env: VecEnv) -> Surroundings:
        """Of training environments whose steps are recorded from outside."""
        vector = vector_of(env)
        restorable = vector is not None and is_restorable(vector)
        return cls(vector, getattr(env.unwrapped, "make_probe", None), restorable)


def make_learner(
    settings: LearnerSettings,
    around: Surroundings | None,
    is_success: Success,
    curriculum: Curriculum,
    optimizer: torch.optim.Optimizer,
    seed: int,
    *,
    relabel: bool = True,
    other_labels: bool = False,
    yielding: Collection[str] = (),
) -> HindsightLearner:
    """The learner; with no environments around there is neither a TEST that asks one nor a budget for that.

    The settings named in `yielding` are left out where the environments cannot serve them, and not refused: they come
    from the file of an agent that was trained elsewhere.
    """
    here = around or Surroundings(None, None, saves_states=False)
    truth = GroundTruth(here.vector) if isinstance(here.vector, HasDistance) else None
    test = make_test(
        settings.test,
        here.make_probe,
        restorable=here.saves_states,
        truth=truth,
        longer_pieces=settings.K_max >= 2 * settings.K_step,
        seed=named_seed(seed, "distillation"),
        tolerance=settings.test_tolerance,
        hold_steps=settings.hold_steps,
    )
    if test.needs_states and not here.saves_states:
        raise InputError("this TEST needs environments that can be restored; use test='rnd' for these")
    budget = settings.test_budget if around is not None else None
    if "test_budget" in yielding and not isinstance(test, Interaction):
        budget = None
    symmetries = settings.symmetries and around is not None
    if symmetries and "symmetries" in yielding and attribute(here.vector, "draw_symmetry") is None:
        warnings.warn("this environment knows no symmetries, so further training would do without them", stacklevel=2)
        symmetries = False
    return HindsightLearner(
        curriculum,
        test,
        is_success,
        optimizer,
        np.random.default_rng(named_seed(seed, "minibatches")),
        batch_size=settings.batch_size,
        buffer_size=settings.buffer_size,
        min_displacement=settings.min_displacement,
        relabel=relabel,
        truth=truth,
        test_budget=budget,
        passes_per_pair=settings.passes_per_pair,
        other_labels=other_labels,
        draw=settings.draw,
        hold_steps=settings.hold_steps,
        draw_symmetry=symmetries_of(here.vector, symmetries),
    )
