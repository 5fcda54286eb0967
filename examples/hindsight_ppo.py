"""PPO with HER: rollouts relabelled with goals that were met later on, alone and with joint training.

Alone it learns little: the actions were drawn for another goal than the one that they are judged by. With PCHID it
learns in ten episodes.
Usage: python examples/hindsight_ppo.py
"""

from stable_baselines3.common.evaluation import evaluate_policy

from pchid import GoalVecEnv, HindsightPPO, JointTraining


def main(steps: int = 1_500) -> list[float]:
    returns = []
    for callback in (None, JointTraining(K_max=5)):
        env = GoalVecEnv.make("FetchReach-v4")
        model = HindsightPPO(
            "MultiInputPolicy", env, her_ratio=0.8, n_steps=250, batch_size=50, gamma=0.95, seed=0, device="cpu"
        )
        model.learn(steps, callback=callback, progress_bar=True)
        mean, spread = evaluate_policy(model, env, n_eval_episodes=20, warn=False)
        print(f"{'alone' if callback is None else 'with PCHID'}: return {mean:.2f} ± {spread:.2f}")
        returns.append(float(mean))
    return returns


if __name__ == "__main__":
    main()
