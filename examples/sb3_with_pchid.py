# %% [markdown]
# # Stable-Baselines3 with hindsight
#
# FetchReach pays -1 for every step until the gripper is at its goal. PPO alone hardly ever gets there, so it has
# nothing to learn from. One more line, a callback, teaches it by hindsight between its rollouts. The same for SAC
# with HER.
#
# Usage: `python examples/sb3_with_pchid.py`; it takes about a minute.

# %%
import gymnasium as gym
import gymnasium_robotics
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.evaluation import evaluate_policy

from pchid import HindsightReplayBuffer, Interaction, JointTraining

gym.register_envs(gymnasium_robotics)
returns = {}


def make_env():
    return gym.make("FetchReach-v4")


def measure(name, model, hindsight=None):
    """The return of 10 fresh episodes: -50 never reaches the goal, about -2 goes straight there."""
    returns[name], _ = evaluate_policy(model, make_env(), n_eval_episodes=10, warn=False)
    test_steps = hindsight.test_steps if hindsight else 0
    print(f"{name:18} return {returns[name]:6.1f}   {model.num_timesteps:,} environment and {test_steps:,} TEST steps")


# %% [markdown]
# ## PPO
#
# A script as you have it already.

# %%
model = PPO("MultiInputPolicy", make_env(), n_steps=250, batch_size=50, gamma=0.95, seed=0, device="cpu")
model.learn(1_000)
measure("PPO", model)

# %% [markdown]
# The same with hindsight. `Interaction` tries pieces out in simulators of its own, which `make_env` makes.

# %%
model = PPO("MultiInputPolicy", make_env(), n_steps=250, batch_size=50, gamma=0.95, seed=0, device="cpu")
hindsight = JointTraining(K_max=5, test=Interaction(make_env))  # the added line ...
model.learn(1_000, callback=hindsight)  # ... and where it goes
measure("PPO + PCHID", model, hindsight)

# %% [markdown]
# ## SAC with HER
#
# HER relabels too, but has to learn a value function first. `learning_starts` lets hindsight teach the actor while the
# critic has seen nothing yet, and a smaller learning rate keeps it from undoing that (`docs/combinations.md`).

# %%
settings = {"replay_buffer_class": HindsightReplayBuffer, "gamma": 0.95, "seed": 0, "device": "cpu"}
network = {"policy_kwargs": {"net_arch": [64, 64]}}
model = SAC("MultiInputPolicy", make_env(), learning_rate=1e-3, learning_starts=100, **network, **settings)
model.learn(600)
measure("SAC + HER", model)

# %%
model = SAC("MultiInputPolicy", make_env(), learning_rate=3e-4, learning_starts=400, **network, **settings)
hindsight = JointTraining(K_max=5, test=Interaction(make_env), updates_per_episode=100)
model.learn(600, callback=hindsight)
measure("SAC + HER + PCHID", model, hindsight)
