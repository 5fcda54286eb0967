# %% [markdown]
# # A policy in the loop of a robot
#
# Load a trained policy and let it control a robot at a fixed rate: read the sensors, set the goal, act, check. The
# robot here is FetchReach in simulation; for yours, write another `Robot` with the same two methods.
#
# Usage: `python examples/robot_loop.py`; the first call trains for some seconds and keeps the agent in `runs/`.

# %%
import time
from pathlib import Path

import gymnasium as gym
import gymnasium_robotics
import numpy as np

from pchid import PCHID

gym.register_envs(gymnasium_robotics)
AGENT = Path("runs/robot-agent.safetensors")
RATE = 25  # commands a second: what the policy was trained at, one for each step of the simulator
TOLERANCE = 0.05  # metres


# %% [markdown]
# ## The robot
#
# Its readings must be those of training: the same numbers, in the same order and units.


# %%
class Robot:
    """FetchReach as a robot: sensors in, the gripper's velocity out."""

    def __init__(self) -> None:
        self.env = gym.make("FetchReach-v4", max_episode_steps=-1)  # a robot has no last step
        self.seen = self.env.reset(seed=0)[0]

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """All sensors, and where the gripper is."""
        return self.seen["observation"], self.seen["achieved_goal"]

    def command(self, action: np.ndarray) -> None:
        """Move for one period."""
        self.seen = self.env.step(action)[0]


# %% [markdown]
# ## Train, or load
#
# A loaded agent needs no environment to act, and its file is plain data.

# %%
if not AGENT.exists():
    PCHID("MultiInputPolicy", "FetchReach-v4", seed=0).learn(total_timesteps=500).save(AGENT)
agent = PCHID.load(AGENT, device="cpu")

# %% [markdown]
# ## The loop
#
# One goal after the other, each until it is reached or two seconds have passed. `predict` must be much quicker than the
# period. A deadline, not a pause of fixed length, keeps the rate: what one turn takes is not added to the next.

# %%
robot = Robot()
agent.predict(robot.seen)  # the first call prepares things, so it is slower than the others
goals = robot.read()[1] + np.array([(0.10, 0.10, 0.05), (-0.10, 0.10, -0.05), (0.10, -0.12, 0.10), (0.0, 0.0, 0.0)])
thinking, reached = [], []


def away_from(goal: np.ndarray) -> float:
    return float(np.linalg.norm(robot.read()[1] - goal))


started = deadline = time.perf_counter()
for goal in goals:
    turns = 0
    while turns < 2 * RATE and away_from(goal) >= TOLERANCE:
        observation, place = robot.read()
        asked = time.perf_counter()
        action, _ = agent.predict({"observation": observation, "achieved_goal": place, "desired_goal": goal})
        thinking.append(time.perf_counter() - asked)
        robot.command(action)
        turns += 1
        deadline += 1 / RATE
        time.sleep(max(0.0, deadline - time.perf_counter()))
    reached.append(away_from(goal) < TOLERANCE)
    outcome = "reached" if reached[-1] else "not reached"
    print(f"goal {np.round(goal, 2)}: {outcome} after {turns / RATE:.2f} s, {100 * away_from(goal):.1f} cm away")

# %% [markdown]
# ## What it found

# %%
rate = len(thinking) / (time.perf_counter() - started)
middle, worst = 1000 * np.median(thinking), 1000 * np.max(thinking)
print(f"{sum(reached)} of {len(goals)} goals; {rate:.1f} commands a second, wanted {RATE}")
print(f"predict takes {middle:.2f} ms in the middle, {worst:.2f} ms at worst, of {1000 / RATE:.0f} ms")
