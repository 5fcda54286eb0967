# %% [markdown]
# # Your own environment
#
# A goal environment from scratch, trained on in seconds. `docs/own_environment.md` tells more about each part.
#
# Usage: `python examples/own_environment.py`, or cell by cell in an editor that knows `# %%`.

# %%
import gymnasium as gym
import numpy as np
from gymnasium import spaces

from pchid import PCHID, GoalVecEnv, evaluate, make_vector

# %% [markdown]
# ## The environment
#
# A cart on a rail, pushed by a motor, must stop near a given place. The motor is slow: what it is told shows in the
# cart's place only a step later.


# %%
class Cart(gym.Env):
    """A cart on a rail of two metres that must come within 3 cm of a place."""

    def __init__(self):
        place, sensors = spaces.Box(-1.0, 1.0, (1,), np.float64), spaces.Box(-1.0, 1.0, (2,), np.float64)
        self.observation_space = spaces.Dict(observation=sensors, achieved_goal=place, desired_goal=place)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-0.9, 0.9, (2, 1))
        self.velocity = np.zeros(1)
        return self.observe(), {}

    def step(self, action):
        self.place = np.clip(self.place + self.velocity, -1.0, 1.0)
        self.velocity = 0.6 * self.velocity + 0.05 * action
        reward = float(self.compute_reward(self.place, self.goal, {}))
        return self.observe(), reward, False, False, {"is_success": reward == 0.0}

    def observe(self):
        sensors = np.concatenate([self.place, self.velocity])
        return {"observation": sensors, "achieved_goal": self.place.copy(), "desired_goal": self.goal.copy()}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return np.where(np.abs(achieved_goal - desired_goal).max(axis=-1) < 0.03, 0.0, -1.0)

    # These two and `observe` let TEST try things out (by interaction).
    def get_state(self):
        return np.concatenate([self.place, self.velocity, self.goal])

    def set_state(self, state):
        self.place, self.velocity, self.goal = np.split(np.array(state), 3)


gym.register("Cart-v0", entry_point=Cart, max_episode_steps=40)

# %% [markdown]
# ## How good is nothing at all?
#
# Final success: the goal holds at the last step. All methods are measured on the same 100 starts and goals.

# %%
simulator = make_vector("Cart-v0", num_envs=100, autoreset=False)


def final_success(act):
    return evaluate(act, simulator, episodes=100, seed=7).measures().final_success


rng = np.random.default_rng(0)
success = {"random actions": final_success(lambda seen: rng.uniform(-1, 1, (len(seen["observation"]), 1)))}

# %% [markdown]
# ## Train
#
# With pieces of one step nothing can be learned: the motor is too slow for them. With two steps, everything is there.
# Longer pieces (four steps) are tried out by TEST before they are believed.

# %%
test_steps = {}
for name, settings in {
    "pieces of 1 step": {"K_max": 1},
    "pieces of 2 steps": {"K_max": 2, "K_step": 2},
    "pieces of 2 and 4 steps": {"K_max": 4, "K_step": 2},
}.items():
    model = PCHID("MultiInputPolicy", GoalVecEnv.make("Cart-v0"), updates_per_episode=20, seed=0, **settings)
    model.learn(total_timesteps=800)
    success[name] = final_success(lambda seen, model=model: model.predict(seen)[0])
    test_steps[name] = model.test_steps

# %% [markdown]
# ## What it found

# %%
print("20 episodes of 40 steps, then 100 fresh goals")
for name, value in success.items():
    print(f"{name:24} final success {value:.2f}   TEST steps {test_steps.get(name, 0):,}")
