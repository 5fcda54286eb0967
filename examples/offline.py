# %% [markdown]
# # From logged episodes, with no environment
#
# Twenty episodes of random motion, logged once, and then no simulator: PCHID relabels their pieces with what they
# reached and learns to reach. The same log with its goals as they were teaches nothing. At the end there is an
# environment again, and training goes on in it.
#
# Usage: `python examples/offline.py`

# %%
import gymnasium as gym
import gymnasium_robotics
import numpy as np

from pchid import PCHID, evaluate, make_probe
from pchid.offline import episodes_from_arrays, load_episodes, save_episodes

gym.register_envs(gymnasium_robotics)
TOLERANCE = 0.05  # metres, within which FetchReach counts a goal as reached

# %% [markdown]
# ## A log
#
# Whoever acts: a person, a script, an older agent. Here nobody in particular does. What counts is that the three goal
# keys are written down before and after every action.

# %%
env = gym.make("FetchReach-v4")
env.action_space.seed(0)
observations: dict[str, list[np.ndarray]] = {"observation": [], "achieved_goal": [], "desired_goal": []}
actions: list[np.ndarray] = []
for seed in range(20):
    seen, taken, done = [env.reset(seed=seed)[0]], [], False
    while not done:
        taken.append(env.action_space.sample())
        after, _, terminated, truncated, _ = env.step(taken[-1])
        seen.append(after)
        done = terminated or truncated
    for key, episodes in observations.items():
        episodes.append(np.stack([one[key] for one in seen]))  # one more than actions
    actions.append(np.stack(taken))

log = episodes_from_arrays(observations, actions, action_space=env.action_space)
file = save_episodes("runs/reach-log.npz", log)
print(f"{len(log)} episodes, {log.length.sum()} steps, in {file}")

# %% [markdown]
# ## Fit
#
# From here on, nothing steps an environment. Pieces of up to two steps are enough: those of a random walk that are
# longer are long ways round, and without an environment TEST cannot tell.

# %%
log = load_episodes(file)
model = PCHID.from_episodes(log, tolerance=TOLERANCE, K_max=2, seed=0).fit(log, progress_bar=True)
control = PCHID.from_episodes(log, tolerance=TOLERANCE, K_max=2, relabel=False, seed=0).fit(log)
model.save("runs/reach-offline")

# %% [markdown]
# ## What it can do
#
# To measure, a simulator is needed after all.

# %%
probe = make_probe("FetchReach-v4", 50)


def success(agent: PCHID) -> float:
    return evaluate(lambda seen: agent.predict(seen)[0], probe, 50, seed=7).measures().final_success


found = {"relabelled": success(model), "goals as they were": success(control)}

# %% [markdown]
# ## Go on in an environment
#
# Policy, buffers and K stay. TEST is now by interaction.

# %%
model.set_env("FetchReach-v4")
model.learn(total_timesteps=150)
found["and 150 steps in the environment"] = success(model)
for name, share in found.items():
    print(f"{share:.2f}  {name}")
