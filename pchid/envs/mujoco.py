"""Any MuJoCo goal environment that can be saved and restored (what Interaction needs, Sec. 3.6).

In: a Gymnasium environment with `model`, `data` and `goal`. Out: the same with `get_state`, `set_state`, `observe`.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from numpy.typing import NDArray

# What a step or an observation may read before MuJoCo computes it afresh: FetchPickAndPlace, for one, moves its
# gripper relative to the body positions of the last substep, and velocities come from the Jacobian (cdof, subtree_com).
STALE_QUANTITIES = ("xpos", "xquat", "xmat", "site_xpos", "site_xmat", "cvel", "cdof", "subtree_com")


def is_restorable(env: gym.Env[Any, Any]) -> bool:
    """Whether `RestorableMujoco` can wrap this environment."""
    inner: Any = env.unwrapped
    return all(hasattr(inner, name) for name in ("model", "data", "goal", "_get_obs")) and isinstance(
        inner.data, mujoco.MjData
    )


class RestorableMujoco(gym.Wrapper[Any, Any, Any, Any]):
    """Adds saved states to a MuJoCo environment: integration state, goal and the quantities that are read stale."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        inner: Any = env.unwrapped
        self._model, self._data, self._inner = inner.model, inner.data, inner
        self._size = mujoco.mj_stateSize(self._model, mujoco.mjtState.mjSTATE_INTEGRATION)

    def get_state(self) -> NDArray[np.float64]:
        """The state as one vector."""
        integration = np.empty(self._size)
        mujoco.mj_getState(self._model, self._data, integration, mujoco.mjtState.mjSTATE_INTEGRATION)
        stale = [getattr(self._data, name).ravel() for name in STALE_QUANTITIES]
        return np.concatenate([integration, np.ravel(self._inner.goal), *stale])

    def set_state(self, state: NDArray[np.float64]) -> None:
        """Go back to a state that `get_state` gave, here or in another environment of the same kind."""
        mujoco.mj_setState(self._model, self._data, state[: self._size], mujoco.mjtState.mjSTATE_INTEGRATION)
        position = self._size
        goal = self._inner.goal
        self._inner.goal = state[position : position + goal.size].reshape(goal.shape).copy()
        position += goal.size
        for name in STALE_QUANTITIES:
            values = getattr(self._data, name)
            values[...] = state[position : position + values.size].reshape(values.shape)
            position += values.size

    def observe(self) -> dict[str, NDArray[Any]]:
        """The observation of the current state, without a step."""
        observation: dict[str, NDArray[Any]] = self._inner._get_obs()
        return observation
