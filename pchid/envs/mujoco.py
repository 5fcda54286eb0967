"""Any MuJoCo goal environment that can be saved and restored (what Interaction needs, Sec. 3.6).

In: a Gymnasium environment with MuJoCo's `model` and `data`, in itself or in an environment that it holds, as the
mazes of gymnasium-robotics do. Out: the same with `get_state`, `set_state` and `observe`.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pchid.errors import InputError

# What a step may read before MuJoCo computes it afresh: FetchPickAndPlace, for one, moves its gripper relative to the
# body positions of the last substep, and AntMaze measures its progress from them.
STALE_QUANTITIES = (
    *("xpos", "xquat", "xmat", "xipos", "site_xpos", "site_xmat", "geom_xpos", "subtree_com", "cvel", "cdof"),
    *("cfrc_ext", "sensordata", "actuator_force", "qacc"),
)
INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION
WORD = 2**64
GENERATOR_WORDS = 6


def _environments(env: gym.Env[Any, Any]) -> list[Any]:
    """The innermost environment, and those that it holds as its attributes."""
    inner = env.unwrapped
    return [inner, *(value.unwrapped for value in vars(inner).values() if isinstance(value, gym.Env))]


def _simulation(env: gym.Env[Any, Any]) -> Any | None:
    """The one of them that holds MuJoCo's `model` and `data`, or None."""
    owners = (owner for owner in _environments(env) if isinstance(getattr(owner, "data", None), mujoco.MjData))
    return next(owners, None)


def is_restorable(env: gym.Env[Any, Any]) -> bool:
    """Whether `RestorableMujoco` can wrap this environment: MuJoCo inside, and observations of a fixed size."""
    return env.observation_space.is_np_flattenable and _simulation(env) is not None


class RestorableMujoco(gym.Wrapper[Any, Any, Any, Any]):
    """Adds saved states to a MuJoCo environment.

    A state holds the observation, MuJoCo's integration state, the quantities that may be read stale, the numbers that
    the environment remembers as its attributes (the goal, for one), and its random generators. What it remembers in
    another form is lost; a probe tries out whether a restored environment plays on as before, and refuses one that
    does not.
    """

    def __init__(self, env: gym.Env[Any, Any], observation: Any = None) -> None:
        """`observation` is what an environment shows that is in the middle of an episode, which then goes on."""
        super().__init__(env)
        owner: Any = _simulation(env)
        self._owner = owner
        self._owners = _environments(env)
        inner = self._owners[0]
        self._size = mujoco.mj_stateSize(self._owner.model, INTEGRATION)
        self._observation: NDArray[Any] = np.empty(0)  # flat, as it is saved
        self._memory = self._numbers()
        now = None
        if observation is not None:
            self._observation = self._flat(observation)
            now = self.get_state()
        # Some attributes come into being with the first reset or step, and every environment must know the same ones.
        inner.reset(seed=0)
        inner.step(np.zeros(inner.action_space.shape, inner.action_space.dtype))
        known = self._numbers()
        if now is not None:
            self.set_state(now)
        self._memory = known

    def _numbers(self) -> list[tuple[Any, str, tuple[int, ...]]]:
        """The attributes that hold numbers, with their owners and shapes."""
        return [
            (owner, name, np.shape(value))
            for owner in self._owners
            for name, value in sorted(vars(owner).items())
            if _is_number(value)
        ]

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """As the environment does."""
        observation, info = self.env.reset(**kwargs)
        self._observation = self._flat(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the environment does."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._observation = self._flat(observation)
        return observation, reward, terminated, truncated, info

    def _flat(self, observation: Any) -> NDArray[Any]:
        return np.asarray(spaces.flatten(self.observation_space, observation))

    def observe(self) -> Any:
        """The observation of the current state, without a step."""
        return spaces.unflatten(self.observation_space, self._observation.copy())

    def get_state(self) -> NDArray[np.float64]:
        """The state as one vector, whose words may be more than numbers: copy it, do not calculate with it."""
        data = self._owner.data
        integration = np.empty(self._size)
        mujoco.mj_getState(self._owner.model, data, integration, INTEGRATION)
        numbers = [_numbers_of(owner, name, shape) for owner, name, shape in self._memory]
        stale = [getattr(data, name) for name in STALE_QUANTITIES]
        generators = [_generator_words(owner.np_random) for owner in self._owners]
        parts = [self._observation, *numbers, integration, *stale, *generators]
        return np.concatenate([np.ravel(part).astype(np.float64, copy=False) for part in parts])

    def set_state(self, state: NDArray[np.float64]) -> None:
        """Go back to a state that `get_state` gave, here or in another environment of the same kind."""
        model, data = self._owner.model, self._owner.data
        words = _Words(state)
        self._observation = words.take(np.empty(spaces.flatdim(self.observation_space), self._observation.dtype))
        for owner, name, shape in self._memory:
            value = getattr(owner, name)
            if not isinstance(value, np.ndarray):
                number = words.take(np.empty(shape)).item()
                # An attribute that is whole here may have become a fraction since.
                setattr(owner, name, type(value)(number) if type(value)(number) == number else number)
            elif value.base is not None:
                value[...] = words.take(value)  # it looks into something larger, perhaps MuJoCo's data
            else:
                setattr(owner, name, words.take(value))
        integration = words.take(np.empty(self._size))
        mujoco.mj_setState(model, data, integration, INTEGRATION)
        # Contacts and all else that is derived; what the environment would have read older than that is put back after.
        mujoco.mj_forward(model, data)
        mujoco.mj_setState(model, data, integration, INTEGRATION)
        for name in STALE_QUANTITIES:
            field = getattr(data, name)
            field[...] = words.take(field)
        for owner in self._owners:
            _set_generator(owner.np_random, words.take(np.empty(GENERATOR_WORDS)))
        words.check_end()


class _Words:
    """A state, read from its beginning to its end."""

    def __init__(self, state: NDArray[np.float64]) -> None:
        self._state, self._position = state, 0

    def take(self, like: NDArray[Any]) -> NDArray[Any]:
        """The next words, as a new array of the shape and type of `like`."""
        start, self._position = self._position, self._position + like.size
        if self._position > len(self._state):
            raise InputError("this state was saved by an environment of another kind: it is too short")
        return self._state[start : self._position].reshape(like.shape).astype(like.dtype)

    def check_end(self) -> None:
        """Refuse a state that holds more than was read."""
        if self._position < len(self._state):
            raise InputError("this state was saved by an environment of another kind: it is too long")


def _is_number(value: Any) -> bool:
    """Whether an attribute is a number, or an array of them that can be written."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fiub" and value.flags.writeable
    return isinstance(value, int | float | np.number | np.bool_)


def _numbers_of(owner: Any, name: str, shape: tuple[int, ...]) -> Any:
    """The value of an attribute, which must look as it did when its place in the state was settled."""
    value = getattr(owner, name, None)
    if value is None or not _is_number(value) or np.shape(value) != shape:
        raise InputError(
            f"'{name}' of {type(owner).__name__} does not keep its shape, so a restored state would not hold it; "
            "give the environment get_state and set_state of its own, or use --test rnd"
        )
    return value


def _generator_words(generator: np.random.Generator) -> NDArray[np.float64]:
    """The state of a PCG64 generator, bit by bit, in place of six numbers."""
    if not isinstance(generator.bit_generator, np.random.PCG64):
        raise InputError(
            f"a restored state needs random numbers from PCG64, not {type(generator.bit_generator).__name__}"
        )
    state: Any = generator.bit_generator.state
    values = (state["state"]["state"], state["state"]["inc"])
    words = [part for value in values for part in divmod(value, WORD)] + [state["has_uint32"], state["uinteger"]]
    return np.array(words, np.uint64).view(np.float64)


def _set_generator(generator: np.random.Generator, words: NDArray[np.float64]) -> None:
    high, low, inc_high, inc_low, has_uint32, uinteger = words.view(np.uint64).tolist()
    state: Any = generator.bit_generator.state
    state["state"] = {"state": high * WORD + low, "inc": inc_high * WORD + inc_low}
    state["has_uint32"], state["uinteger"] = has_uint32, uinteger
    generator.bit_generator.state = state
