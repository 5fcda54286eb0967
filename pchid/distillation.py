"""TEST by random network distillation (Sec. 3.6): a pair that looks new needs more steps than those known.

In: candidate pairs. Out: a mask of those whose distillation error stands out from the errors on pairs of fewer steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pchid.checkpoint import load_module_state, load_optimizer_state, optimizer_state
from pchid.errors import InputError
from pchid.hindsight import HindsightPairs
from pchid.policies import ImitatingPolicy, RunningNormaliser


class RandomNetworkDistillation:
    """A fixed random network N_A and a network N_B trained to equal it on pairs of fewer than k steps.

    A k-step pair is kept when its error ||N_A - N_B||^2 is above the `quantile` of the recent errors on pairs of fewer
    steps. Both are measured on fresh pairs, before N_B is trained on them: where each episode brings a new map, any
    fresh pair is newer than any trained one, and only fresh ones can be compared. k = 1 is always kept.
    """

    needs_states = False

    def __init__(
        self,
        quantile: float = 0.5,
        hidden_size: int = 128,
        output_size: int = 64,
        learning_rate: float = 1e-3,
        window: int = 256,
        seed: int = 0,
    ) -> None:
        self.quantile = checked_quantile(quantile)
        self.hidden_size, self.output_size, self.learning_rate = hidden_size, output_size, learning_rate
        self.window = window
        self.seed = seed
        self.steps = 0
        self._longest = 1
        self._errors = np.zeros(0)
        self._error_k = np.zeros(0, np.int64)
        self._networks: nn.ModuleDict | None = None

    def __call__(
        self, pairs: HindsightPairs, policy: ImitatingPolicy, allowance: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """The pairs that look new; the policy and its allowance do not matter."""
        keep = np.ones(len(pairs), bool)
        if len(pairs) == 0:
            return keep
        self._longest = max(self._longest, int(pairs.k.max()))
        with torch.no_grad():
            errors = self._error(pairs).numpy()
        for k in np.unique(pairs.k):
            of_k = pairs.k == k
            known = self._errors[self._error_k < k]
            if len(known):
                keep[of_k] = errors[of_k] > np.quantile(known, self.quantile)
            self._errors = np.concatenate([self._errors, errors[of_k & keep]])[-self.window :]
            self._error_k = np.concatenate([self._error_k, pairs.k[of_k & keep]])[-self.window :]
        return keep

    def learn(self, pairs: HindsightPairs) -> None:
        """One step of N_B towards N_A on the pairs of fewer steps than the longest that is tested."""
        pairs = pairs.select(pairs.k < max(self._longest, 2))
        if len(pairs) == 0:
            return
        normaliser: Any = self._get_networks(pairs)["normaliser"]
        normaliser.update(_inputs(pairs))
        errors = self._error(pairs)
        self._optimizer.zero_grad()
        errors.mean().backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        state: dict[str, Any] = {
            "longest": self._longest,
            "errors": self._errors,
            "error_k": self._error_k,
            "steps": self.steps,
        }
        if self._networks is not None:
            state["networks"] = dict(self._networks.state_dict())
            state["optimizer"] = optimizer_state(self._optimizer)
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self._longest, self.steps = state["longest"], state["steps"]
        self._errors, self._error_k = state["errors"], state["error_k"]
        if "networks" in state:
            self._build(len(state["networks"]["normaliser.mean"]))
            assert self._networks is not None
            load_module_state(self._networks, state["networks"])
            load_optimizer_state(self._optimizer, state["optimizer"])

    def _error(self, pairs: HindsightPairs) -> Tensor:
        networks = self._get_networks(pairs)
        inputs = networks["normaliser"](_inputs(pairs))
        with torch.no_grad():
            target = networks["fixed"](inputs)
        error: Tensor = (networks["trained"](inputs) - target).square().mean(dim=1)
        return error

    def _get_networks(self, pairs: HindsightPairs) -> nn.ModuleDict:
        if self._networks is None:
            self._build(_inputs(pairs.select(np.arange(1))).shape[1])
        assert self._networks is not None
        return self._networks

    def _build(self, inputs: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self._networks = nn.ModuleDict(
                {
                    "normaliser": RunningNormaliser(inputs),
                    "fixed": self._network(inputs),
                    "trained": self._network(inputs),
                }
            )
        self._optimizer = torch.optim.Adam(self._networks["trained"].parameters(), lr=self.learning_rate)

    def _network(self, inputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(inputs, self.hidden_size), nn.ReLU(), nn.Linear(self.hidden_size, self.output_size)
        )


def checked_quantile(quantile: float) -> float:
    """The threshold, or a sentence about what it must be."""
    if not 0.0 <= quantile < 1.0:
        raise InputError(f"the RND threshold is a quantile in [0, 1), not {quantile}")
    return quantile


def _inputs(pairs: HindsightPairs) -> Tensor:
    observation = torch.as_tensor(pairs.observation).flatten(1).to(torch.float32)
    return torch.cat([observation, torch.as_tensor(pairs.goal).flatten(1).to(torch.float32)], dim=1)
