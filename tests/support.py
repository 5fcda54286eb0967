"""What several tests need: episodes of the domains, a policy that knows the shortest way, a naive TEST."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from pchid.envs.grid_world import GridWorldVectorEnv
from pchid.envs.make import make_vector
from pchid.envs.sb3 import GoalVecEnv
from pchid.episodes import Episodes, Recorder

DOMAINS: list[tuple[str, dict[str, Any]]] = [
    ("BitFlip-v0", {"n_bits": 5}),
    ("GridWorld-v0", {"size": 8, "n_obstacles": 8, "horizon": 20}),
    ("Hanoi-v0", {"n_discs": 3}),
]
QUICK = ("--policy.hidden_sizes", "[16]", "--batch-size", 16, "--eval-episodes", 8, "--final-episodes", 16, "--quiet")
"""Options that make a run of the command line as small as it can be."""


@dataclass(frozen=True)
class Outcome:
    """What a call of the command line left behind."""

    code: int
    out: str
    err: str


def random_episodes(env: GoalVecEnv, rounds: int, seed: int = 0) -> list[Episodes]:
    """Episodes of uniformly random actions, with saved states where there are any."""
    recorder = Recorder(env.observation_space, env.action_space, env.num_envs)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    env.seed(seed)
    recorder.start(env.reset())
    found: list[Episodes] = []
    while len(found) < rounds:
        states = env.vector.get_state()
        actions = rng.integers(env.action_space.n, size=env.num_envs)  # type: ignore[attr-defined]
        episodes = recorder.record(actions, *env.step(actions), states)  # type: ignore[arg-type]
        found += [] if episodes is None else [episodes]
    return found


class ShortestWay:
    """The optimal policy: of all actions, tried in a simulator of its own, the one that ends nearest to the goal."""

    def __init__(self, env_id: str, options: dict[str, Any]) -> None:
        self.env_id, self.options = env_id, options

    def act(self, observations: dict[str, np.ndarray]) -> np.ndarray:
        observation, goal = observations["observation"], observations["desired_goal"]
        env: Any = make_vector(self.env_id, len(goal), autoreset=False, **self.options)
        states = self._states(env, observation, goal)
        away = []
        for action in range(env.single_action_space.n):
            env.set_state(states)
            env.step(np.full(len(goal), action))
            away.append(env.distance(env.get_state(), goal))
        return np.argmin(away, axis=0)

    @staticmethod
    def _states(env: Any, observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
        if isinstance(env, GridWorldVectorEnv):
            start = np.argwhere(observation[:, 1])[:, 1:]
            env.set_maps(observation[:, 0], start, goal)
            return env.get_state()
        both = np.concatenate([observation, goal], axis=1).astype(np.int64)
        if env.spec.id.startswith("Hanoi"):  # one peg for each disc, out of three places of which one is set
            both = both.reshape(len(both), -1, 3).argmax(axis=2)
        return np.concatenate([np.zeros((len(both), 1), np.int64), both], axis=1)

    def imitation_loss(self, observations: dict[str, np.ndarray], action: np.ndarray) -> torch.Tensor:
        return torch.as_tensor((self.act(observations) != action).astype(np.float32))

    def normalise_by(self, observations: dict[str, np.ndarray]) -> None:
        """Nothing to normalise."""


class Scrambled:
    """A policy that is a fixed, arbitrary function of observation and goal: sometimes right, often not."""

    def __init__(self, n_actions: int, salt: int = 0) -> None:
        self.n_actions, self.salt = n_actions, salt

    def act(self, observations: dict[str, np.ndarray]) -> np.ndarray:
        observation, goal = observations["observation"], observations["desired_goal"]
        rows = np.concatenate([observation.reshape(len(goal), -1), goal.reshape(len(goal), -1)], axis=1).astype(int)
        weights = np.random.default_rng(self.salt).integers(1, 1000, rows.shape[1])
        return (rows @ weights + self.salt) % 1009 % self.n_actions

    def imitation_loss(self, observations: dict[str, np.ndarray], action: np.ndarray) -> torch.Tensor:
        return torch.ones(len(action))

    def normalise_by(self, observations: dict[str, np.ndarray]) -> None:
        """Nothing to normalise."""


def naive_solves(
    env_id: str, options: dict[str, Any], policy: Any, states: np.ndarray, goals: np.ndarray, limits: np.ndarray
) -> tuple[list[bool], int]:
    """What a probe should find, one pair after the other in one slot."""
    env: Any = make_vector(env_id, 1, autoreset=False, **options)
    assert env.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    env.reset(seed=1)
    solved, steps = [], 0
    for state, goal, limit in zip(states, goals, limits, strict=True):
        env.set_state(state[None])
        reached = False
        for _ in range(limit):
            action = policy.act({**env.observe(), "desired_goal": goal[None]})
            achieved = env.step(action)[0]["achieved_goal"][0]
            steps += 1
            if np.array_equal(achieved, goal):
                reached = True
                break
        solved.append(reached)
    return solved, steps
