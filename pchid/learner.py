"""The hindsight learner: Algorithm 1 (PCHID) and Algorithm 2 of the supplement (PEHID) between two rollouts.

In: finished episodes (`observe`). Out: supervised steps on a policy (`update`). It knows nothing of how the episodes
came about, so it serves PCHID on its own and any algorithm of Stable-Baselines3 alike.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pchid.asked import AskedGoals
from pchid.buffers import PairBuffer, StepBuffers, concatenate
from pchid.checkpoint import load_optimizer_state, optimizer_state
from pchid.curriculum import Curriculum, Evolution
from pchid.episodes import Episodes
from pchid.errors import InputError, RunError, at_least
from pchid.goals import DrawSymmetry, Success
from pchid.hindsight import HindsightPairs, hindsight_pairs, inverse_dynamics_pairs
from pchid.policies import ImitatingPolicy
from pchid.solvability import GroundTruth, Interaction, Probe, SolvabilityTest, Verdicts

Array = NDArray[Any]

DRAWS = {"even": 0.0, "asked": 1.0, "both": 0.5}
"""Which pairs a budget of TEST steps is spent on: the share of them whose goals are like those that are asked for."""
PROBES_PER_K = 100
"""How many recent pairs of each k measure the continuation."""


def check_passes(passes_per_pair: float | None) -> None:
    """Refuse what cannot be a number of passes; None is no setting."""
    if passes_per_pair is not None and not 0.0 < passes_per_pair < float("inf"):
        raise InputError(f"passes_per_pair is {passes_per_pair}, but it must be positive and finite")


class HindsightLearner:
    """Relabels episodes, keeps what TEST keeps in B_1 ... B_K, fits the policy to all of it, and grows K."""

    def __init__(
        self,
        curriculum: Curriculum,
        test: SolvabilityTest,
        is_success: Success,
        optimizer: torch.optim.Optimizer,
        rng: np.random.Generator,
        *,
        batch_size: int = 256,
        buffer_size: int = 100_000,
        min_displacement: float = 0.0,
        relabel: bool = True,
        truth: GroundTruth | None = None,
        test_budget: float | None = None,
        passes_per_pair: float | None = None,
        other_labels: bool = False,
        draw: str = "even",
        hold_steps: int = 0,
        draw_symmetry: DrawSymmetry | None = None,
    ) -> None:
        if draw not in DRAWS:
            raise InputError(f"draw is one of {', '.join(DRAWS)}, not {draw}")
        if test_budget is not None and not isinstance(test, Interaction):
            raise InputError("a budget of TEST steps is for the interaction TEST; the others take no steps")
        if test_budget is not None and not 0.0 <= test_budget < float("inf"):
            raise InputError(f"test_budget is {test_budget}, but it counts steps and is finite; None is no limit")
        at_least(1, batch_size=batch_size, buffer_size=buffer_size)
        at_least(0, min_displacement=min_displacement, hold_steps=hold_steps)
        check_passes(passes_per_pair)
        self.curriculum, self.test, self.is_success = curriculum, test, is_success
        self.optimizer, self.rng = optimizer, rng
        self.batch_size = batch_size
        self.min_displacement = min_displacement
        self.relabel = relabel
        self.evolving = isinstance(curriculum, Evolution)
        self.buffers = StepBuffers(buffer_size, merged=self.evolving)
        self.recent: dict[int, PairBuffer] = {}
        self.truth = truth
        self.verdicts: dict[int, Verdicts] = {}
        self.test_budget, self.passes_per_pair = test_budget, passes_per_pair
        self.asked = AskedGoals() if DRAWS[draw] else None
        self.asked_share = DRAWS[draw]
        self.hold_steps = hold_steps
        self.draw_symmetry = draw_symmetry
        self.labeller: Interaction | None = None
        if other_labels:
            if not isinstance(test, Interaction):
                raise InputError("other_labels tries actions in the simulator of the interaction TEST; use that here")
            self.labeller = test
        self.offered = self.kept = 0
        self.seen_steps = self.diagnostic_steps = 0
        self.updates, self.last_loss = 0, float("nan")

    def learn(
        self,
        episodes: Episodes,
        policy: ImitatingPolicy,
        updates: int,
        fresh: Collection[int] | None = None,
    ) -> None:
        """One round of Algorithm 1 after its episodes: relabel, test, store, and take the supervised steps.

        These are `updates`, or as many as `passes_per_pair` asks for; `fresh` is as in `observe`.
        """
        if self.updates == 0:  # a reward that does not tell success is refused here, before anything is learned
            achieved = episodes.achieved_goal[0, : episodes.length[0] + 1]
            self.is_success(achieved, np.repeat(episodes.desired_goal[:1], len(achieved), axis=0))
        self.observe(episodes, policy, fresh)
        self.update(policy, updates if self.passes_per_pair is None else self._updates_due())

    def observe(self, episodes: Episodes, policy: ImitatingPolicy, fresh: Collection[int] | None = None) -> None:
        """Relabel, TEST and store finished episodes; then let the curriculum see the loss on what is new.

        With `fresh`, the episodes are from a log and may have been seen before: only pairs of these k are new. TEST
        sees the shorter ones beside them, as it must to compare, and no environment step is counted.
        """
        if fresh is not None and not fresh:  # nothing to relabel for
            self.curriculum.observe(0, 0.0)
            return
        if self.asked is not None:
            self.asked.remember(episodes.desired_goal)
        pairs = self._affordable(self._relabelled(episodes), int(episodes.length.sum()) if fresh is None else 0)
        new = np.ones(len(pairs), bool) if fresh is None else np.isin(pairs.k, list(fresh))
        if not new.any():
            self.curriculum.observe(0, 0.0)
            return
        policy.normalise_by((pairs if fresh is None else pairs.select(new)).observations)
        keep = self.test(pairs, policy, self._allowance(pairs)) & new
        multi_step = (pairs.k > self.curriculum.step) & new
        self.offered += int(multi_step.sum())
        self.kept += int((keep & multi_step).sum())
        if self.truth is not None and self.test is not self.truth and multi_step.any() and pairs.state is not None:
            self._judge(pairs.select(multi_step), keep[multi_step], policy)
        pairs = pairs.select(keep)
        if not self.evolving:  # there is nothing left to grow
            longest = pairs.select(pairs.k == self.curriculum.K[-1])
            self.curriculum.observe(len(longest), self._loss(longest, policy) if len(longest) else 0.0)
        stored = pairs if self.labeller is None else concatenate([pairs, self.labeller.other_labels(pairs, policy)])
        self.buffers.add(replace(stored, state=None))  # a supervised step has no use for it, and it is large
        if pairs.state is not None:
            for k in np.unique(pairs.k).tolist():
                self.recent.setdefault(k, PairBuffer(PROBES_PER_K)).add(pairs.select(pairs.k == k))

    def update(self, policy: ImitatingPolicy, steps: int) -> None:
        """Take `steps` supervised steps on minibatches from all buffers, if there is anything in them."""
        if len(self.buffers) == 0 or steps == 0:
            return
        losses = []
        for _ in range(steps):
            batch = self.buffers.sample(self.batch_size, self.rng)
            loss = policy.imitation_loss(*self._varied(batch)).mean()
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            policy.after_step()
            self.test.learn(batch)
            losses.append(loss.item())
        self.updates += steps
        self.last_loss = float(np.mean(losses))
        if not np.isfinite(self.last_loss):
            raise RunError("the supervised loss has become NaN or infinite; lower the learning rate")

    def diagnostics(self) -> dict[str, Any]:
        """What TEST let through and how right it was, for the metrics of a run."""
        overall = sum(self.verdicts.values(), Verdicts())
        return {
            "K": self.curriculum.K[-1],
            "loss": self.last_loss,
            "diagnostic_steps": self.diagnostic_steps,
            "test_pass_rate": self.kept / self.offered if self.offered else None,
            "test_accuracy": overall.accuracy,
            "test_recall": overall.recall,
        }

    def continuation(self, policy: ImitatingPolicy, probe: Probe) -> dict[int, float]:
        """For each i in K, the fraction of recent i-step pairs that the policy still solves in i steps (Def. 1 and 4).

        Its simulator steps are counted apart, in `diagnostic_steps`: they teach the policy nothing.
        """
        known = [buffer.everything() for _, buffer in sorted(self.recent.items())]
        if not known:
            return {}
        pairs = concatenate(known)
        assert pairs.state is not None
        solved, steps = probe.solves(policy, pairs.state, pairs.goal, pairs.k)
        self.diagnostic_steps += steps
        return {int(k): float(solved[pairs.k == k].mean()) for k in np.unique(pairs.k)}

    def state(self) -> dict[str, Any]:
        """For a checkpoint: everything but the policy's own parameters."""
        return {
            "curriculum": self.curriculum.state(),
            "test": self.test.state(),
            "optimizer": optimizer_state(self.optimizer),
            "rng": self.rng.bit_generator.state,
            "buffers": self.buffers.state(),
            "recent": {str(k): buffer.state() for k, buffer in self.recent.items()},
            "verdicts": {str(k): vars(verdicts).copy() for k, verdicts in self.verdicts.items()},
            "counts": [self.offered, self.kept, self.diagnostic_steps, self.seen_steps, self.updates],
            "last_loss": self.last_loss,
            **({} if self.asked is None else {"asked": self.asked.goals}),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.curriculum.load_state(state["curriculum"])
        self.test.load_state(state["test"])
        load_optimizer_state(self.optimizer, state["optimizer"])
        self.rng.bit_generator.state = state["rng"]
        self.buffers.load_state(state["buffers"])
        self.recent = {int(k): PairBuffer(PROBES_PER_K) for k in state["recent"]}
        for k, buffer in self.recent.items():
            buffer.load_state(state["recent"][str(k)])
        self.verdicts = {int(k): Verdicts(**counts) for k, counts in state["verdicts"].items()}
        self.offered, self.kept, self.diagnostic_steps, self.seen_steps, self.updates = state["counts"]
        self.last_loss = state["last_loss"]
        if self.asked is not None and "asked" in state:
            self.asked.goals = state["asked"].copy()

    def continue_from(self, other: HindsightLearner) -> None:
        """Take over all that another one has gathered and learned, but for its TEST if that is of another kind."""
        state = other.state()
        if type(self.test) is not type(other.test):
            state["test"] = self.test.state()
        self.load_state(state)

    def _relabelled(self, episodes: Episodes) -> HindsightPairs:
        if not self.relabel:
            return inverse_dynamics_pairs(episodes)
        # PEHID asks what the policy cannot do yet, not what the shortest way is, so detours stay.
        shortest = None if self.evolving else self.is_success
        return hindsight_pairs(episodes, self.curriculum.K, self.min_displacement, shortest, self.hold_steps)

    def _judge(self, pairs: HindsightPairs, keep: NDArray[np.bool_], policy: ImitatingPolicy) -> None:
        """Compare what TEST keeps with the ground truth, for each k."""
        assert self.truth is not None
        truth = self.truth(pairs, policy, pairs.k)
        for k in np.unique(pairs.k).tolist():
            self.verdicts.setdefault(k, Verdicts()).add(keep[pairs.k == k], truth[pairs.k == k])

    def _allowance(self, pairs: HindsightPairs) -> NDArray[np.int64]:
        """The steps in which the policy must fail for TEST to keep a pair: k - 1 (or K_step) in PCHID, k in PEHID."""
        return pairs.k if self.evolving else pairs.k - self.curriculum.step

    def _updates_due(self) -> int:
        """A pass shows each pair once on average, so what is due follows from how many TEST has let through."""
        assert self.passes_per_pair is not None
        return max(int(self.passes_per_pair * self.buffers.added / self.batch_size) - self.updates, 0)

    def _affordable(self, pairs: HindsightPairs, steps: int) -> HindsightPairs:
        """The pairs that need no step of TEST, and as many of the others as the budget surely covers.

        They are drawn evenly, or near the goals that are asked for. How many are drawn depends on the longest, not on
        which: so every (t, k) has the same chance. What is not spent is there for the next episodes.
        """
        self.seen_steps += steps
        if self.test_budget is None:
            return pairs
        allowance = self._allowance(pairs)
        costly = np.flatnonzero(allowance > 0)
        if len(costly) == 0:
            return pairs
        left = self.test_budget * self.seen_steps - self.test.steps
        count = min(int(max(left, 0.0) // (allowance.max() + self.hold_steps)), len(costly))
        if self.asked is None:
            drawn = self.rng.choice(costly, count, replace=False)
        else:
            drawn = costly[self.asked.draw(pairs.goal[costly], count, self.rng, self.asked_share)]
        return pairs.select(np.sort(np.concatenate([np.flatnonzero(allowance == 0), drawn])))

    def _varied(self, batch: HindsightPairs) -> tuple[dict[str, Array], Array]:
        """What is shown to the policy, and the labels: as they are, or as in a scene that is as good."""
        if self.draw_symmetry is None:
            return batch.observations, batch.action
        symmetry = self.draw_symmetry(len(batch), self.rng)
        return symmetry.observations(batch.observations), symmetry.actions(batch.action)

    def _loss(self, pairs: HindsightPairs, policy: ImitatingPolicy) -> float:
        with torch.no_grad():
            return float(policy.imitation_loss(pairs.observations, pairs.action).mean())
