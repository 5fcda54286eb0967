"""Hindsight in an existing Stable-Baselines3 script, by one added line: joint training with PPO on FetchReach.

PPO alone never solves this task: its reward is -1 everywhere until the goal is met by chance. With the callback it does
within some twenty episodes. Usage: python examples/joint_training.py
"""

import gymnasium as gym
import gymnasium_robotics
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

from pchid import Interaction, JointTraining

gym.register_envs(gymnasium_robotics)


def make_env() -> gym.Env:
    return gym.make("FetchReach-v4")


def main(steps: int = 1_500) -> float:
    model = PPO("MultiInputPolicy", make_env(), n_steps=250, batch_size=50, gamma=0.95, seed=0, device="cpu")
    hindsight = JointTraining(K_max=5, test=Interaction(make_env))  # the added line ...
    model.learn(steps, callback=hindsight, progress_bar=True)  # ... and where it goes
    mean, spread = evaluate_policy(model, make_env(), n_eval_episodes=20, warn=False)
    print(f"return {mean:.2f} ± {spread:.2f} after {steps:,} environment steps and {hindsight.test_steps:,} TEST steps")
    return float(mean)


if __name__ == "__main__":
    main()
