"""Maps of obstacles for GridWorld (Sec. 4.1): their breadth-first search, and reading them from a file.

A map is held as one integer for each grid row, bit c set where column c is blocked. A saved state then is
small enough to keep one for every step, and one integer operation moves a whole row of the search.
"""

from __future__ import annotations

import zipfile
import zlib
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pchid.errors import InputError

MIN_SIZE = 4  # two interior cells a side, inside the border
MAX_SIZE = 64  # the bits of one integer
REQUIRED = ("obstacle", "start", "goal")

Maps = dict[str, NDArray[np.int64]]
Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]
_ONE = np.uint64(1)


def pack(cells: NDArray[Any]) -> Words:
    """Turn (M, size, size) zeros and ones into (M, size) rows of bits."""
    padded = np.zeros((*cells.shape[:2], MAX_SIZE), dtype=np.uint8)
    padded[:, :, : cells.shape[2]] = cells
    return np.packbits(padded, axis=2, bitorder="little").view("<u8")[:, :, 0].astype(np.uint64)


def unpack(words: NDArray[Any], size: int) -> NDArray[np.uint8]:
    """Turn (M, size) rows of bits into (M, size, size) zeros and ones."""
    octets = np.ascontiguousarray(words).astype("<u8").view(np.uint8).reshape(*words.shape, 8)
    return np.unpackbits(octets, axis=2, count=size, bitorder="little")


def single_cells(cells: NDArray[np.int64], size: int) -> Words:
    """Return (M, size) rows of bits with only the given (M, 2) cells set."""
    words = np.zeros((len(cells), size), dtype=np.uint64)
    words[np.arange(len(cells)), cells[:, 0]] = _ONE << cells[:, 1].astype(np.uint64)
    return words


def has(words: NDArray[Any], cells: NDArray[np.int64]) -> Flags:
    """Say of each (M, size) rows of bits whether the given (M, 2) cell is set."""
    rows = words[np.arange(len(cells)), cells[:, 0]]
    bits: Flags = (rows >> cells[:, 1].astype(rows.dtype)) & rows.dtype.type(1) != 0
    return bits


def spread(words: Words) -> Words:
    """Return the cells within one move, in any of the eight directions, of those that are set."""
    wide = words | (words << _ONE) | (words >> _ONE)
    result: Words = wide.copy()
    result[:, 1:] |= wide[:, :-1]
    result[:, :-1] |= wide[:, 1:]
    return result


def reachable(free: Words, cells: NDArray[np.int64]) -> Words:
    """Return the free cells that are connected to the given (M, 2) ones."""
    reached = single_cells(cells, free.shape[1])
    while True:
        grown = reached | (spread(reached) & free)
        if np.array_equal(grown, reached):
            return reached
        reached = grown


def free_cells(blocked: Words) -> Words:
    """Return the cells of (M, size) rows of bits that are not set."""
    return ~blocked & np.uint64(2 ** blocked.shape[1] - 1)


def distance_to_goal(obstacle: ArrayLike, goal: ArrayLike) -> NDArray[np.float64]:
    """Return each cell's least number of moves to the goal of its map, (M, size, size), inf where none.

    All maps are searched at once, one step of the wavefront at a time, for obstacles (M, size, size) and
    goals (M, 2). Blocked cells are at inf.
    """
    blocked, target = pack(np.asarray(obstacle)), np.asarray(goal).astype(np.int64)
    size = blocked.shape[1]
    free = free_cells(blocked)
    front = single_cells(target, size) & free
    distances = np.full((len(blocked), size, size), np.inf)
    depth = 0
    while front.any():
        distances[unpack(front, size) != 0] = depth
        free &= ~front
        front = spread(front) & free
        depth += 1
    return distances


def load_maps(path: str | PathLike[str]) -> Maps:
    """Read obstacle (M, size, size), start (M, 2), goal (M, 2) and perhaps budget (M,) from an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in (*REQUIRED, "budget") if name in archive}
    except OSError as error:
        raise InputError(f"cannot read the maps in {path}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} is not an .npz file of plain arrays.") from error
    return checked_maps(arrays, f"{path}: ")


def checked_maps(arrays: dict[str, NDArray[Any]], origin: str = "") -> Maps:
    """Return the arrays as integers, or say what is wrong in a sentence that opens with `origin`."""
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise InputError(f"{origin}maps need {', '.join(REQUIRED)}, but there is no {' and no '.join(missing)}.")
    obstacle = arrays["obstacle"]
    square = obstacle.ndim == 3 and obstacle.shape[1] == obstacle.shape[2]
    if not square or not len(obstacle) or not MIN_SIZE <= obstacle.shape[1] <= MAX_SIZE:
        raise InputError(
            f"{origin}obstacle must have shape (M, size, size), with at least one map "
            f"and a size from {MIN_SIZE} to {MAX_SIZE}, got {obstacle.shape}."
        )
    count, size = obstacle.shape[:2]
    shapes = {"obstacle": obstacle.shape, "start": (count, 2), "goal": (count, 2), "budget": (count,)}
    for name, array in arrays.items():
        if array.shape != shapes[name]:
            raise InputError(f"{origin}{name} must have shape {shapes[name]}, got {array.shape}.")
        numeric = array.dtype.kind in "biuf" and np.isfinite(array).all()
        if not numeric or (array < 0).any() or (array != np.floor(array)).any():
            raise InputError(f"{origin}{name} must hold whole numbers that are not negative.")
    maps = {name: array.astype(np.int64) for name, array in arrays.items()}
    if (maps["obstacle"] > 1).any():
        raise InputError(f"{origin}obstacle must hold 0 (free) and 1 (blocked) only.")
    for name in ("start", "goal"):
        cells = maps[name]
        if (cells >= size).any():
            raise InputError(f"{origin}{name} must lie inside the map, between 0 and {size - 1}.")
        blocked = maps["obstacle"][np.arange(count), cells[:, 0], cells[:, 1]] != 0
        if blocked.any():
            raise InputError(f"{origin}the {name} of map {int(blocked.argmax())} is a blocked cell.")
    return maps
