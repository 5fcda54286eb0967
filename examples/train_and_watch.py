"""PCHID inside Stable-Baselines3: train on BitFlip, evaluate as usual, save, load, and watch one episode.

Usage: python examples/train_and_watch.py
"""

import gymnasium as gym
from stable_baselines3.common.evaluation import evaluate_policy

from pchid import PCHID, GoalVecEnv


def main() -> None:
    model = PCHID(
        "MultiInputPolicy", GoalVecEnv.make("BitFlip-v0", num_envs=4), K_max=1, updates_per_episode=10, seed=0
    )
    model.learn(total_timesteps=2_000, progress_bar=True)
    mean, spread = evaluate_policy(model, GoalVecEnv.make("BitFlip-v0"), n_eval_episodes=100, warn=False)
    print(f"return {mean:.2f} ± {spread:.2f} over 100 episodes")
    model.save("runs/bitflip-agent")

    model = PCHID.load("runs/bitflip-agent")
    env = gym.make("BitFlip-v0", render_mode="ansi")
    observation, _ = env.reset(seed=7)
    print(env.render())
    done = False
    while not done:
        action, _ = model.predict(observation, deterministic=True)
        observation, _, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
        print(env.render())


if __name__ == "__main__":
    main()
