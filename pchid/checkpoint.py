"""Checkpoints as data: safetensors for arrays, JSON for the rest; atomic, numbered, versioned, exact.

In: a tree of dicts whose leaves are arrays or what JSON can hold. Out: a folder `0000012/` with `arrays.safetensors`,
`state.json` and `manifest.json` (digests of both). Nothing that is read here can run code.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from pchid.errors import RunError

FORMAT = 4
Tree = dict[str, Any]


class DamagedCheckpointError(RunError):
    """A checkpoint that is truncated or altered."""


def save_checkpoint(folder: Path, number: int, tree: Tree, keep: int = 2) -> Path:
    """Write checkpoint `number` under `folder`; it appears whole or not at all, and the newest `keep` stay."""
    arrays, rest = split(tree)
    files = {"arrays.safetensors": save_arrays(arrays), "state.json": _json(rest)}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    files["manifest.json"] = _json({"format": FORMAT, "digests": digests})
    target = folder / f"{number:07d}"
    temporary = folder / f".{target.name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        for name, data in files.items():
            _write_flushed(temporary / name, data)
        temporary.rename(target)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)  # a full disk: give back what the attempt took
        raise
    _flush_folder(folder)
    for old in numbers(folder)[:-keep]:
        shutil.rmtree(folder / f"{old:07d}", ignore_errors=True)
    return target


def numbers(folder: Path) -> list[int]:
    """The checkpoints under `folder`, oldest first."""
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit())


def load_checkpoint(folder: Path, number: int | None = None) -> Tree:
    """Read checkpoint `number`, by default the newest; a damaged one is named, and the one before it offered."""
    found = numbers(folder)
    if not found or (number is not None and number not in found):
        there = f"there are {', '.join(map(str, found))}" if found else "there is none"
        raise RunError(f"no checkpoint{'' if number is None else f' {number}'} in {folder}: {there}")
    number = found[-1] if number is None else number
    try:
        return _read(folder / f"{number:07d}")
    except DamagedCheckpointError as error:
        before = [other for other in found if other < number]
        offer = f"go on from the one before with --checkpoint {before[-1]}" if before else "there is none before it"
        raise DamagedCheckpointError(f"checkpoint {number} is damaged ({error}); {offer}") from None


def _read(path: Path) -> Tree:
    manifest = _parse(path / "manifest.json", _bytes(path / "manifest.json"))
    written = manifest.get("format") if isinstance(manifest, dict) else None
    if isinstance(written, int) and written != FORMAT:
        raise RunError(
            f"checkpoint {int(path.name)} is of format {written}, but this version of pchid reads format {FORMAT}; "
            "go on with the version that wrote it, or start the run again"
        )
    if written != FORMAT:
        raise DamagedCheckpointError(f"{path.name}/manifest.json is not of format {FORMAT}")
    digests = manifest.get("digests")
    contents = {}
    for name in ("arrays.safetensors", "state.json"):
        contents[name] = _bytes(path / name)
        if hashlib.sha256(contents[name]).hexdigest() != (digests.get(name) if isinstance(digests, dict) else None):
            raise DamagedCheckpointError(f"{path.name}/{name} is not as it was written")
    try:
        arrays = load_arrays(contents["arrays.safetensors"])
        return join(arrays, _parse(path / "state.json", contents["state.json"]))
    except SafetensorError as error:
        raise DamagedCheckpointError(f"{path.name}/arrays.safetensors: {error}") from None
    except (KeyError, TypeError):
        raise DamagedCheckpointError(f"{path.name}/state.json and arrays.safetensors do not fit each other") from None


def split(tree: Tree, prefix: str = "") -> tuple[dict[str, NDArray[Any]], Tree]:
    """Part the arrays of a tree, named by their path, from the rest."""
    arrays: dict[str, NDArray[Any]] = {}
    rest: Tree = {}
    for name, value in sorted(tree.items()):
        path = f"{prefix}{name}"
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().numpy()
        if isinstance(value, dict):
            inner, rest[name] = split(value, f"{path}/")
            arrays.update(inner)
        elif isinstance(value, np.ndarray):
            arrays[path] = np.asarray(value, order="C")
        else:
            rest[name] = value
    return arrays, rest


def join(arrays: dict[str, NDArray[Any]], rest: Tree) -> Tree:
    """The tree again."""
    for path, value in arrays.items():
        *folders, name = path.split("/")
        node = rest
        for folder in folders:
            node = node[folder]
        node[name] = value
    return rest


def optimizer_state(optimizer: torch.optim.Optimizer) -> Tree:
    """The state of an optimiser as a tree of arrays."""
    return {str(index): dict(values) for index, values in optimizer.state_dict()["state"].items()}


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: Tree) -> None:
    """Put back what `optimizer_state` gave; the settings of the optimiser stay its own."""
    tensors = {int(index): {name: _tensor(value) for name, value in values.items()} for index, values in state.items()}
    optimizer.load_state_dict({"state": tensors, "param_groups": optimizer.state_dict()["param_groups"]})


def load_module_state(module: torch.nn.Module, state: Tree) -> None:
    """Put back a `state_dict` that was kept as arrays."""
    module.load_state_dict({name: _tensor(value) for name, value in state.items()})


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file so that a crash leaves either the old or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        _write_flushed(temporary, data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def _tensor(value: Any) -> Any:
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


def _write_flushed(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DamagedCheckpointError(f"{path.parent.name}/{path.name}: {error.strerror}") from None


def _parse(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        raise DamagedCheckpointError(f"{path.parent.name}/{path.name} is not JSON") from None
