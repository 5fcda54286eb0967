"""Learning from logged episodes, with no environment at hand (Sec. 3.6: TEST by RND asks none): where they come from.

In: arrays of episodes, an .npz file or a Minari dataset. Out: `LoggedEpisodes` for `PCHID.from_episodes` and `fit`, and
files of them. Every check fails before anything is learned, with one sentence that names the episode.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from pchid.checkpoint import write_atomically
from pchid.episodes import Episodes
from pchid.errors import InputError
from pchid.goals import KEYS, check_spaces
from pchid.logged import LoggedEpisodes, join_episodes, with_spaces

__all__ = [
    "LoggedEpisodes",
    "episodes_from_arrays",
    "episodes_from_minari",
    "join_episodes",
    "load_episodes",
    "save_episodes",
]

Array = NDArray[Any]
PerEpisode = Sequence[Any] | Array
"""A list with an array for each episode, or one array over episodes that is padded where they end early."""


def episodes_from_arrays(
    observations: Mapping[str, PerEpisode],
    actions: PerEpisode,
    lengths: ArrayLike | None = None,
    *,
    action_space: spaces.Space[Any] | None = None,
    observation_space: spaces.Dict | None = None,
    rewards: PerEpisode | None = None,
) -> LoggedEpisodes:
    """Episodes from what was logged of them.

    `observations` has observation, achieved_goal and desired_goal, each an array (T_i + 1, ...) for each episode, and
    `actions` is one of (T_i, ...): in a list, or padded in one array, and then `lengths` (E,) are the T_i. A desired
    goal may also be given once for each episode. `action_space` is needed for continuous actions, whose bounds data
    cannot tell; discrete ones are taken to be 0 to the largest that was seen.
    """
    missing = [key for key in KEYS if key not in observations]
    if missing:
        raise InputError(f"the observations lack {', '.join(missing)}: pchid needs the keys {', '.join(KEYS)}")
    padded = lengths is not None
    executed = _listed(actions, "the action", 0, _checked_lengths(lengths) if padded else None)
    if not executed:
        raise InputError("there are no episodes to learn from")
    length = np.array([len(entry) for entry in executed], np.int64)
    for episode in np.flatnonzero(length == 0)[:1]:
        raise InputError(f"episode {episode} has no actions, so there is nothing to learn from it")
    observation, achieved = (_listed(observations[key], f"'{key}'", 1, length, padded) for key in KEYS[:2])
    desired = [np.asarray(entry) for entry in observations["desired_goal"]]
    if all(entry.ndim == achieved[0].ndim - 1 for entry in desired):  # one for each episode
        desired = _listed([entry[None] for entry in desired], "'desired_goal'", 0, np.ones_like(length))
    else:
        desired = _listed(desired, "'desired_goal'", 1, length, padded)
    received = [np.zeros(1)] * len(length)
    if rewards is not None:
        received = _listed(rewards, "the reward", 0, length, padded)
    named = {"'observation'": observation, "'achieved_goal'": achieved, "'desired_goal'": desired}
    for what, entries in {**named, "the action": executed, "the reward": received}.items():
        _check_values(entries, what)
    plain = Episodes(
        observation=_padded(observation),
        achieved_goal=_padded(achieved),
        desired_goal=np.stack([entry[0] for entry in desired]),
        action=_padded(executed),
        state=None,
        length=length,
        total_reward=np.array([float(entry.sum()) for entry in received]),
        final_success=np.zeros(len(length), bool),  # nobody has said what success is
    )
    return with_spaces(plain, observation_space, action_space)


def episodes_from_minari(dataset: Any) -> LoggedEpisodes:
    """The episodes of a Minari dataset, given as such or by its id, with the dataset's own spaces."""
    minari = _minari()
    if isinstance(dataset, str):
        try:
            dataset = minari.load_dataset(dataset)
        except (FileNotFoundError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"there is no Minari dataset '{dataset}' here ({reason}); `minari list local` tells what there is"
            ) from None
    try:
        check_spaces(dataset.observation_space, dataset.action_space)
    except InputError as error:
        raise InputError(f"the Minari dataset '{dataset.id}' cannot be learned from: {error}") from None
    found = list(dataset.iterate_episodes())
    return episodes_from_arrays(
        {key: [episode.observations[key] for episode in found] for key in KEYS},
        [episode.actions for episode in found],
        action_space=dataset.action_space,
        observation_space=dataset.observation_space,
        rewards=[episode.rewards for episode in found],
    )


def save_episodes(
    path: str | Path, episodes: Episodes | Sequence[Episodes], action_space: spaces.Space[Any] | None = None
) -> Path:
    """Write episodes to an .npz file, for `load_episodes` and `pchid fit`; it appears whole or not at all.

    It holds observation and achieved_goal (E, T+1, ...), desired_goal (E, ...), action (E, T, ...) and length (E,);
    where the action space is known, also action_low and action_high, or n_actions.
    """
    joined = episodes if isinstance(episodes, Episodes) else join_episodes(episodes)
    space = action_space or getattr(joined, "action_space", None)
    arrays: dict[str, Any] = {name: getattr(joined, name) for name in (*KEYS, "action", "length")}
    if isinstance(space, spaces.Discrete):
        arrays["n_actions"] = np.int64(space.n)
    elif isinstance(space, spaces.Box):
        arrays |= {"action_low": space.low, "action_high": space.high}
    target = Path(path) if Path(path).suffix else Path(path).with_suffix(".npz")
    target.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_atomically(target, content.getvalue())
    return target


def load_episodes(
    path: str | Path,
    action_space: spaces.Space[Any] | None = None,
    observation_space: spaces.Dict | None = None,
) -> LoggedEpisodes:
    """The episodes of an .npz file, see `save_episodes`; nothing in the file can run code."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, ValueError, TypeError, AttributeError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path} is not an .npz file of arrays, or it is damaged ({error})") from None
    missing = [name for name in (*KEYS, "action") if name not in arrays]
    if missing:
        raise InputError(
            f"{path} lacks {', '.join(missing)}: it needs observation, achieved_goal, desired_goal, action and length"
        )
    try:
        return episodes_from_arrays(
            {key: arrays[key] for key in KEYS},
            arrays["action"],
            arrays.get("length"),
            action_space=action_space or _stored_actions(arrays),
            observation_space=observation_space,
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _stored_actions(arrays: dict[str, Array]) -> spaces.Space[Any] | None:
    """The action space that a file tells of, if it does."""
    try:
        if "n_actions" in arrays:
            return spaces.Discrete(int(arrays["n_actions"]))
        if "action_low" in arrays and "action_high" in arrays:
            shape = arrays["action"].shape[2:]
            low, high = (np.broadcast_to(arrays[f"action_{side}"], shape).astype("f4") for side in ("low", "high"))
            return spaces.Box(low, high, shape, np.float32)
    except (ValueError, TypeError, AssertionError) as error:
        raise InputError(f"n_actions, action_low and action_high make no action space ({error})") from None
    return None


def _checked_lengths(lengths: ArrayLike | None) -> NDArray[np.int64]:
    values = np.asarray(lengths)
    if values.ndim != 1 or values.dtype.kind not in "iu" or (values < 0).any():
        raise InputError("the lengths must be one whole number for each episode, none of them negative")
    return values.astype(np.int64)


def _listed(
    values: PerEpisode, what: str, extra: int, length: NDArray[np.int64] | None, padded: bool = True
) -> list[Array]:
    """An array for each episode, of its length (and `extra`) exactly; what is beyond is cut off if it is padding."""
    entries = [np.asarray(entry) for entry in values]
    if length is None:
        for episode in (number for number, entry in enumerate(entries) if entry.ndim == 0):
            raise InputError(f"{what} of episode {episode} is a single value, not an array over its steps")
        return entries
    if len(entries) != len(length):
        raise InputError(f"there are {len(length)} episodes, but {what} is given for {len(entries)}")
    for episode, (entry, steps) in enumerate(zip(entries, length, strict=True)):
        wanted, found = int(steps) + extra, len(entry) if entry.ndim else 0
        if found < wanted or (found > wanted and not padded):
            raise InputError(f"episode {episode} of {steps} steps needs {what} {wanted} times, but it is there {found}")
        entries[episode] = entry[:wanted]
    return entries


def _check_values(entries: list[Array], what: str) -> None:
    """Refuse what are no numbers, shapes that differ, and NaN."""
    usual = entries[0].shape[1:]
    for episode, entry in enumerate(entries):
        if entry.dtype.kind not in "fiub":
            raise InputError(f"{what} of episode {episode} is not made of numbers, but of {entry.dtype}")
        if entry.shape[1:] != usual:
            raise InputError(f"{what} of episode {episode} has the shape {entry.shape[1:]}, in the first it is {usual}")
        if entry.dtype.kind == "f" and not np.isfinite(entry).all():
            step = int(np.argwhere(~np.isfinite(entry))[0][0])
            raise InputError(f"episode {episode} holds NaN or infinity in {what} at step {step}")


def _padded(entries: list[Array]) -> Array:
    """(E, longest, ...), zero where an episode has ended."""
    longest = max(len(entry) for entry in entries)
    stacked = np.zeros((len(entries), longest, *entries[0].shape[1:]), np.result_type(*{e.dtype for e in entries}))
    for row, entry in zip(stacked, entries, strict=True):
        row[: len(entry)] = entry
    return stacked


def _minari() -> Any:
    try:
        import minari
    except ImportError:
        raise InputError("Minari datasets need the package minari: pip install 'pchid[minari]'") from None
    return minari
