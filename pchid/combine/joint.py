"""Joint training (Sec. 4.3): supervised steps on the network that the algorithm itself trains.

In: any algorithm of Stable-Baselines3 with goals. Out: the same, taught by hindsight between its rollouts.
"""

from __future__ import annotations

import torch

from pchid.combine.module import HindsightModule
from pchid.combine.student import Student
from pchid.policies import ImitatingPolicy


class JointTraining(HindsightModule):
    """`model.learn(steps, callback=JointTraining(K_max=5))`: hindsight for DQN, PPO, SAC, TD3, DDPG, TQC, as they are.

    See `HindsightModule` for the parameters. `weight` multiplies the length of the supervised steps: Adam makes
    steps of the same length whatever the loss is multiplied by.
    """

    def _make_policy(self) -> tuple[ImitatingPolicy, torch.optim.Optimizer]:
        student = Student(self.model, counts=self.weight > 0.0)
        return student, torch.optim.Adam(student.parameters, lr=self.weight * self.learning_rate)
