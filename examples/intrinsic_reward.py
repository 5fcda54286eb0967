"""Intrinsic reward: SAC with HER is paid for acting as a PCHID network would, also on relabelled transitions.

Usage: python examples/intrinsic_reward.py
"""

from stable_baselines3 import SAC
from stable_baselines3.common.evaluation import evaluate_policy

from pchid import GoalVecEnv, HindsightReplayBuffer, IntrinsicReward


def main(steps: int = 2_500) -> float:
    env = GoalVecEnv.make("FetchReach-v4")
    model = SAC(
        "MultiInputPolicy",
        env,
        replay_buffer_class=HindsightReplayBuffer,
        learning_starts=200,
        learning_rate=1e-3,
        gamma=0.95,
        policy_kwargs={"net_arch": [64, 64]},
        seed=0,
        device="cpu",
    )
    model.learn(steps, callback=IntrinsicReward(K_max=5, weight=1.0), progress_bar=True)
    mean, spread = evaluate_policy(model, env, n_eval_episodes=20, warn=False)
    print(f"return {mean:.2f} ± {spread:.2f} after {steps:,} environment steps")
    return float(mean)


if __name__ == "__main__":
    main()
