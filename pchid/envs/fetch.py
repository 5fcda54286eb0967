"""The Fetch tasks as one vector environment on MuJoCo itself: the simulator behind Interaction TEST (Sec. 3.6, 4.2).

In: actions of many slots. Out: the observations, rewards and successes that gymnasium-robotics would give, one slot at
a time, with the simulation spread over threads (MuJoCo releases the GIL) and every slot free to be saved and restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from pchid.envs import register_robotics
from pchid.envs.fetch_symmetry import FetchSymmetry
from pchid.envs.mujoco import RestorableMujoco
from pchid.envs.parallel import Threads
from pchid.envs.randomness import SeededSlots, SlotEpisodes
from pchid.errors import InputError, RunError
from pchid.goals import DrawSymmetry

TASKS = ("FetchReach", "FetchPush", "FetchSlide", "FetchPickAndPlace")
FETCH_MODULE = "gymnasium_robotics.envs.fetch."
FETCH_IDS = tuple(f"{task}{reward}-v4" for task in TASKS for reward in ("", "Dense"))

Observations = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

HOLD = np.array([0.0, 0.0, 0.0, np.nan], np.float32)
"""What keeps a reached goal: the arm stays. The fingers do as the policy says (NaN): zero would open them."""
FINGERS = ("robot0:r_gripper_finger_joint", "robot0:l_gripper_finger_joint")
STEP_SCALE = 0.05  # metres that the gripper's target moves at most in one step, in each direction
MIN_OBJECT_DISTANCE = 0.1  # metres between the gripper and an object, when an episode starts
ROTATION = (1.0, 0.0, 1.0, 0.0)  # added to the quaternion of the gripper's target: it always points down
INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION
POSE = 7  # position and quaternion of the body that the target drags along


class _Robot:
    """One slot: its MuJoCo data, and views of the numbers that an observation is made of."""

    def __init__(self, env: Any) -> None:
        """Prepare a robot of the kind of `env`, a single Fetch environment."""
        self.model, self.substeps = env.model, env.n_substeps
        self.data = mujoco.MjData(self.model)
        self.mocap_pos, self.mocap_quat = self.data.mocap_pos[0], self.data.mocap_quat[0]
        self.ctrl, self.qvel = self.data.ctrl, self.data.qvel
        self.views = {
            name: getattr(self.data, name).reshape(-1)
            for name in ("qpos", "qvel", "site_xpos", "site_xmat", "xpos", "xquat")
        }
        qpos = self.data.qpos
        address = self.model.jnt_qposadr[self.model.joint(FINGERS[0]).id]
        self.blocked_fingers = qpos[address : address + 2] if env.block_gripper else None
        self.grip = self.model.site("robot0:grip").id
        self.object = self.model.site("object0").id if env.has_object else None
        self.jacobian, self.rotation_jacobian = np.zeros((2, 3, self.model.nv))
        self.velocities = np.zeros((3, 3))
        """Of the gripper, the object, and the object's rotation; the latter two stay zero without an object."""

    def begin(self, state: Floats) -> None:
        """Start an episode."""
        mujoco.mj_setState(self.model, self.data, state, INTEGRATION)
        mujoco.mj_forward(self.model, self.data)
        self.differentiate()

    def aim(self, target: Floats, opening: Floats) -> None:
        """Set the controls: the pose that drags the gripper along, and the fingers where they can be moved."""
        self.mocap_pos[:], self.mocap_quat[:], self.ctrl[:] = target[:3], target[3:], opening

    def simulate(self) -> None:
        """Let the time of one step pass."""
        mujoco.mj_step(self.model, self.data, nstep=self.substeps)
        if self.blocked_fingers is not None:
            self.blocked_fingers[:] = 0.0
            # Positions and Jacobians are all that is read before the next step, which computes the rest anew. (It
            # starts from the forces of its own last time: mj_forward, which gymnasium-robotics calls, leaves these be.)
            mujoco.mj_kinematics(self.model, self.data)
            mujoco.mj_comPos(self.model, self.data)
        self.differentiate()

    def differentiate(self) -> None:
        """Velocities of the sites from Jacobian and joint velocities, of which only the latter need be fresh."""
        mujoco.mj_jacSite(self.model, self.data, self.jacobian, None, self.grip)
        np.dot(self.jacobian, self.qvel, out=self.velocities[0])
        if self.object is not None:
            mujoco.mj_jacSite(self.model, self.data, self.jacobian, self.rotation_jacobian, self.object)
            np.dot(self.jacobian, self.qvel, out=self.velocities[1])
            np.dot(self.rotation_jacobian, self.qvel, out=self.velocities[2])


class RestorableFetch(RestorableMujoco):
    """A single Fetch environment, which knows of itself what `FetchVectorEnv` knows."""

    def hold_action(self) -> NDArray[np.float32]:
        """See `HOLD`."""
        return HOLD.copy()

    @property
    def draw_symmetry(self) -> DrawSymmetry | None:
        """As there; in a user's own scene there may be more than the arm and an object."""
        task: Any = self.unwrapped
        return FetchSymmetry.draw if task.has_object and type(task).__module__.startswith(FETCH_MODULE) else None


def is_fetch(env: gym.Env[Any, Any]) -> bool:
    """Whether a single environment is a Fetch task of gymnasium-robotics, or built on one."""
    return any(kind.__module__.startswith(FETCH_MODULE) for kind in type(env.unwrapped).mro())


class FetchVectorEnv(SeededSlots, VectorEnv[Observations, NDArray[Any], NDArray[Any]]):
    """FetchReach, FetchPush, FetchSlide or FetchPickAndPlace (`-v4`, sparse or dense) in many slots.

    A saved state holds the full integration state of MuJoCo, and two things that the task reads without computing
    them afresh: the pose of the gripper, from which the next target is measured, and the observation. Where the
    gripper is not blocked (PickAndPlace) both are one substep older than the joints.
    """

    def __init__(
        self,
        env_id: str = "FetchReach-v4",
        num_envs: int = 1,
        *,
        threads: int | None = None,
        horizon: int | None = None,
        success_reward: float = 0.0,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        **options: Any,
    ) -> None:
        """`threads` default to the cores, `horizon` to the task's 50 steps; `options` reach gymnasium-robotics.

        A sparse task gives `success_reward` wherever the goal holds, and -1 elsewhere.
        """
        if env_id not in FETCH_IDS:
            raise InputError(f"FetchVectorEnv knows {', '.join(FETCH_IDS)}, not '{env_id}'")
        for name, value in (("num_envs", num_envs), ("horizon", horizon)):
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if render_mode not in (None, "rgb_array"):
            raise InputError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        mode = AutoresetMode(autoreset_mode)
        if mode not in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
            raise InputError(f"autoreset_mode must be SAME_STEP or DISABLED, got {mode.name}")
        register_robotics()
        from gymnasium_robotics.utils.rotations import mat2euler

        self._euler_angles = mat2euler
        # One environment of gymnasium-robotics gives the model, the start and every constant, draws, and judges.
        single: Any = gym.make(
            env_id, max_episode_steps=-1, disable_env_checker=True, render_mode=render_mode, **options
        ).unwrapped
        self._single = single
        if success_reward != 0.0 and single.reward_type != "sparse":
            raise InputError("success_reward is for sparse rewards: use the task without 'Dense' in its name")
        if not -1.0 < success_reward < np.inf:
            raise InputError(f"success_reward must be finite and above the -1 of all other steps, got {success_reward}")
        self.success_reward = success_reward
        spec = gym.spec(env_id)
        self.spec, self.num_envs, self.render_mode, self.autoreset_mode = spec, num_envs, render_mode, mode
        self.horizon = horizon or spec.max_episode_steps or 50
        self.metadata = {**single.metadata, "autoreset_mode": mode}
        self.single_observation_space = single.observation_space
        self.single_action_space = single.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._episodes = SlotEpisodes(num_envs)

        model = single.model
        self._model = model
        self._robots = [_Robot(single) for _ in range(num_envs)]
        self._fingers = [model.joint(name).id for name in FINGERS]
        self._weld = int(model.eq_obj2id[np.flatnonzero(model.eq_type == mujoco.mjtEq.mjEQ_WELD)[0]])
        self._actuated = model.jnt_qposadr[model.actuator_trnid[:, 0]]
        self._state_size = mujoco.mj_stateSize(model, INTEGRATION)
        self._start = self._initial_state()
        if single.has_object:  # in an integration state, the time comes before the joint positions
            self._object_place = 1 + int(model.jnt_qposadr[model.joint("object0:joint").id])
        self.elapsed = np.zeros(num_envs, np.int64)
        self._goals = np.zeros((num_envs, 3))
        self._poses = np.zeros((num_envs, POSE))
        self._observation = np.zeros((num_envs, *single.observation_space["observation"].shape))
        self._started = False
        self._threads = Threads(threads)

    # Episodes.

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode in every slot; `options={"episode": n}` says which episode of the seeds to start."""
        every = np.ones(self.num_envs, bool)
        if seed is not None:
            self._episodes.seed(seed, every)
        self._begin(every, (options or {}).get("episode"))
        self._started = True
        observations = self.observe()
        return observations, self._success_info(observations, every)

    def _begin(self, mask: Flags, numbers: Any = None) -> None:
        """Put the next episodes, or those with the given numbers, into the slots of the mask."""
        self._episodes.ensure_seeds(self.np_random)
        self._episodes.advance(mask, numbers)
        slots = np.flatnonzero(mask)
        self.elapsed[slots] = 0
        starts = [self._draw(slot, seed) for slot, seed in zip(slots, self._episodes.reset_seeds(slots), strict=True)]
        self._threads.map(lambda start: start[0].begin(start[1]), starts)
        self._read(slots)

    def _draw(self, slot: np.int64, seed: int) -> tuple[_Robot, Floats]:
        """Draw the goal of a slot and where its object lies, as gymnasium-robotics does from the same seed."""
        single = self._single
        single._np_random, _ = np_random(seed)
        start = self._start.copy()
        if single.has_object:
            middle = place = single.initial_gripper_xpos[:2]
            while np.linalg.norm(place - middle) < MIN_OBJECT_DISTANCE:
                place = middle + single._np_random.uniform(-single.obj_range, single.obj_range, size=2)
            start[self._object_place : self._object_place + 2] = place
        self._goals[slot] = single._sample_goal()
        return self._robots[slot], start

    def _initial_state(self) -> Floats:
        """The integration state that every episode starts from, but for the place of the object."""
        data, state = mujoco.MjData(self._model), np.empty(self._state_size)
        data.time = self._single.initial_time
        data.qpos[:], data.qvel[:] = self._single.initial_qpos, self._single.initial_qvel
        mujoco.mj_getState(self._model, data, state, INTEGRATION)
        return state

    # Steps.

    def step(self, actions: ArrayLike) -> tuple[Observations, Floats, Flags, Flags, dict[str, Any]]:
        """Take one action in each slot; under same-step autoreset a finished one shows its next episode's start."""
        every = np.arange(self.num_envs)
        observations = self.advance(actions, every)
        rewards = np.asarray(self.compute_reward(observations["achieved_goal"], self._goals), np.float64)
        terminated = np.zeros(self.num_envs, bool)  # the goal is to be held until time is up
        truncated = self.elapsed >= self.horizon
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and truncated.any():
            final: NDArray[np.object_] = np.full(self.num_envs, None, dtype=object)
            for slot in np.flatnonzero(truncated):
                final[slot] = {key: values[slot] for key, values in observations.items()}
            infos = {"final_obs": final, "_final_obs": truncated.copy()}
            infos |= {"final_info": self._success_info(observations, truncated), "_final_info": truncated.copy()}
            self._begin(truncated)
            observations = self.observe()
        infos |= self._success_info(observations, np.ones(self.num_envs, bool))
        return observations, rewards, terminated, truncated, infos

    def advance(self, actions: ArrayLike, slots: NDArray[np.int64]) -> Observations:
        """Take one action in each of the given slots alone, and return what these show: what a probe needs."""
        if not self._started:
            raise ResetNeeded("Call reset (or set_state) before observing or stepping.")
        controls = np.asarray(actions)
        if controls.shape != (len(slots), 4):
            raise InputError(f"actions must have shape {(len(slots), 4)}, got {controls.shape}")
        controls = np.clip(controls, self._single.action_space.low, self._single.action_space.high)
        # The order and types of gymnasium-robotics: the displacement is scaled in the type of the action.
        targets = self._poses[slots]
        targets[:, :3] += controls[:, :3] * STEP_SCALE
        targets[:, 3:] += ROTATION
        grip = np.zeros((len(slots), 0))
        if len(self._actuated):
            grip = self._gather("qpos", slots)[:, self._actuated] + controls[:, 3:].astype(np.float64)
        for slot, target, opening in zip(slots.tolist(), targets, grip, strict=True):
            self._robots[slot].aim(target, opening)
        self._threads.map(_Robot.simulate, [self._robots[slot] for slot in slots.tolist()])
        self.elapsed[slots] += 1
        self._read(slots)
        return self._observations(slots)

    def _gather(self, name: str, slots: NDArray[np.int64]) -> Floats:
        """A field of MuJoCo's data, one row a slot."""
        return np.concatenate([self._robots[slot].views[name] for slot in slots.tolist()]).reshape(len(slots), -1)

    def _read(self, slots: NDArray[np.int64]) -> None:
        """Bring poses and observations up to date, after a step or a reset of these slots."""
        robot, count = self._robots[0], len(slots)
        self._poses[slots, :3] = self._gather("xpos", slots).reshape(count, -1, 3)[:, self._weld]
        self._poses[slots, 3:] = self._gather("xquat", slots).reshape(count, -1, 4)[:, self._weld]
        sites = self._gather("site_xpos", slots).reshape(count, -1, 3)
        fingers = self._gather("qpos", slots)[:, self._model.jnt_qposadr[self._fingers]]
        dt = robot.substeps * self._model.opt.timestep
        finger_velocities = self._gather("qvel", slots)[:, self._model.jnt_dofadr[self._fingers]] * dt
        velocities = np.stack([self._robots[slot].velocities for slot in slots.tolist()]) * dt
        grip, grip_velocity = sites[:, robot.grip], velocities[:, 0]
        if robot.object is None:
            parts = [grip, fingers, grip_velocity, finger_velocities]
        else:
            thing = sites[:, robot.object]
            rotation = self._euler_angles(self._gather("site_xmat", slots).reshape(count, -1, 3, 3)[:, robot.object])
            relative_velocity = velocities[:, 1] - grip_velocity
            parts = [grip, thing, thing - grip, fingers, rotation, relative_velocity, velocities[:, 2]]
            parts += [grip_velocity, finger_velocities]
        self._observation[slots] = np.concatenate(parts, axis=1)

    def observe(self) -> Observations:
        """The current observations of all slots, as new arrays."""
        if not self._started:
            raise ResetNeeded("Call reset (or set_state) before observing or stepping.")
        return self._observations(np.arange(self.num_envs))

    def _observations(self, slots: NDArray[np.int64]) -> Observations:
        rows = self._observation[slots]
        return {
            "observation": rows,
            "achieved_goal": (rows[:, 3:6] if self._single.has_object else rows[:, :3]).copy(),
            "desired_goal": self._goals[slots],
        }

    def _success_info(self, observations: Observations, mask: Flags) -> dict[str, Any]:
        success = self.is_success(observations["achieved_goal"], observations["desired_goal"])
        return {"is_success": success & mask, "_is_success": mask.copy()}

    # Capabilities.

    def get_state(self) -> Floats:
        """The (N, S) states: steps taken, goal, integration state, pose of the gripper, observation."""
        integration = np.empty((self.num_envs, self._state_size))
        for robot, row in zip(self._robots, integration, strict=True):
            mujoco.mj_getState(self._model, robot.data, row, INTEGRATION)
        return np.concatenate([self.elapsed[:, None], self._goals, integration, self._poses, self._observation], axis=1)

    def set_state(self, states: ArrayLike, slots: ArrayLike | None = None) -> None:
        """Put saved states, from any slot of the same task, into all or the given slots."""
        indices = np.arange(self.num_envs)[slice(None) if slots is None else np.asarray(slots)]
        rows = np.asarray(states, np.float64)
        sizes = (1, 3, self._state_size, POSE, self._observation.shape[1])
        if rows.shape != (len(indices), sum(sizes)):
            raise InputError(f"states must have shape {(len(indices), sum(sizes))}, got {rows.shape}")
        elapsed, goals, integration, poses, observation = np.split(rows, np.cumsum(sizes[:-1]), axis=1)
        for slot, row in zip(indices.tolist(), integration, strict=True):
            mujoco.mj_setState(self._model, self._robots[slot].data, row, INTEGRATION)
        self.elapsed[indices] = elapsed[:, 0]
        self._goals[indices], self._poses[indices], self._observation[indices] = goals, poses, observation
        self._started = True

    def is_success(self, achieved: ArrayLike, desired: ArrayLike) -> Any:
        """Whether each achieved goal lies within the tolerance of the desired one."""
        return np.asarray(self._single._is_success(np.asarray(achieved), np.asarray(desired)), bool)

    def compute_reward(self, achieved: ArrayLike, desired: ArrayLike, info: Any = None) -> Any:
        """The reward for each achieved and desired goal: that of gymnasium-robotics, with `success_reward` for 0."""
        rewards = self._single.compute_reward(np.asarray(achieved), np.asarray(desired), info)
        if self.success_reward == 0.0:
            return rewards
        return np.where(rewards == 0.0, np.float32(self.success_reward), rewards)[()]

    def hold_action(self) -> NDArray[np.float32]:
        """See `HOLD`."""
        return HOLD.copy()

    @property
    def draw_symmetry(self) -> DrawSymmetry | None:
        """Draws scenes that are as good as others: in a mirror, and a little aside. For the tasks with an object."""
        return FetchSymmetry.draw if self._single.has_object else None

    def compute_terminated(self, achieved: ArrayLike, desired: ArrayLike, info: Any = None) -> Any:
        """False throughout: the goal is to be held until time is up."""
        never = np.zeros(np.asarray(achieved).shape[:-1], bool)
        return never if never.ndim else False

    def compute_truncated(self, achieved: ArrayLike, desired: ArrayLike, info: Any = None) -> Any:
        """False throughout: the horizon counts steps, and no choice of goal changes it."""
        return self.compute_terminated(achieved, desired, info)

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """One picture of each slot, goal included."""
        if self.render_mode is None:
            gym.logger.warn("render was called, but the environment was made without a render_mode.")
            return None
        row = np.empty(self._state_size)
        frames = []
        for robot, goal in zip(self._robots, self._goals, strict=True):
            mujoco.mj_getState(self._model, robot.data, row, INTEGRATION)
            mujoco.mj_setState(self._model, self._single.data, row, INTEGRATION)
            mujoco.mj_forward(self._model, self._single.data)
            self._single.goal = goal
            frames.append(self._draw_frame())
        return tuple(frames)

    def _draw_frame(self) -> NDArray[np.uint8]:
        try:
            frame: NDArray[np.uint8] = self._single.render()
        except mujoco.FatalError as error:
            raise RunError(
                f"MuJoCo cannot draw here ({error}); without a display, set MUJOCO_GL=egl or osmesa"
            ) from None
        return frame

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads and close the renderer."""
        self._threads.close()
        self._single.close()
