"""Episodes that exist already, and the spaces that they belong to: what is learned from with no environment at hand.

In: `Episodes`, with spaces or without. Out: `LoggedEpisodes`, whose arrays are as their spaces say. Spaces that are not
given are inferred, where data can tell them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pchid.episodes import Episodes
from pchid.errors import InputError
from pchid.goals import KEYS, check_spaces
from pchid.hindsight import displacement

Array = NDArray[Any]
Kind = TypeVar("Kind", bound=Episodes)
SLACK = 1e-5
"""Of the range of an action: how far rounding may have put a logged one outside."""


@dataclass(frozen=True)
class LoggedEpisodes(Episodes):
    """Episodes, and the spaces of the environment that they came from."""

    observation_space: spaces.Dict
    action_space: spaces.Space[Any]

    def first(self, count: int) -> LoggedEpisodes:
        """See `Episodes`."""
        return select(self, slice(count))


@dataclass(frozen=True)
class Within:
    """A goal is reached when the achieved one is nearer than `tolerance`, as on Fetch."""

    tolerance: float

    def __post_init__(self) -> None:
        if not 0.0 < self.tolerance < float("inf"):
            raise InputError(f"tolerance is a distance and must be positive and finite, not {self.tolerance}")

    def __call__(self, achieved: Array, desired: Array) -> NDArray[np.bool_]:
        """(B, ...), (B, ...) -> (B,)."""
        return displacement(achieved, desired) < self.tolerance


def goals_equal(achieved: Array, desired: Array) -> NDArray[np.bool_]:
    """A goal is reached when the achieved one is the same, (B, ...), (B, ...) -> (B,)."""
    same: NDArray[np.bool_] = (achieved == desired).reshape(len(achieved), -1).all(axis=1)
    return same


def select(episodes: Kind, rows: Any) -> Kind:
    """The chosen episodes, with the spaces that they had."""
    cut = {one.name: value[rows] for one in fields(Episodes) if (value := getattr(episodes, one.name)) is not None}
    return replace(episodes, **cut)


def join_episodes(parts: Sequence[Episodes]) -> Episodes:
    """Several batches of episodes, as a `Recorder` hands them out, as one."""
    if not parts:
        raise InputError("there are no episodes to learn from")
    horizon = max(part.action.shape[1] for part in parts)
    longest = {"observation": horizon + 1, "achieved_goal": horizon + 1, "action": horizon, "state": horizon}
    joined: dict[str, Any] = {}
    for name in (one.name for one in fields(Episodes)):
        values = [getattr(part, name) for part in parts]
        if any(value is None for value in values):
            joined[name] = None
            continue
        if name in longest:
            values = [np.pad(v, [(0, 0), (0, longest[name] - v.shape[1]), *[(0, 0)] * (v.ndim - 2)]) for v in values]
        joined[name] = np.concatenate(values)
    return Episodes(**joined)


def with_spaces(
    episodes: Episodes,
    observation_space: spaces.Dict | None = None,
    action_space: spaces.Space[Any] | None = None,
) -> LoggedEpisodes:
    """Episodes with their spaces: those given, or what the arrays tell of them; both must go together."""
    if len(episodes) == 0:
        raise InputError("there are no episodes to learn from")
    arrays = {key: np.asarray(getattr(episodes, key)) for key in KEYS}
    arrays = {key: values.astype(np.int8) if values.dtype == bool else values for key, values in arrays.items()}
    leading = {"observation": 2, "achieved_goal": 2, "desired_goal": 1}
    if observation_space is None:
        inferred: dict[str, Any] = {key: _unbounded(v.shape[leading[key] :], v.dtype) for key, v in arrays.items()}
        observation_space = spaces.Dict(inferred)
    if action_space is None:
        action_space = _discrete_actions(episodes.action)
    check_spaces(observation_space, action_space)
    for key, values in arrays.items():
        arrays[key] = _converted(values, observation_space[key], f"'{key}'", leading[key])
    arrays["action"] = _checked_actions(episodes, action_space)
    rest = {one.name: getattr(episodes, one.name) for one in fields(Episodes) if one.name not in arrays}
    return LoggedEpisodes(**arrays, **rest, observation_space=observation_space, action_space=action_space)


def spaces_agree(stored: spaces.Dict, own: spaces.Space[Any]) -> bool:
    """Whether goals and observations are of the same spaces; one inferred from arrays goes with all of its shape."""

    def agree(one: spaces.Space[Any], other: spaces.Space[Any]) -> bool:
        inferred = isinstance(one, spaces.Box) and one == _unbounded(one.shape, one.dtype)
        return one == other or (inferred and one.shape == other.shape)

    known = isinstance(own, spaces.Dict) and all(key in own.spaces for key in KEYS)
    return known and all(agree(stored[key], own[key]) for key in KEYS)  # type: ignore[index]


def _unbounded(shape: tuple[int, ...], dtype: Any) -> spaces.Box:
    """What arrays tell of a space: its shape and its type."""
    kind = np.dtype(dtype)
    low, high = (-np.inf, np.inf) if kind.kind == "f" else (np.iinfo(kind).min, np.iinfo(kind).max)
    return spaces.Box(np.full(shape, low, kind), np.full(shape, high, kind), shape, kind.type)


def _converted(values: Array, space: spaces.Space[Any], what: str, leading: int) -> Array:
    """Values as their space has them; refused if they are of another shape, or would be others then."""
    if values.shape[leading:] != space.shape:
        raise InputError(f"{what} has the shape {values.shape[leading:]}, but its space {space} says {space.shape}")
    with np.errstate(invalid="ignore", over="ignore"):
        converted: Array = values.astype(space.dtype)
    if not np.allclose(converted.astype(np.float64), values.astype(np.float64)):
        raise InputError(f"{what} is {values.dtype}, but its space {space} cannot hold such values")
    return converted


def _discrete_actions(action: Array) -> spaces.Discrete[Any]:
    if action.dtype.kind not in "iu" or action.ndim != 2:
        raise InputError(
            "the actions are continuous or have several parts, and their bounds cannot be known from data: give "
            "action_space, for example gymnasium.spaces.Box(-1, 1, (4,)); a file may hold action_low and action_high"
        )
    return spaces.Discrete(int(action.max()) + 1)


def _checked_actions(episodes: Episodes, space: spaces.Space[Any]) -> Array:
    """The actions as their space has them, none outside."""
    action = np.asarray(episodes.action)
    shape = space.shape or ()
    if action.shape[2:] != shape:
        raise InputError(f"the actions have the shape {action.shape[2:]}, but their space {space} says {shape}")
    if isinstance(space, spaces.Discrete):
        if action.dtype.kind not in "iu":
            raise InputError(f"the actions of {space} must be whole numbers, not {action.dtype}")
        outside = (action < 0) | (action >= space.n)
    else:
        assert isinstance(space, spaces.Box)
        slack = SLACK * (space.high - space.low)
        outside = (action < space.low - slack) | (action > space.high + slack)
    within = np.arange(action.shape[1]) < episodes.length[:, None]
    wrong = np.argwhere(outside.reshape(*within.shape, -1).any(axis=2) & within)
    for episode, step in wrong[:1]:
        raise InputError(f"episode {episode} takes the action {action[episode, step]} at step {step}, outside {space}")
    return action.astype(space.dtype)
