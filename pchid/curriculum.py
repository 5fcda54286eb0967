"""The list K (Algorithm 1): which k are learned now.

In: the loss on each round's fresh pairs of the longest k. Out: K, which grows at convergence (policy continuation) or
is complete from the start (policy evolution, the supplement's PEHID).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from pchid.errors import InputError


class Curriculum(Protocol):
    """What decides which k are learned."""

    K: list[int]
    step: int

    def observe(self, pairs: int, loss: float) -> None:
        """Take in how many fresh pairs of the longest k a round gave, and their mean loss before training on them."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""

    def load_state(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""


@dataclass(frozen=True)
class Convergence:
    """When pi_k counts as converged: the loss on fresh pairs of k steps has stopped falling.

    Fresh means: measured before the pairs are trained on, so the loss is a held-out one. Each `pairs` fresh pairs form
    a block; when the mean loss of a block is less than `tolerance` below that of the block before, pi_k has converged.
    A threshold on the loss itself would not do: where several first actions are optimal, labels differ and no policy
    fits them all. If `patience` rounds in a row bring no fresh pair of k steps, there is nothing to learn at this k.
    """

    pairs: int = 32
    tolerance: float = 0.1
    patience: int = 50

    def __post_init__(self) -> None:
        if self.pairs < 1 or self.patience < 1:
            raise InputError("convergence needs blocks of at least 1 pair and a patience of at least 1 round")
        if not 0.0 <= self.tolerance <= 1.0:
            raise InputError(f"convergence.tolerance is a share of the loss in [0, 1], not {self.tolerance}")


class Continuation:
    """K = [1], then [1, 2], ... up to K_max, each k added when the policy has converged on the one before.

    With a `step` of 8, K = [8], [8, 16], ...: where a single step moves next to nothing, eight of them count as one.
    """

    def __init__(self, K_max: int, convergence: Convergence | None = None, step: int = 1) -> None:
        check_K_max(K_max, step)
        self.K_max, self.step = K_max, step
        self.convergence = convergence or Convergence()
        self.K = [step]
        self._start_block(None)
        self._empty_rounds = 0

    def _start_block(self, before: float | None) -> None:
        self._before = before
        self._pairs, self._loss = 0, 0.0

    def observe(self, pairs: int, loss: float) -> None:
        """See `Curriculum`; adds the following k to K at convergence."""
        if self.K[-1] + self.step > self.K_max:
            return
        self._pairs += pairs
        self._loss += pairs * loss
        self._empty_rounds = 0 if pairs else self._empty_rounds + 1
        converged = self._empty_rounds >= self.convergence.patience
        if self._pairs >= self.convergence.pairs:
            now = self._loss / self._pairs
            converged |= self._before is not None and now >= (1.0 - self.convergence.tolerance) * self._before
            self._start_block(now)
        if converged:
            self.K = [*self.K, self.K[-1] + self.step]
            self._start_block(None)
            self._empty_rounds = 0

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"K": self.K, "before": self._before, "block": [self._pairs, self._loss], "empty": self._empty_rounds}

    def load_state(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.K, self._before, self._empty_rounds = list(state["K"]), state["before"], state["empty"]
        self._pairs, self._loss = state["block"]


class Evolution:
    """K = [1, 2, ..., K_max] from the start; with a `step`, only its multiples."""

    def __init__(self, K_max: int, step: int = 1) -> None:
        check_K_max(K_max, step)
        self.step = step
        self.K = list(range(step, K_max + 1, step))

    def observe(self, pairs: int, loss: float) -> None:
        """K stays as it is."""

    def state(self) -> dict[str, Any]:
        """Nothing changes."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Nothing changes."""


def check_K_max(K_max: int, step: int = 1) -> None:
    """Both count environment steps: the longest piece cannot be shorter than the shortest."""
    if step < 1:
        raise InputError(f"K_step is {step}, but it counts steps and must be at least 1")
    if K_max < step:
        shortest = "at least 1 (1 is one-step HID)" if step == 1 else f"at least K_step, which is {step}"
        raise InputError(f"K_max is {K_max}, but it counts steps and must be {shortest}")


def check_convergence(settings: dict[str, Any]) -> None:
    """Refuse settings that `Convergence` does not have, or not of this kind."""
    kinds: dict[str, type | tuple[type, ...]] = {"pairs": int, "tolerance": (int, float), "patience": int}
    for name, value in settings.items():
        if name not in kinds:
            raise InputError(f"there is no convergence.{name}; there are {', '.join(kinds)}")
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise InputError(f"convergence.{name} cannot be {value!r}")
    Convergence(**settings)
