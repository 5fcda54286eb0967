"""Any MuJoCo goal environment can be saved and restored, a user's own too, or else a probe refuses it."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode

from pchid.envs.make import find_spec, make_vector
from pchid.envs.mujoco import RestorableMujoco, is_restorable
from pchid.envs.single import SingleEnvsVectorEnv
from pchid.errors import InputError
from pchid.solvability import Probe

Observation = dict[str, Any]
ARM = """
<mujoco>
  <option timestep="0.01"/>
  <default><geom type="capsule" size="0.05" density="200"/></default>
  <worldbody>
    <body>
      <joint name="shoulder" type="hinge" axis="0 1 0" damping="0.1"/>
      <geom name="upper" fromto="0 0 0 0.5 0 0"/>
      <body name="lower" pos="0.5 0 0">
        <joint name="elbow" type="hinge" axis="0 1 0" damping="0.1"/>
        <geom name="lower" fromto="0 0 0 0.5 0 0"/>
        <site name="tip" pos="0.5 0 0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="shoulder" gear="5"/><motor joint="elbow" gear="5"/></actuator>
</mujoco>
"""


class Arm(gym.Env[Observation, Any]):
    """Move the tip of an arm of two links, against a trembling of the motors."""

    metadata: dict[str, Any] = {"render_modes": []}
    render_mode = None

    def __init__(self) -> None:
        self.model = mujoco.MjModel.from_xml_string(ARM)
        self.data = mujoco.MjData(self.model)
        box = spaces.Box(-np.inf, np.inf, (3,))
        self.observation_space = spaces.Dict(
            observation=spaces.Box(-np.inf, np.inf, (4,), np.float64), achieved_goal=box, desired_goal=box
        )
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, **settings: Any) -> tuple[Observation, dict[str, Any]]:
        super().reset(**settings)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = self.np_random.uniform(-1.0, 1.0, 2)
        self.goal = self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)
        self.begin()
        mujoco.mj_forward(self.model, self.data)
        return self.look(), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.data.ctrl[:] = action + self.force() + 0.1 * self.np_random.standard_normal(2)
        mujoco.mj_step(self.model, self.data, nstep=3)
        shown = self.look()
        return shown, float(self.compute_reward(shown["achieved_goal"], self.goal, {})), False, False, {}

    def look(self) -> Observation:
        place = np.concatenate([self.data.qpos, self.data.qvel])
        return {"observation": place, "achieved_goal": self.tip(), "desired_goal": self.goal.copy()}

    def tip(self) -> Any:
        return self.data.site_xpos[0].astype(np.float32)

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.where(np.linalg.norm(achieved - desired, axis=-1) < 0.2, 0.0, -1.0)

    def begin(self) -> None:
        """What the memory starts with."""

    def force(self) -> Any:
        """What the memory adds to the motors."""
        return 0.0


class Counts(Arm):
    def begin(self) -> None:
        self.count = 0

    def force(self) -> Any:
        self.count += 1
        return 0.1 * (self.count % 5)


class Distance(Arm):
    def begin(self) -> None:
        self.last: Any = 0.0

    def force(self) -> Any:
        now = float(np.linalg.norm(self.tip() - self.goal))
        change, self.last = now - self.last, now
        return change


class NumpyDistance(Distance):
    """The same, in the type that NumPy's own functions return."""

    def force(self) -> Any:
        now = np.linalg.norm(self.tip() - self.goal)
        change, self.last = now - self.last, now
        return change


class Turns(Arm):
    def begin(self) -> None:
        self.forwards = True

    def force(self) -> Any:
        self.forwards = not self.forwards
        return 0.2 if self.forwards else -0.2


class Traces(Arm):
    def begin(self) -> None:
        self.trace = np.zeros((2, 3), np.float32)

    def force(self) -> Any:
        self.trace = np.stack([self.trace[1], self.tip()])
        return self.trace[0, ::2] - self.trace[1, ::2]


class TracesInPlace(Traces):
    def force(self) -> Any:
        self.trace[0] = self.trace[1]
        self.trace[1] = self.tip()
        return self.trace[0, ::2] - self.trace[1, ::2]


class Tires(Arm):
    """Starts from a whole number, which becomes a fraction."""

    def begin(self) -> None:
        self.tiredness: float = 0

    def force(self) -> Any:
        self.tiredness = 0.9 * self.tiredness + 0.1 * float(self.data.qvel[0])
        return -0.1 * self.tiredness


class Compensates(Arm):
    """Holds the arm against gravity, as it was computed in the step before."""

    def force(self) -> Any:
        return self.data.qfrc_bias / 5.0


class FirstStep(Arm):
    """Remembers nothing until there is something."""

    def begin(self) -> None:
        self.last: Any = None

    def force(self) -> Any:
        change = 0.0 if self.last is None else self.data.qpos - self.last
        self.last = self.data.qpos.copy()
        return -change


class Weighs(Arm):
    """The lower link weighs something else in each episode."""

    def begin(self) -> None:
        self.model.body_mass[2] = 0.5 + 4.0 * abs(self.goal[0])


class Lists(Arm):
    def begin(self) -> None:
        self.past: Any = []

    def force(self) -> Any:
        self.past.append(self.data.qvel[0])
        return 0.1 * len(self.past) - 0.1 * self.past[-1]


class Queues(Lists):
    def begin(self) -> None:
        self.past = deque([0.0, 0.0], maxlen=2)

    def force(self) -> Any:
        self.past.append(self.data.qvel[0])
        return -0.1 * self.past[0]


class Grows(Arm):
    """An array of numbers, but of ever more."""

    def begin(self) -> None:
        self.past = np.zeros(0)

    def force(self) -> Any:
        self.past = np.append(self.past, self.data.qvel[0])
        return -0.1 * self.past.sum()


class Tables(Arm):
    def begin(self) -> None:
        self.memory = {"count": 0}

    def force(self) -> Any:
        self.memory["count"] += 1
        return 0.1 * self.memory["count"]


class OwnGenerator(Arm):
    def begin(self) -> None:
        self.noise = np.random.default_rng(0)

    def force(self) -> Any:
        return self.noise.standard_normal(2)


RESTORED = [Arm, Counts, Distance, NumpyDistance, Turns, Traces, TracesInPlace, Tires]
NOT_AS_NUMBERS = [Compensates, FirstStep, Weighs]
LOST = [Lists, Queues, Grows, Tables, OwnGenerator]
kind: Any
for kind in [*RESTORED, *NOT_AS_NUMBERS, *LOST]:
    if f"User{kind.__name__}-v0" not in gym.registry:
        gym.register(f"User{kind.__name__}-v0", entry_point=kind, max_episode_steps=60)

ROBOTS = [
    *("PointMaze_UMaze-v3", "AntMaze_UMaze-v5", "HandReach-v3", "HandManipulateBlock-v1"),
    *("HandManipulateEgg_BooleanTouchSensors-v1", "HandManipulatePenRotate_ContinuousTouchSensors-v1"),
]


def play(env: Any, actions: np.ndarray) -> list[list[np.ndarray]]:
    """All that each step shows, one row a slot."""
    found = []
    for action in actions:
        observations, rewards, terminated, truncated, _ = env.step(action)
        found.append([*observations.values(), rewards, terminated, truncated])
    return found


def assert_rows(found: list[list[np.ndarray]], expected: list[list[np.ndarray]], rows: list[int]) -> None:
    for left, right in zip(found, expected, strict=True):
        for one, other in zip(left, right, strict=True):
            np.testing.assert_array_equal(one, other[rows])


def some_actions(env: Any, steps: int, rng: np.random.Generator) -> np.ndarray:
    space = env.single_action_space
    return rng.uniform(space.low, space.high, (steps, env.num_envs, *space.shape)).astype(space.dtype)


def assert_plays_on(env: Any, fresh: Any, seed: int) -> None:
    """From states saved at a random step, two slots go on alike: in place, swapped, and in another simulator."""
    rng = np.random.default_rng(seed)
    env.reset(seed=[seed, seed + 1])
    fresh.reset(seed=[seed + 2, seed + 3])
    play(env, some_actions(env, int(rng.integers(1, 50)), rng))
    saved, shown = env.get_state(), env.observe()
    actions = some_actions(env, 20, rng)
    expected = play(env, actions)
    for simulator, rows in ((env, [0, 1]), (env, [1, 0]), (fresh, [1, 0]), (fresh, [0, 1])):
        simulator.set_state(saved[rows])
        np.testing.assert_array_equal(simulator.get_state(), saved[rows])
        for key, values in simulator.observe().items():
            np.testing.assert_array_equal(values, shown[key][rows])
        assert_rows(play(simulator, actions[:, rows]), expected, rows)


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("seed", [0, 10])
def test_a_robot_plays_on_from_a_saved_state(name: str, seed: int) -> None:
    env, fresh = (make_vector(name, 2, autoreset=False) for _ in range(2))
    assert_plays_on(env, fresh, seed)
    Probe(fresh)  # and is accepted


@pytest.mark.parametrize("kind", RESTORED)
def test_so_does_a_users_own_environment_that_remembers_numbers(kind: type[Arm]) -> None:
    name = f"User{kind.__name__}-v0"
    env, fresh = (make_vector(name, 2, autoreset=False) for _ in range(2))
    for seed in (0, 10):
        assert_plays_on(env, fresh, seed)
    Probe(fresh)


@pytest.mark.parametrize("kind", NOT_AS_NUMBERS)
def test_what_depends_on_more_plays_on_or_is_refused(kind: type[Arm]) -> None:
    name = f"User{kind.__name__}-v0"
    try:
        Probe(make_vector(name, 2, autoreset=False))
    except InputError as error:
        assert "restored state" in str(error)
    else:
        env, fresh = (make_vector(name, 2, autoreset=False) for _ in range(2))
        assert_plays_on(env, fresh, 0)


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("slots", [1, 3])
def test_a_memory_in_another_form_is_refused(kind: type[Arm], slots: int) -> None:
    with pytest.raises(InputError, match="restored state"):
        Probe(make_vector(f"User{kind.__name__}-v0", slots, autoreset=False))


def single(name: str) -> RestorableMujoco:
    find_spec(name)
    env = gym.make(name, max_episode_steps=-1, disable_env_checker=True)
    assert is_restorable(env)
    return RestorableMujoco(env)


def test_a_fetch_task_plays_on_as_a_single_environment_too() -> None:
    makers = [lambda: single("FetchPickAndPlace-v4")] * 2
    env, fresh = (SingleEnvsVectorEnv(makers, 50, AutoresetMode.DISABLED) for _ in range(2))
    for seed in (0, 10):
        assert_plays_on(env, fresh, seed)


def test_so_does_a_kitchen_whose_observations_are_nested() -> None:
    env, fresh = (single("FrankaKitchen-v1") for _ in range(2))
    env.reset(seed=3)
    fresh.reset(seed=4)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1.0, 1.0, (37, *env.action_space.shape))  # type: ignore[misc]
    for action in actions[:17]:
        env.step(action)
    saved, shown = env.get_state(), env.observe()
    expected = [env.step(action)[0] for action in actions[17:]]
    for simulator in (env, fresh):
        simulator.set_state(saved)
        assert data_equivalence(simulator.observe(), shown, exact=True)
        for action, wanted in zip(actions[17:], expected, strict=True):
            assert data_equivalence(simulator.step(action)[0], wanted, exact=True)


def test_the_noise_is_really_there() -> None:
    """Without its generator's state an environment would not repeat itself: otherwise the tests above say little."""
    env: Any = make_vector("UserArm-v0", 2, autoreset=False)
    env.reset(seed=[5, 5])
    zeros = np.zeros((2, 2), np.float32)
    alike = env.step(zeros)[0]["observation"]
    np.testing.assert_array_equal(*alike)
    env.envs[0].unwrapped.np_random.random()
    assert not np.array_equal(*env.step(zeros)[0]["observation"])


@pytest.mark.parametrize("kind", [*RESTORED[1:], *NOT_AS_NUMBERS, *LOST])
def test_the_memory_really_matters(kind: type[Arm]) -> None:
    """Each goes elsewhere than the arm without a memory: otherwise the tests above say little."""
    env, plain = (gym.make(f"User{one.__name__}-v0") for one in (kind, Arm))
    env.reset(seed=1)
    plain.reset(seed=1)
    action = np.zeros(2, np.float32)
    assert any(
        not np.array_equal(env.step(action)[0]["observation"], plain.step(action)[0]["observation"]) for _ in range(5)
    )
