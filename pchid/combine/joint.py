"""Joint training (Sec. 4.3): supervised steps on the network that the algorithm itself trains.

In: any algorithm of Stable-Baselines3 with goals. Out: the same, taught by hindsight between its rollouts.
"""

from __future__ import annotations

from typing import Any

import torch

from pchid.combine.module import HindsightModule
from pchid.combine.student import Student
from pchid.errors import InputError
from pchid.policies import ImitatingPolicy


class JointTraining(HindsightModule):
    """`model.learn(steps, callback=JointTraining(K_max=5))`: hindsight for DQN, PPO, SAC, TD3, DDPG, TQC, as they are.

    See `HindsightModule` for the parameters. `weight` multiplies the length of the supervised steps: Adam makes
    steps of the same length whatever the loss is multiplied by.

    :param actor_starts: the environment step from which on the algorithm may change the actor itself. Until then
        hindsight alone does, and the critic learns what that policy is worth: a critic that knows nothing yet would
        undo faster than hindsight teaches. For algorithms with an actor and a critic (DDPG, TD3, SAC, TQC)
    """

    def __init__(self, *args: Any, actor_starts: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if actor_starts < 0:
            raise InputError(f"actor_starts is {actor_starts}, but it counts steps")
        self.actor_starts = actor_starts

    def prepare(self, model: Any) -> None:
        """See `HindsightModule`."""
        if self.actor_starts and getattr(model, "actor", None) is None:
            raise InputError(
                f"actor_starts is for algorithms with an actor of its own, which {type(model).__name__} lacks"
            )
        super().prepare(model)

    def _on_rollout_start(self) -> None:
        super()._on_rollout_start()
        if self.actor_starts:
            self._let_actor_learn(self.model.num_timesteps >= self.actor_starts)

    def _on_training_end(self) -> None:
        super()._on_training_end()
        if self.actor_starts:
            self._let_actor_learn(True)

    def _let_actor_learn(self, allowed: bool) -> None:
        """Let the algorithm's own optimiser of the actor step, or do nothing when it is asked to."""
        optimizer: Any = self.model.actor.optimizer  # type: ignore[attr-defined]
        if not allowed:
            optimizer.step = lambda: None
        elif "step" in vars(optimizer):
            del optimizer.step  # the class's own again

    def _make_policy(self) -> tuple[ImitatingPolicy, torch.optim.Optimizer]:
        student = Student(self.model)
        return student, torch.optim.Adam(student.parameters, lr=self.weight * self.learning_rate)
