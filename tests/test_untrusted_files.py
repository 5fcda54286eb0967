"""Nothing that is read can run code: pickles in every place, and no file appears."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import QUICK, Outcome

import pchid.cli
from pchid.algorithms import PCHID, PEHID
from pchid.checkpoint import numbers
from pchid.errors import InputError

Call = Callable[..., Outcome]


class Bomb:
    """Unpickling it creates a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.system, (f"touch {self.marker}",)


def stable_baselines_zip(marker: Path) -> bytes:
    """A model as Stable-Baselines3 would save it, with the bomb in each of its places."""
    data = {"policy_class": {":type:": "x", ":serialized:": base64.b64encode(pickle.dumps(Bomb(marker))).decode()}}
    weights = io.BytesIO()
    torch.save({"weights": Bomb(marker)}, weights)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("data", json.dumps(data))
        file.writestr("policy.pth", weights.getvalue())
        file.writestr("pytorch_variables.pth", weights.getvalue())
    return archive.getvalue()


def torch_file(marker: Path) -> bytes:
    data = io.BytesIO()
    torch.save(Bomb(marker), data)
    return data.getvalue()


KINDS: dict[str, Callable[[Path], bytes]] = {
    "pickle": lambda marker: pickle.dumps(Bomb(marker)),
    "text pickle": lambda marker: pickle.dumps(Bomb(marker), protocol=0),
    "torch": torch_file,
    "zip": stable_baselines_zip,
}
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    words = ("train", "BitFlip-v0", "--env.n_bits", 4, "--method", "hid", "--episodes", 4, *QUICK, "--out", out)
    assert pchid.cli.main([str(word) for word in words]) == 0
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


def test_the_bombs_would_go_off(marker: Path) -> None:
    pickle.loads(KINDS["pickle"](marker))
    assert marker.exists()
    marker.unlink()
    torch.load(io.BytesIO(KINDS["torch"](marker)), weights_only=False)
    assert marker.exists()


def assert_refused(outcome: Outcome, code: int) -> None:
    assert outcome.code == code, outcome
    assert len(outcome.err.splitlines()) == 1, outcome.err
    assert outcome.err.startswith("pchid: ")


@kinds
@pytest.mark.parametrize("name", ["arrays.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("signed", [False, True])
def test_in_a_checkpoint(call: Call, run: Path, marker: Path, kind: str, name: str, signed: bool) -> None:
    folder = run / "checkpoint" / f"{numbers(run / 'checkpoint')[-1]:07d}"
    data = KINDS[kind](marker)
    (folder / name).write_bytes(data)
    if signed and name != "manifest.json":  # whoever can write the file can write its digest
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["digests"][name] = hashlib.sha256(data).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(manifest))
    outcome = call("train", "--resume", "--quiet", "--out", run)
    assert_refused(outcome, 1)
    assert f"{folder.name}/" in outcome.err
    assert not marker.exists()


@kinds
def test_as_the_policy(call: Call, run: Path, marker: Path, kind: str) -> None:
    file = run / "policy" / "agent.safetensors"
    file.write_bytes(KINDS[kind](marker))
    assert_refused(call("evaluate", run, "--episodes", 2), 2)
    for algorithm in (PCHID, PEHID):
        with pytest.raises(InputError, match=r"agent\.safetensors"):
            algorithm.load(file)
    assert not marker.exists()


@kinds
@pytest.mark.parametrize("name", ["agent.zip", "agent.pkl", "agent.pth"])
def test_as_a_file_of_another_name(tmp_path: Path, marker: Path, kind: str, name: str) -> None:
    (tmp_path / name).write_bytes(KINDS[kind](marker))
    for path in (tmp_path / name, tmp_path / "agent"):
        with pytest.raises(InputError):
            PCHID.load(path)
    assert not marker.exists()


@kinds
@pytest.mark.parametrize("name", ["config.json", "metrics.csv", "summary.json"])
def test_as_one_of_the_other_files(call: Call, run: Path, marker: Path, kind: str, name: str) -> None:
    (run / name).write_bytes(KINDS[kind](marker))
    for words in (("train", "--resume", "--quiet", "--out", run), ("plot", run, "--out", run / "curve.png")):
        outcome = call(*words)
        assert len(outcome.err.splitlines()) == (outcome.code != 0)
        assert outcome.code == 2 or name != "config.json"
    assert not marker.exists()


def test_beside_the_files_that_are_read(call: Call, run: Path, marker: Path) -> None:
    data = {"zip": stable_baselines_zip(marker), "pkl": pickle.dumps(Bomb(marker)), "pth": torch_file(marker)}
    newest = run / "checkpoint" / f"{numbers(run / 'checkpoint')[-1]:07d}"
    for folder in (run, run / "policy", run / "checkpoint", newest):
        for ending, content in data.items():
            (folder / f"agent.{ending}").write_bytes(content)
            (folder / f"policy.{ending}").write_bytes(content)
    assert call("train", "--resume", "--quiet", "--out", run).code == 0
    assert call("evaluate", run, "--episodes", 2).code == 0
    assert not marker.exists()


def test_as_maps(call: Call, tmp_path: Path, marker: Path, run: Path) -> None:
    file = tmp_path / "maps.npz"
    bomb = np.empty(1, object)
    bomb[0] = Bomb(marker)
    np.savez(file, obstacle=bomb, start=bomb, goal=bomb)
    assert_refused(call("evaluate", run, "--maps", file), 2)
    file.write_bytes(pickle.dumps(Bomb(marker)))
    assert_refused(call("evaluate", run, "--maps", file), 2)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["os:system", "antigravity:Thing-v0", "user_envs:UserLine-v0"])
def test_a_module_named_in_a_file_is_not_imported(call: Call, run: Path, name: str) -> None:
    import sys

    config = json.loads((run / "config.json").read_text())
    config["env"] = name
    (run / "config.json").write_text(json.dumps(config))
    assert_refused(call("evaluate", run), 2)
    assert_refused(call("train", "--resume", "--quiet", "--out", run), 2)
    assert "antigravity" not in sys.modules


def test_a_class_named_in_a_file_is_not_imported(run: Path) -> None:
    file = run / "policy" / "agent.safetensors"
    data = file.read_bytes()
    for other in (b"os.system.", b"subproces.", b"BasePolicy"):
        assert data.count(b'\\"policy\\": \\"GoalPolicy\\"') == 1
        file.write_bytes(data.replace(b'\\"policy\\": \\"GoalPolicy\\"', b'\\"policy\\": \\"' + other + b'\\"'))
        with pytest.raises(InputError):
            PCHID.load(file)
