"""Fitting to a log: Algorithm 1 (and the supplement's Algorithm 2) with its episodes given and no environment.

In: episodes that exist already, as often as there are passes. Out: supervised steps on the policy of a PCHID or PEHID,
whose K grows from pass to pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from gymnasium import spaces

from pchid.curriculum import Continuation, Curriculum
from pchid.episodes import Episodes
from pchid.errors import InputError
from pchid.goals import Success
from pchid.logged import LoggedEpisodes, Within, goals_equal, select, with_spaces

if TYPE_CHECKING:
    from pchid.algorithms import HindsightAlgorithm
    from pchid.learner import HindsightLearner

Agent = TypeVar("Agent", bound="HindsightAlgorithm")


class Passes:
    """A log in chunks, and what the buffers hold of each.

    When K has grown, a chunk that was seen before has pairs to give again: those of the new k, and no others, for the
    rest is in the buffers already. Where a log has more pairs than a buffer holds, the buffer is a window that slides
    over it: what was pushed out comes in again with its chunk.
    """

    def __init__(self, episodes: Episodes, episodes_per_round: int, rng: np.random.Generator) -> None:
        self.episodes, self.episodes_per_round = episodes, episodes_per_round
        # Logs are often sorted, by skill or by time; blocks of a curriculum should not be.
        order = rng.permutation(len(episodes))
        self.chunks = [order[i : i + episodes_per_round] for i in range(0, len(order), episodes_per_round)]
        self._ends: list[dict[int, int]] = [{} for _ in self.chunks]
        """For each chunk and k, how many pairs its buffer had ever taken when those of the chunk were in."""

    def play(self, index: int, agent: HindsightAlgorithm, updates: int) -> None:
        """One round of Algorithm 1, with a chunk in place of fresh episodes and so many supervised steps."""
        learner, chunk = agent.learner, select(self.episodes, self.chunks[index])
        fresh = self._fresh(index, learner)
        learner.learn(chunk, agent.policy, updates, fresh)
        self._ends[index] |= {k: _added(learner, k) for k in fresh}
        agent._n_updates = learner.updates

    def _fresh(self, index: int, learner: HindsightLearner) -> list[int]:
        """The k in K of which no pair of the chunk is stored."""
        ends, K = self._ends[index], learner.curriculum.K if learner.relabel else [1]
        size = learner.buffers.capacity
        return [k for k in K if k not in ends or _added(learner, k) - ends[k] >= size]


def _added(learner: HindsightLearner, k: int) -> int:
    buffer = learner.buffers.buffers.get(0 if learner.buffers.merged else k)
    return 0 if buffer is None else buffer.added


def fit(agent: HindsightAlgorithm, episodes: Episodes, passes: int, episodes_per_round: int, progress: bool) -> None:
    """Go over the log `passes` times, chunk by chunk; a further call with the same episodes goes on where this ends.

    `updates_per_episode` keeps its meaning, so many supervised steps for each episode, spread over the passes: more
    passes let K grow further. More steps, on few episodes, learn them by heart.
    """
    for name, count in (("passes", passes), ("episodes_per_round", episodes_per_round)):
        if not isinstance(count, int) or count < 1:
            raise InputError(f"{name} is {count}, but at least 1 is needed")
    if not hasattr(agent, "learner"):  # read from a file, with no environment
        agent.is_success = goals_equal
        agent._setup_learner(None)
    known = agent._passes
    if known is None or known.episodes is not episodes or known.episodes_per_round != episodes_per_round:
        _check_fit(agent, episodes)
        rng = np.random.default_rng(agent._named_seed("log"))
        known = agent._passes = Passes(episodes, episodes_per_round, rng)
    if agent.learner.test.needs_states:
        raise InputError(
            "this TEST restores the environment, which logged episodes cannot; make the algorithm with test='rnd' or "
            "'none', or by from_episodes, and give it the environment by set_env afterwards"
        )
    rounds = [index for _ in range(passes) for index in range(len(known.chunks))]
    with _patience_of_a_pass(agent.learner.curriculum, len(known.chunks)), _bar(len(rounds), progress) as bar:
        done = 0
        for played, index in enumerate(rounds, start=1):
            due = agent.updates_per_episode * len(episodes) * played // len(rounds)
            known.play(index, agent, due - done)
            done = due
            if bar is not None:
                bar.set_postfix(K=agent.K, loss=f"{agent.learner.last_loss:.4f}", refresh=False)
                bar.update()
    if len(agent.learner.buffers) == 0:
        raise InputError("there is nothing to learn: in no episode does the achieved goal move, or not far enough")


@contextlib.contextmanager
def _patience_of_a_pass(curriculum: Curriculum, rounds: int) -> Iterator[None]:
    """Let K grow when a whole pass has brought no new pair of the longest k: the log has no more of them."""
    if not isinstance(curriculum, Continuation):
        yield
        return
    own = curriculum.convergence
    curriculum.convergence = replace(own, patience=min(own.patience, rounds))
    try:
        yield
    finally:
        curriculum.convergence = own


@contextlib.contextmanager
def _bar(rounds: int, shown: bool) -> Iterator[Any]:
    if not shown:
        yield None
        return
    from tqdm import tqdm

    with tqdm(total=rounds, desc="fit", unit="round") as bar:
        yield bar


def _check_fit(agent: HindsightAlgorithm, episodes: Episodes) -> None:
    """Refuse episodes of other spaces than the algorithm's."""
    assert isinstance(agent.observation_space, spaces.Dict)
    with_spaces(episodes, agent.observation_space, agent.action_space)


def without_environment(
    kind: type[Agent],
    episodes: Episodes,
    policy: Any,
    tolerance: float | None,
    is_success: Success | None,
    observation_space: spaces.Dict | None,
    action_space: spaces.Space[Any] | None,
    **settings: Any,
) -> Agent:
    """An algorithm for the spaces of logged episodes: those given, the log's own, or what its arrays tell."""
    if tolerance is not None and is_success is not None:
        raise InputError("give either tolerance or is_success, not both")
    test = settings.get("test", "auto")
    if isinstance(test, str) and test in ("interaction", "ground-truth"):
        raise InputError(
            f"the {test} TEST asks an environment, and there is none: with logged episodes use test='rnd' or 'none'; "
            "'auto' is rnd until set_env gives an environment that can be restored"
        )
    log = episodes
    if not isinstance(log, LoggedEpisodes) or observation_space is not None or action_space is not None:
        known = (getattr(log, "observation_space", None), getattr(log, "action_space", None))
        log = with_spaces(log, observation_space or known[0], action_space or known[1])
    if settings.get("noise") is None:
        settings["noise"] = 1.0 if isinstance(log.action_space, spaces.Discrete) else 0.2
    agent = kind(policy, None, _init_setup_model=False, **settings)
    agent.observation_space, agent.action_space = log.observation_space, log.action_space
    agent.is_success = is_success or (goals_equal if tolerance is None else Within(tolerance))
    agent._setup_model()
    agent._setup_learner(None)
    return agent
