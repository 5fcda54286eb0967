"""Environments as a user might write them: good ones, odd ones and broken ones."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Observation = dict[str, Any]


class Walk(gym.Env[Observation, Any]):
    """Walk left or right on a line of whole numbers to a goal; nobody can tell whether it is reached."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    render_mode = None

    def __init__(self, reach: int = 4) -> None:
        self.reach = reach
        bounds = spaces.Box(-100.0, 100.0, (1,), np.float32)
        self.observation_space = spaces.Dict(observation=bounds, achieved_goal=bounds, desired_goal=bounds)
        self.action_space = spaces.Discrete(2)
        self.position = np.zeros(1, np.float32)
        self.goal = np.zeros(1, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = np.zeros(1, np.float32)
        side = 1 if self.np_random.random() < 0.5 else -1
        self.goal = np.array([side * self.np_random.integers(1, self.reach)], np.float32)
        return self.look(), {}

    def look(self) -> Observation:
        return {"observation": self.position.copy(), "achieved_goal": self.position.copy(), "desired_goal": self.goal}

    def move(self, action: Any) -> None:
        self.position = self.position + np.float32(1 if action == 1 else -1)

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.move(action)
        return self.look(), -1.0, False, False, {}


class Line(Walk):
    """The walk with a sparse reward; it cannot be restored and does not end at the goal."""

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.move(action)
        reward = float(self.compute_reward(self.position, self.goal, {}))
        return self.look(), reward, False, False, {"is_success": reward == 0.0}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.where(np.abs(achieved - desired).max(axis=-1) < 0.5, 0.0, -1.0)


class RestorableLine(Line):
    """The line with saved states."""

    def get_state(self) -> np.ndarray:
        return np.concatenate([self.position, self.goal]).astype(np.float64)

    def set_state(self, state: np.ndarray) -> None:
        self.position, self.goal = np.split(np.asarray(state, np.float32), 2)

    def observe(self) -> Observation:
        return self.look()


class LoggedLine(RestorableLine):
    """Continuous steps in the plane; keeps a list of all that it was told to do and of where it then was."""

    def __init__(self) -> None:
        super().__init__()
        bounds = spaces.Box(-100.0, 100.0, (2,), np.float64)
        self.observation_space = spaces.Dict(observation=bounds, achieved_goal=bounds, desired_goal=bounds)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.log: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def reset(self, **settings: Any) -> tuple[Observation, dict[str, Any]]:
        super().reset(**settings)
        self.position = np.zeros(2)
        self.goal = self.np_random.uniform(-3, 3, 2)
        return self.look(), {}

    def move(self, action: Any) -> None:
        before = self.position
        self.position = before + action
        self.log.append((before, np.array(action), self.position))


class Reused(LoggedLine):
    """Hands out the same arrays each time and writes into them, also at a reset."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = {key: np.zeros(2) for key in self.observation_space.spaces}  # type: ignore[attr-defined]

    def look(self) -> Observation:
        for key, value in super().look().items():
            self.shown[key][:] = value
        return self.shown


class PassThrough(Line):
    """The goal lies at 2, the walker only ever goes to the right, and nothing stops it."""

    def reset(self, **settings: Any) -> tuple[Observation, dict[str, Any]]:
        super().reset(**settings)
        self.goal = np.array([2.0], np.float32)
        return self.look(), {}


class OnePairAtATime(Line):
    """A reward written for a single pair of goals in the plane."""

    def __init__(self) -> None:
        super().__init__()
        bounds = spaces.Box(-100.0, 100.0, (2,), np.float32)
        self.observation_space = spaces.Dict(observation=bounds, achieved_goal=bounds, desired_goal=bounds)
        self.action_space = spaces.Discrete(4)

    def reset(self, **settings: Any) -> tuple[Observation, dict[str, Any]]:
        super().reset(**settings)
        self.position = np.zeros(2, np.float32)
        self.goal = self.np_random.integers(1, 3, 2).astype(np.float32)
        return self.look(), {}

    def move(self, action: Any) -> None:
        self.position = self.position + np.array([(1, 0), (-1, 0), (0, 1), (0, -1)], np.float32)[action]

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        near = abs(achieved[0] - desired[0]) < 0.5 and abs(achieved[1] - desired[1]) < 0.5
        return 0.0 if near else -1.0


class Nested(Line):
    """An observation inside the observation."""

    def __init__(self) -> None:
        super().__init__()
        inner = self.observation_space["observation"]  # type: ignore[index]
        self.observation_space = spaces.Dict(
            observation=spaces.Dict(place=inner), achieved_goal=inner, desired_goal=inner
        )


class ManyDiscrete(Line):
    """Actions that are no single choice."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiDiscrete([2, 2])


class Unbounded(Line):
    """Actions without bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Mismatched(Line):
    """Goals of another shape than what is achieved."""

    def __init__(self) -> None:
        super().__init__()
        wide = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.observation_space = spaces.Dict({**self.observation_space.spaces, "desired_goal": wide})  # type: ignore[attr-defined]


class Dense(Line):
    """The nearer, the better."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -np.abs(achieved - desired).max(axis=-1)


class Breaking(Line):
    """After its third step something is not a number."""

    def __init__(self, what: str = "observation") -> None:
        super().__init__()
        self.what = what
        self.steps = 0

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        self.steps += 1
        if self.steps > 3 and self.what == "reward":
            reward = float("nan")
        elif self.steps > 3:
            observation[self.what] = np.full(1, np.nan if self.steps % 2 else np.inf, np.float32)
        return observation, reward, terminated, truncated, info


ENVIRONMENTS = {
    "UserLine-v0": Line,
    "UserRestorableLine-v0": RestorableLine,
    "UserLoggedLine-v0": LoggedLine,
    "UserReused-v0": Reused,
    "UserPassThrough-v0": PassThrough,
    "UserOnePairAtATime-v0": OnePairAtATime,
    "UserNested-v0": Nested,
    "UserManyDiscrete-v0": ManyDiscrete,
    "UserUnbounded-v0": Unbounded,
    "UserMismatched-v0": Mismatched,
    "UserDense-v0": Dense,
    "UserWalk-v0": Walk,
    "UserBreaking-v0": Breaking,
}


def register() -> None:
    """Make them known to Gymnasium, once."""
    for name, kind in ENVIRONMENTS.items():
        if name not in gym.registry:
            gym.register(name, entry_point=kind, max_episode_steps=6)


register()
