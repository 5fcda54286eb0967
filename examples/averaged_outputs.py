"""Averaged outputs: DQN with HER acts on its Q-values and, by weight, on PCHID's log-probabilities.

A PCHID network learns beside DQN's from the same episodes; for continuous actions the means are interpolated instead.
Usage: python examples/averaged_outputs.py
"""

from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy

from pchid import AveragedOutputs, GoalVecEnv, HindsightReplayBuffer


def main(steps: int = 2_000) -> float:
    env = GoalVecEnv.make("BitFlip-v0", n_bits=11)
    model = DQN(
        "MultiInputPolicy",
        env,
        replay_buffer_class=HindsightReplayBuffer,  # SB3's HER, with the end of an episode relabelled too
        learning_starts=200,
        exploration_fraction=0.3,
        gamma=0.95,
        seed=0,
        device="cpu",
    )
    model.learn(steps, callback=AveragedOutputs(K_max=1, weight=0.1), progress_bar=True)
    mean, spread = evaluate_policy(model, env, n_eval_episodes=50, warn=False)
    print(f"return {mean:.2f} ± {spread:.2f} (the goal is 5.5 flips away on average)")
    return float(mean)


if __name__ == "__main__":
    main()
