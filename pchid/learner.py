"""The hindsight learner: Algorithm 1 (PCHID) and Algorithm 2 of the supplement (PEHID) between two rollouts.

In: finished episodes (`observe`). Out: supervised steps on a policy (`update`). It knows nothing of how the episodes
came about, so it serves PCHID on its own and any algorithm of Stable-Baselines3 alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pchid.buffers import PairBuffer, StepBuffers, concatenate
from pchid.checkpoint import load_optimizer_state, optimizer_state
from pchid.curriculum import Curriculum, Evolution
from pchid.episodes import Episodes
from pchid.goals import Success
from pchid.hindsight import HindsightPairs, hindsight_pairs, inverse_dynamics_pairs
from pchid.policies import ImitatingPolicy
from pchid.solvability import GroundTruth, Probe, SolvabilityTest, Verdicts

PROBES_PER_K = 100
"""How many recent pairs of each k measure the continuation."""


class HindsightLearner:
    """Relabels episodes, keeps what TEST keeps in B_1 ... B_K, fits the policy to all of it, and grows K."""

    def __init__(
        self,
        curriculum: Curriculum,
        test: SolvabilityTest,
        is_success: Success,
        optimizer: torch.optim.Optimizer,
        rng: np.random.Generator,
        batch_size: int = 256,
        buffer_size: int = 100_000,
        min_displacement: float = 0.0,
        relabel: bool = True,
        truth: GroundTruth | None = None,
    ) -> None:
        self.curriculum, self.test, self.is_success = curriculum, test, is_success
        self.optimizer, self.rng = optimizer, rng
        self.batch_size = batch_size
        self.min_displacement = min_displacement
        self.relabel = relabel
        self.evolving = isinstance(curriculum, Evolution)
        self.buffers = StepBuffers(buffer_size, merged=self.evolving)
        self.recent: dict[int, PairBuffer] = {}
        self.truth = truth
        self.verdicts = Verdicts()
        self.offered = self.kept = 0
        self.diagnostic_steps = 0

    def observe(self, episodes: Episodes, policy: ImitatingPolicy) -> None:
        """Relabel, TEST and store finished episodes; then let the curriculum see the loss on what is new."""
        pairs = self._relabelled(episodes)
        if len(pairs) == 0:
            self.curriculum.observe(0, 0.0)
            return
        policy.normalise_by(pairs.observation, pairs.goal)
        keep = self.test(pairs, policy, pairs.k - (0 if self.evolving else 1))
        multi_step = pairs.k > 1
        self.offered += int(multi_step.sum())
        self.kept += int((keep & multi_step).sum())
        if self.truth is not None and self.test is not self.truth and multi_step.any():
            judged = pairs.select(multi_step)
            self.verdicts.add(keep[multi_step], self.truth(judged, policy, judged.k))
        pairs = pairs.select(keep)
        longest = pairs.select(pairs.k == self.curriculum.K[-1])
        self.curriculum.observe(len(longest), self._loss(longest, policy) if len(longest) else 0.0)
        self.buffers.add(pairs)
        if pairs.state is not None:
            for k in np.unique(pairs.k).tolist():
                self.recent.setdefault(k, PairBuffer(PROBES_PER_K)).add(pairs.select(pairs.k == k))

    def update(self, policy: ImitatingPolicy, steps: int) -> float:
        """Take `steps` supervised steps on minibatches from all buffers; returns the mean loss."""
        if len(self.buffers) == 0:
            return float("nan")
        losses = []
        for _ in range(steps):
            batch = self.buffers.sample(self.batch_size, self.rng)
            loss = policy.imitation_loss(batch.observation, batch.goal, batch.action).mean()
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.test.learn(batch)
            losses.append(loss.item())
        return float(np.mean(losses))

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
            "verdicts": vars(self.verdicts).copy(),
            "counts": [self.offered, self.kept, self.diagnostic_steps],
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
        self.verdicts = Verdicts(**state["verdicts"])
        self.offered, self.kept, self.diagnostic_steps = state["counts"]

    def _relabelled(self, episodes: Episodes) -> HindsightPairs:
        if not self.relabel:
            return inverse_dynamics_pairs(episodes)
        # PEHID asks what the policy cannot do yet, not what the shortest way is, so detours stay.
        shortest = None if self.evolving else self.is_success
        return hindsight_pairs(episodes, self.curriculum.K, self.min_displacement, shortest)

    def _loss(self, pairs: HindsightPairs, policy: ImitatingPolicy) -> float:
        with torch.no_grad():
            return float(policy.imitation_loss(pairs.observation, pairs.goal, pairs.action).mean())
