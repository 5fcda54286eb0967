"""The hindsight module beside an algorithm of Stable-Baselines3, as a callback: what all combinations share.

In: the episodes that the algorithm plays anyway. Out: between its rollouts, supervised steps on a network: the
algorithm's own (joint training) or one beside it (averaged outputs, intrinsic reward).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor

from pchid.assembly import Surroundings, make_learner
from pchid.checkpoint import load_module_state
from pchid.combine.student import policy_view
from pchid.combine.tap import UNKNOWN_WRAPPER, Tap
from pchid.curriculum import Continuation, Convergence, Evolution, check_K_max
from pchid.envs.randomness import named_seed
from pchid.errors import InputError, RunError, at_least
from pchid.goals import success_function, vector_of
from pchid.learner import HindsightLearner
from pchid.networks.vin import VinPolicy
from pchid.policies import GoalPolicy, ImitatingPolicy
from pchid.solvability import SolvabilityTest

Array = NDArray[Any]


class HindsightModule(BaseCallback):
    """Relabels, tests and learns from the episodes of the algorithm that it is given to.

    :param K_max: the longest piece of a trajectory to learn from, in steps; 1 is one-step HID
    :param test: TEST: "interaction", "ground-truth", "rnd", "none" or an object such as `Interaction(make_env)`; "auto"
        takes interaction where the environments can be restored and rnd otherwise
    :param weight: how much the module counts; with 0 everything runs, and the algorithm trains as if it were alone
    :param evolve: learn all k at once (PEHID) in place of one after the other (PCHID)
    :param updates_per_episode: supervised steps for each finished episode
    :param passes_per_pair: in its place: how often each pair is shown to the network on average
    :param seed: of what is random here; by default the algorithm's

    The other parameters are those of `PCHID`.
    """

    def __init__(
        self,
        K_max: int = 5,
        test: str | SolvabilityTest = "auto",
        weight: float = 1.0,
        evolve: bool = False,
        K_step: int = 1,
        test_budget: float | None = None,
        learning_rate: float = 1e-3,
        batch_size: int = 256,
        updates_per_episode: int = 40,
        buffer_size: int = 100_000,
        min_displacement: float = 0.0,
        convergence: Convergence | None = None,
        passes_per_pair: float | None = None,
        test_tolerance: float | None = None,
        draw: str = "even",
        hold_steps: int = 0,
        symmetries: bool = False,
        seed: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        check_K_max(K_max, K_step)
        at_least(0, updates_per_episode=updates_per_episode)
        if not 0.0 <= weight < float("inf"):
            raise InputError(f"weight is {weight}, but it must be finite and cannot be negative")
        self.K_max, self.K_step, self.test, self.weight, self.evolve = K_max, K_step, test, weight, evolve
        self.test_budget, self.learning_rate, self.batch_size = test_budget, learning_rate, batch_size
        self.updates_per_episode, self.buffer_size = updates_per_episode, buffer_size
        self.min_displacement, self.convergence, self.seed = min_displacement, convergence, seed
        self.passes_per_pair = passes_per_pair
        self.test_tolerance, self.draw, self.symmetries = test_tolerance, draw, symmetries
        self.hold_steps = hold_steps
        self._view_checked = False
        self.episodes_seen = 0
        self.learner: HindsightLearner
        self.tap: Tap

    @abstractmethod
    def _make_policy(self) -> tuple[ImitatingPolicy, torch.optim.Optimizer]:
        """The policy that supervised steps train, and an optimiser of its own for it."""

    def prepare(self, model: Any) -> None:
        """Build the module for a model, once; `learn` does it by itself, and `load_state` needs it done."""
        if hasattr(self, "learner"):
            env: Any = model.get_env()
            if model is not self.model or env.unwrapped is not self.tap.env:
                raise InputError("this hindsight module belongs to another model or environment; make a new one")
            return
        self.model = model
        seed = self.seed if self.seed is not None else model.seed
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0] >> 1)
        self.seed = int(seed)
        self.tap = Tap(model.get_env())
        self.policy, optimizer = self._make_policy()
        self.learner = make_learner(
            self,
            Surroundings(vector_of(self.tap.env), self.tap.make_probe, self.tap.saves_states),
            success_function(self.tap.env),
            Evolution(self.K_max, self.K_step)
            if self.evolve
            else Continuation(self.K_max, self.convergence, self.K_step),
            optimizer,
            self.seed,
        )

    def _on_training_start(self) -> None:
        self.prepare(self.model)
        self.tap.open(self._raw_observations())
        self._view_checked = False

    def _check_view(self) -> None:
        """Refuse environments whose wrappers show the policy something else than hindsight would show it."""
        seen = self.locals["new_obs"]
        view = policy_view(self.model, self.tap.recorder.last_observations())
        if not all(np.allclose(values, seen[key], 1e-4, 1e-4) for key, values in view.items()):
            self.tap.close()
            raise InputError(UNKNOWN_WRAPPER)
        self._view_checked = True

    def _raw_observations(self) -> dict[str, Array]:
        """What the environments show now, below every wrapper."""
        model: Any = self.model
        normaliser = model.get_vec_normalize_env()
        if normaliser is None:
            raw: dict[str, Array] = model._last_obs
        elif isinstance(normaliser.old_obs, dict):
            raw = normaliser.get_original_obs()  # PPO lets its own copy grow old
        else:
            raw = model._last_original_obs  # from a checkpoint: nothing has passed through yet
        return raw

    def _on_rollout_start(self) -> None:
        # Not at the rollout's end: PPO has stored log-probabilities and advantages by then.
        self._learn_from_episodes()

    def _learn_from_episodes(self) -> None:
        # At the end of training the algorithm leaves its policy in training mode, in which looking at it changes it.
        self.model.policy.set_training_mode(False)
        for episodes in self.tap.take():
            self.learner.learn(episodes, self.policy, self.updates_per_episode * len(episodes))
            self.episodes_seen += len(episodes)
            self._log()

    def _on_step(self) -> bool:
        if not self._view_checked:  # in the first step, before anything is learned
            self._check_view()
        return True

    def _on_training_end(self) -> None:
        self._learn_from_episodes()
        self.tap.close()

    def _log(self) -> None:
        learner, record = self.learner, self.logger.record
        record("hindsight/loss", learner.last_loss)
        record("hindsight/K", learner.curriculum.K[-1])
        record("hindsight/pairs", len(learner.buffers))
        record("hindsight/test_steps", learner.test.steps)
        record("hindsight/pass_rate", learner.kept / learner.offered if learner.offered else float("nan"))

    @property
    def updates(self) -> int:
        """Supervised steps taken."""
        return self.learner.updates

    @property
    def test_steps(self) -> int:
        """Simulator steps spent inside TEST."""
        return self.learner.test.steps

    def diagnostics(self) -> dict[str, Any]:
        """What the module knows of itself, for the metrics of a run."""
        return self.learner.diagnostics()

    def state(self) -> dict[str, Any]:
        """Everything that the module needs to go on exactly, for a checkpoint between two rollouts."""
        self._learn_from_episodes()
        return {
            "kind": type(self).__name__,
            "learner": self.learner.state(),
            "recorder": self.tap.recorder.state(),
            "episodes_seen": self.episodes_seen,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """From a checkpoint, after `prepare`."""
        self._check_kind(state)
        self.learner.load_state(state["learner"])
        self.tap.recorder.load_state(state["recorder"])
        self.episodes_seen = state["episodes_seen"]

    def _check_kind(self, state: dict[str, Any]) -> None:
        if state.get("kind") != type(self).__name__:
            raise RunError(f"this checkpoint is of {state.get('kind')}, not of {type(self).__name__}")


class SeparateModule(HindsightModule):
    """A module with a network of its own, which sees what the algorithm's policy sees.

    :param policy: "GoalPolicy" (a perceptron), "VinPolicy" for GridWorld, or a class
    :param policy_kwargs: the settings of that network
    """

    policy_aliases: ClassVar[dict[str, type[GoalPolicy]]] = {"GoalPolicy": GoalPolicy, "VinPolicy": VinPolicy}

    def __init__(
        self,
        *args: Any,
        policy: str | type[GoalPolicy] = "GoalPolicy",
        policy_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(policy, str) and policy not in self.policy_aliases:
            raise InputError(f"unknown policy '{policy}': it is one of {', '.join(self.policy_aliases)}, or a class")
        self.policy_class = self.policy_aliases[policy] if isinstance(policy, str) else policy
        self.policy_kwargs = policy_kwargs or {}

    def _make_policy(self) -> tuple[ImitatingPolicy, torch.optim.Optimizer]:
        space = self.model.observation_space
        assert isinstance(space, spaces.Dict) and self.seed is not None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(named_seed(self.seed, "network"))
            make: Any = self.policy_class
            network: GoalPolicy = make(
                space, self.model.action_space, lambda _: self.learning_rate, **self.policy_kwargs
            )
        self.network = network.to(self.model.device)
        return Seeing(self.network, self.model), self.network.optimizer

    @property
    def trained(self) -> bool:
        """Whether the network knows anything yet; until then, it has no say."""
        return self.updates > 0

    def outputs(self, observations: dict[str, Tensor]) -> Tensor:
        """What the network says to what the policy sees: scores, or the mean action scaled to [-1, 1] and clipped."""
        with torch.no_grad():
            said: Tensor = self.network(observations)
        return said if self.network.discrete else said.clamp(-1.0, 1.0)

    def state(self) -> dict[str, Any]:
        """See `HindsightModule`; with the network."""
        return {**super().state(), "network": dict(self.network.state_dict())}

    def load_state(self, state: dict[str, Any]) -> None:
        """See `HindsightModule`."""
        self._check_kind(state)
        load_module_state(self.network, state["network"])
        super().load_state(state)


class Seeing:
    """A network of ours that is shown raw observations as the policy of a model would see them."""

    def __init__(self, network: GoalPolicy, model: Any) -> None:
        self.network, self.model = network, model

    def act(self, observations: dict[str, Array]) -> Array:
        """See `ImitatingPolicy`."""
        return self.network.act(policy_view(self.model, observations))

    def imitation_loss(self, observations: dict[str, Array], action: Array) -> Tensor:
        """See `ImitatingPolicy`."""
        return self.network.imitation_loss(policy_view(self.model, observations), action)

    def normalise_by(self, observations: dict[str, Array]) -> None:
        """See `ImitatingPolicy`."""
        self.network.normalise_by(policy_view(self.model, observations))

    def after_step(self) -> None:
        """See `ImitatingPolicy`."""
        self.network.after_step()
