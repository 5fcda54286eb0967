"""Listening to the training environments of any Stable-Baselines3 algorithm.

In: the steps of its innermost `VecEnv`, below every wrapper: the actions that were executed and raw observations. Out:
finished `Episodes`, with saved states where the environments can be saved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from pchid.envs.make import SINGLE_SLOTS, as_probe
from pchid.envs.mujoco import RestorableMujoco
from pchid.envs.mujoco import is_restorable as has_mujoco
from pchid.envs.sb3 import GoalVecEnv, MakeProbe
from pchid.episodes import Episodes, Recorder
from pchid.errors import InputError
from pchid.goals import check_spaces, is_restorable

Array = NDArray[Any]

UNKNOWN_WRAPPER = (
    "a wrapper around the training environments changes what the policy observes; hindsight can follow VecNormalize, "
    "but not this one: put it around the single environments instead"
)


class Tap:
    """Records what passes through a `VecEnv`, which works on as before.

    It stands in for the two halves of `step` of the innermost environment while it is open. A wrapper would be seen by
    others: `EvalCallback`, for one, insists that training and evaluation environments be wrapped alike.
    """

    def __init__(self, env: VecEnv) -> None:
        self.env = env.unwrapped
        check_spaces(self.env.observation_space, self.env.action_space)
        if env.observation_space != self.env.observation_space:
            raise InputError(UNKNOWN_WRAPPER)
        self.recorder = Recorder(self.env.observation_space, self.env.action_space, self.env.num_envs)  # type: ignore[arg-type]
        self.episodes: list[Episodes] = []
        self._executed: Array = np.empty(0)
        self._state: Array | None = None
        self._wrapped: list[gym.Env[Any, Any]] = []
        self._get_state: Callable[[], Array] | None = None
        self.make_probe: MakeProbe | None = None
        self._find_simulator()

    @property
    def saves_states(self) -> bool:
        """Whether the environments can be saved, so that TEST can restore them in a probe."""
        return self._get_state is not None

    def open(self, observations: dict[str, Array]) -> None:
        """Start to listen; `observations` are the raw ones that the environments show now."""
        listening = vars(self.env).get("step_wait")
        if listening == self._step_wait:  # the last `learn` was interrupted
            self.close()
        elif listening is not None:
            raise InputError("another hindsight module listens to these environments already; one at a time can")
        now = self.recorder.last_observations()
        if not all(np.array_equal(observations[key], values) for key, values in now.items()):
            self.recorder.start(observations)  # in the middle of an episode, its rest is as good as a whole one
        if self._wrapped:
            assert isinstance(self.env, DummyVecEnv)
            for slot, single in enumerate(self._wrapped):
                shown = {key: values[slot] for key, values in observations.items()}
                self.env.envs[slot] = RestorableMujoco(single, shown)
        env: Any = self.env
        env.step_async, env.step_wait = self._step_async, self._step_wait

    def close(self) -> None:
        """Leave the environments as they were."""
        for name in ("step_async", "step_wait"):
            vars(self.env).pop(name, None)
        for slot, env in enumerate(self._wrapped):
            self.env.envs[slot] = env  # type: ignore[attr-defined]

    def take(self) -> list[Episodes]:
        """The episodes that have ended since the last call."""
        taken, self.episodes = self.episodes, []
        return taken

    def _step_async(self, actions: Array) -> None:
        self._executed = np.array(actions)
        self._state = None if self._get_state is None else self._get_state()
        type(self.env).step_async(self.env, actions)

    def _step_wait(self) -> Any:
        observations, rewards, dones, infos = type(self.env).step_wait(self.env)
        # The infos are read now: VecNormalize replaces the terminal observations in them.
        ended = self.recorder.record(self._executed, observations, rewards, dones, infos, self._state)  # type: ignore[arg-type]
        if ended is not None:
            self.episodes.append(ended)
        return observations, rewards, dones, infos

    def _find_simulator(self) -> None:
        """See how the environments can be saved, and where they can be restored."""
        env: Any = self.env
        if isinstance(env, GoalVecEnv):
            if is_restorable(env.vector):
                self._get_state, self.make_probe = env.vector.get_state, env.make_probe
        elif isinstance(env, DummyVecEnv) and all(has_mujoco(single) for single in env.envs):
            self._wrapped = list(env.envs)
            self._get_state = lambda: _rows([single.get_wrapper_attr("get_state")() for single in env.envs])
            spec = env.envs[0].unwrapped.spec
            if spec is not None:
                self.make_probe = lambda: as_probe(lambda: gym.make(spec), SINGLE_SLOTS)
        elif env.has_attr("get_state") and env.has_attr("set_state") and env.has_attr("observe"):
            self._get_state = lambda: _rows(env.env_method("get_state"))


def _rows(states: list[Array]) -> Array:
    """States of single environments as a vector environment saves them, with the steps taken in front, which a probe
    does not need."""
    own = np.stack([np.ravel(state) for state in states])
    return np.column_stack([np.zeros(len(own), own.dtype), own])
