"""What a goal environment is here (Sec. 3.1 and 3.3): its keys, the mapping m, and when a goal is reached.

In: spaces and environments of Gymnasium or Stable-Baselines3. Out: checked spaces, `is_success`, and the
capabilities (`Restorable`, `HasDistance`) that TEST builds on. Every check fails before any work is done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pchid.errors import InputError, RunError

KEYS = ("observation", "achieved_goal", "desired_goal")

Array = NDArray[Any]
Success = Callable[[Array, Array], NDArray[np.bool_]]


@runtime_checkable
class Restorable(Protocol):
    """A vector environment whose slots can be put back into any saved state: what Interaction needs."""

    num_envs: int

    def get_state(self) -> Array:
        """Everything the future of each slot depends on, shape (num_envs, S)."""

    def set_state(self, states: Array, slots: Array | None = None) -> None:
        """Put `states` (len(slots), S) into the given slots, by default into all."""

    def observe(self) -> dict[str, Array]:
        """The current observations of all slots, without a step."""


@runtime_checkable
class HasDistance(Protocol):
    """An environment that knows the least number of steps to a goal: what GroundTruth needs."""

    def distance(self, states: Array, goals: Array) -> NDArray[np.float64]:
        """Steps from each saved state (P, S) to each goal (P, ...) under the optimal policy; inf if none."""


class Symmetry(Protocol):
    """Scenes that the dynamics do not tell apart from given ones, one for each of B pairs."""

    def observations(self, observations: dict[str, Array]) -> dict[str, Array]:
        """What the other scenes show, by key, as new arrays."""

    def actions(self, actions: Array) -> Array:
        """What does there what these actions do here, as a new array."""


DrawSymmetry = Callable[[int, np.random.Generator], Symmetry]
"""`draw_symmetry(count, rng)` of an environment that knows its symmetries: one for each of `count` pairs."""


def vector_of(env: Any) -> Any:
    """The vector environment inside a `VecEnv` of ours; None in others."""
    return getattr(env.unwrapped, "vector", None)


def symmetries_of(environment: Any, wanted: bool) -> DrawSymmetry | None:
    """How to draw an environment's symmetries, if they are wanted."""
    if not wanted:
        return None
    found: DrawSymmetry | None = attribute(environment, "draw_symmetry")
    if found is None:
        raise InputError(
            "symmetries needs an environment with draw_symmetry(count, rng), as FetchPush, FetchSlide and "
            "FetchPickAndPlace have where they are made by their ids or GoalVecEnv.make; leave it out here"
        )
    return found


def is_restorable(environment: Any) -> bool:
    """Whether a vector environment is `Restorable`; one made of single environments says so itself."""
    return bool(getattr(environment, "restorable", isinstance(environment, Restorable)))


def check_spaces(observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
    """Refuse an environment that is not a goal environment, or whose actions cannot be imitated."""
    if not isinstance(observation_space, spaces.Dict) or any(key not in observation_space.spaces for key in KEYS):
        found = list(observation_space.spaces) if isinstance(observation_space, spaces.Dict) else observation_space
        raise InputError(
            f"not a goal environment: its observations are {found}, "
            f"but pchid needs a Dict with the keys {', '.join(KEYS)}"
        )
    for key in KEYS:
        space = observation_space.spaces[key]
        if isinstance(space, spaces.Dict | spaces.Tuple):
            raise InputError(
                f"the observation key '{key}' holds a nested {type(space).__name__} space; "
                "flatten it first, for example with gymnasium.wrappers.TransformObservation"
            )
        if not isinstance(space, spaces.Box | spaces.MultiBinary):
            raise InputError(f"the observation key '{key}' is a {space}; pchid needs arrays (Box or MultiBinary)")
    if observation_space["achieved_goal"].shape != observation_space["desired_goal"].shape:
        raise InputError("achieved_goal and desired_goal differ in shape, so no achieved goal can serve as a goal")
    if isinstance(action_space, spaces.Discrete):
        if action_space.start != 0:
            raise InputError(f"discrete actions must count from 0, but these start at {action_space.start}")
    elif not isinstance(action_space, spaces.Box):
        raise InputError(f"unsupported action space {action_space}: pchid imitates Discrete and Box actions")
    elif not np.all(np.isfinite([action_space.low, action_space.high])):
        raise InputError(
            f"the action space {action_space} is unbounded; give it finite limits, such as Box(-1, 1, "
            f"{action_space.shape}), in the environment itself or by gymnasium.wrappers.TransformAction"
        )


def batched(function: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Array]:
    """`function` over a batch of goals, also where the environment's own code takes one pair at a time.

    Which of the two it is, the first batch of several pairs decides: both ways must agree on it.
    """
    takes_batches: bool | None = None

    def one_by_one(achieved: Array, desired: Array) -> Array:
        values = [function(a, d) for a, d in zip(achieved, desired, strict=True)]
        return np.array(values).reshape(len(achieved))

    def over_batch(achieved: Array, desired: Array) -> Array:
        nonlocal takes_batches
        if takes_batches:
            return np.asarray(function(achieved, desired))
        result = one_by_one(achieved, desired)
        if takes_batches is None and len(achieved) > 1:
            try:
                takes_batches = np.array_equal(np.asarray(function(achieved, desired)), result)
            except (ValueError, IndexError, TypeError, AssertionError):
                takes_batches = False
        return result

    return over_batch


def success_function(environment: Any) -> Success:
    """`is_success(achieved (B, ...), desired (B, ...)) -> (B,)`: the environment's own, or else by its reward.

    By reward, a goal is reached when the reward is that of standing on it: r(s, m(s)) (Sec. 3.3).
    """
    own = attribute(environment, "is_success") or attribute(environment, "_is_success")
    if own is not None:
        own_success = batched(own)
        return lambda achieved, desired: own_success(achieved, desired).astype(bool)
    reward = reward_function(environment)
    known = np.empty(0)
    """The two rewards, as far as they have been met."""

    def reaches(achieved: Array, desired: Array) -> NDArray[np.bool_]:
        nonlocal known
        values = reward(achieved, desired)
        known = two_values(np.concatenate([known, values]))
        reached: NDArray[np.bool_] = values >= reward(desired, desired)
        return reached

    return reaches


def reward_function(environment: Any) -> Callable[[Array, Array], Array]:
    """`reward(achieved (B, ...), desired (B, ...)) -> (B,)` by the environment's `compute_reward`."""
    compute_reward = attribute(environment, "compute_reward")
    if compute_reward is None:
        raise InputError(
            "the environment has no compute_reward(achieved_goal, desired_goal, info), "
            "so pchid cannot tell when a relabelled goal is reached"
        )
    return batched(lambda achieved, desired: compute_reward(achieved, desired, {}))


def check_sparse(environment: Any, achieved: Array, desired: Array) -> None:
    """Refuse a dense reward, seen over all pairs of the given goals."""
    rows, columns = np.indices((len(achieved), len(desired))).reshape(2, -1)
    two_values(reward_function(environment)(achieved[rows], desired[columns]))


def two_values(rewards: Array) -> Array:
    """The least and the largest of these rewards; any other is refused."""
    ends = np.array([rewards.min(), rewards.max()] if len(rewards) else [])
    if not np.isin(rewards, ends).all():
        raise InputError(
            "the reward is dense, but hindsight needs a sparse one that tells reached from not reached; "
            "use the sparse version of the environment (for Fetch: without 'Dense' in its name)"
        )
    return ends


def check_finite(values: Array, what: str, step: int) -> None:
    """Stop at the first NaN or infinity, before it spoils the buffers and the policy."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise RunError(f"the environment returned NaN or infinity in {what} at environment step {step}")


def null_action(action_space: spaces.Space[Any], environment: Any = None) -> Array | None:
    """The action of the sub-policy pi_0 on (S x G)_0, which keeps a reached goal: zero, where zero is allowed.

    An environment where something else keeps it says so by `hold_action()`; NaN there leaves a part to the policy.
    """
    own = attribute(environment, "hold_action") if environment is not None else None
    if own is not None:
        return np.asarray(own(), action_space.dtype)
    if isinstance(action_space, spaces.Box) and action_space.contains(np.zeros(action_space.shape, action_space.dtype)):
        return np.zeros(action_space.shape, action_space.dtype)
    return None


def attribute(environment: Any, name: str) -> Any | None:
    """`environment.name`, through Gymnasium's wrappers or Stable-Baselines3's VecEnv, or None."""
    for owner in (environment, getattr(environment, "unwrapped", None)):
        if owner is not None and hasattr(owner, name):
            return getattr(owner, name)
    if hasattr(environment, "env_method"):  # a VecEnv of Stable-Baselines3: ask its first environment
        if not environment.has_attr(name):
            return None
        return lambda *args: environment.env_method(name, *args, indices=[0])[0]
    if isinstance(environment, VectorEnv):  # made of single environments, which are all alike: ask the first
        return attribute(environment.envs[0], name) if hasattr(environment, "envs") else None
    if hasattr(environment, "get_wrapper_attr"):
        with contextlib.suppress(AttributeError):
            return environment.get_wrapper_attr(name)
    return None
