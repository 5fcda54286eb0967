"""Checkpoints: exact, whole or not at all, and every kind of damage named."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pchid.checkpoint import (
    FORMAT,
    DamagedCheckpointError,
    join,
    load_checkpoint,
    load_module_state,
    load_optimizer_state,
    numbers,
    optimizer_state,
    save_checkpoint,
    split,
    write_atomically,
)
from pchid.errors import RunError

names = st.text("abcxyz_0123456789", min_size=1, max_size=6)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**200), 2**200) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
dtypes = st.sampled_from([np.float64, np.float32, np.int64, np.int8, np.uint64, np.uint8, np.bool_])
arrays = dtypes.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)))
trees = st.recursive(
    st.dictionaries(names, plain | arrays, max_size=4),
    lambda inner: st.dictionaries(names, inner | plain | arrays, max_size=4),
    max_leaves=8,
)


def assert_same(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert left.tobytes() == right.tobytes()  # bit for bit, NaN included
    else:
        assert left == right


@given(trees)
def test_what_is_split_can_be_joined(tree: dict[str, Any]) -> None:
    found, rest = split(tree)
    assert all(isinstance(value, np.ndarray) for value in found.values())
    assert_same(join(found, json.loads(json.dumps(rest))), tree)


@settings(max_examples=30)
@given(trees)
def test_what_is_saved_can_be_loaded(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    save_checkpoint(folder, 1, tree)
    assert_same(load_checkpoint(folder), tree)
    shutil.rmtree(folder)


TREE = {
    "weights": np.arange(30, dtype=np.float32),
    "rng": np.random.default_rng(0).bit_generator.state,
    "nested": {"steps": 7, "tensor": np.ones((2, 2))},
}


def test_random_states_survive() -> None:
    rng = np.random.default_rng(5)
    rng.random(13)
    copy = np.random.default_rng()
    copy.bit_generator.state = json.loads(json.dumps(split({"rng": rng.bit_generator.state})[1]))["rng"]
    np.testing.assert_array_equal(rng.random(10), copy.random(10))


def test_the_same_tree_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_checkpoint(tmp_path / name, 3, dict(reversed(TREE.items())) if name == "two" else TREE)
    for name in ("arrays.safetensors", "state.json", "manifest.json"):
        one, two = ((tmp_path / side / "0000003" / name).read_bytes() for side in ("one", "two"))
        assert one == two


def test_the_newest_stay_and_the_newest_is_read(tmp_path: Path) -> None:
    for number in range(1, 6):
        save_checkpoint(tmp_path, number, {"number": number}, keep=2)
    assert numbers(tmp_path) == [4, 5]
    assert load_checkpoint(tmp_path) == {"number": 5}
    assert load_checkpoint(tmp_path, 4) == {"number": 4}
    with pytest.raises(RunError, match=r"no checkpoint 3 in .*there are 4, 5"):
        load_checkpoint(tmp_path, 3)


def test_what_was_left_by_a_killed_writer_is_not_a_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, TREE)
    shutil.copytree(tmp_path / "0000001", tmp_path / ".0000002.tmp")
    (tmp_path / ".0000002.tmp" / "manifest.json").unlink()
    assert numbers(tmp_path) == [1]
    save_checkpoint(tmp_path, 2, TREE)
    assert_same(load_checkpoint(tmp_path, 2), TREE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000001", "0000002"]


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is none"):
        load_checkpoint(tmp_path)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    for number in (6, 7):
        save_checkpoint(folder, number, {**TREE, "number": number})
    return folder


FILES = ["arrays.safetensors", "state.json", "manifest.json"]


def assert_named_and_offered(folder: Path, name: str) -> None:
    with pytest.raises(DamagedCheckpointError) as caught:
        load_checkpoint(folder)
    message = str(caught.value)
    assert "checkpoint 7 is damaged" in message
    assert "--checkpoint 6" in message
    assert "\n" not in message
    # A wrong manifest cannot say which file is wrong, so another one may be named.
    assert "0000007/" in message if name == "manifest.json" else f"0000007/{name}" in message
    assert load_checkpoint(folder, 6)["number"] == 6


@settings(max_examples=60)
@given(name=st.sampled_from(FILES), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_seen(
    two: Path, tmp_path_factory: pytest.TempPathFactory, name: str, where: float, bit: int
) -> None:
    folder = tmp_path_factory.mktemp("flipped") / "checkpoint"
    shutil.copytree(two, folder)
    file = folder / "0000007" / name
    data = bytearray(file.read_bytes())
    data[int(where * len(data))] ^= 1 << bit
    file.write_bytes(data)
    written = re.search(rb'"format": (\d+),', data) if name == "manifest.json" else None
    if written is not None and int(written[1]) != FORMAT:  # it reads as a version that might exist
        with pytest.raises(RunError, match="is of format"):
            load_checkpoint(folder, None)
    else:
        assert_named_and_offered(folder, name)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("left", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_seen(two: Path, tmp_path: Path, name: str, left: float) -> None:
    shutil.copytree(two, tmp_path / "checkpoint")
    file = tmp_path / "checkpoint" / "0000007" / name
    data = file.read_bytes()
    file.write_bytes(data[: int(left * len(data))])
    assert_named_and_offered(tmp_path / "checkpoint", name)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_seen(two: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(two, tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "0000007" / name).unlink()
    assert_named_and_offered(tmp_path / "checkpoint", name)


@pytest.mark.parametrize("text", ["[]", "null", '"text"', "3", '{"format": "3"}', "{}"])
def test_a_manifest_that_is_something_else_is_seen(two: Path, tmp_path: Path, text: str) -> None:
    shutil.copytree(two, tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "0000007" / "manifest.json").write_text(text)
    assert_named_and_offered(tmp_path / "checkpoint", "manifest.json")


@pytest.mark.parametrize("written", [1, FORMAT - 1, FORMAT + 1])
def test_a_checkpoint_of_another_version_says_so(two: Path, tmp_path: Path, written: int) -> None:
    shutil.copytree(two, tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "0000007" / "manifest.json").write_text(json.dumps({"format": written}))
    with pytest.raises(RunError, match=f"checkpoint 7 is of format {written}, .* format {FORMAT}; go on with"):
        load_checkpoint(tmp_path / "checkpoint")


@pytest.mark.parametrize("text", ["[]", "null", "{}"])
def test_a_state_that_does_not_fit_its_arrays_is_seen(two: Path, tmp_path: Path, text: str) -> None:
    shutil.copytree(two, tmp_path / "checkpoint")
    folder = tmp_path / "checkpoint" / "0000007"
    (folder / "state.json").write_text(text)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["digests"]["state.json"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert_named_and_offered(tmp_path / "checkpoint", "manifest.json")


def test_a_damaged_only_checkpoint_has_none_before(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, TREE)
    (tmp_path / "0000001" / "state.json").write_text("{}")
    with pytest.raises(DamagedCheckpointError, match="there is none before it"):
        load_checkpoint(tmp_path)


def test_an_optimiser_goes_on_alike() -> None:
    models = [torch.nn.Linear(3, 2) for _ in range(2)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.1) for model in models]

    def steps(which: int, count: int) -> None:
        for _ in range(count):
            optimizers[which].zero_grad()
            models[which](torch.ones(1, 3)).square().sum().backward()
            optimizers[which].step()

    steps(0, 5)
    saved = {"model": dict(models[0].state_dict()), "optimizer": optimizer_state(optimizers[0])}
    loaded = join(*split(saved))
    load_module_state(models[1], loaded["model"])
    load_optimizer_state(optimizers[1], loaded["optimizer"])
    steps(0, 5)
    steps(1, 5)
    assert torch.equal(models[0].weight, models[1].weight)


def test_an_atomic_write_replaces_or_leaves(tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    write_atomically(file, b"one")
    write_atomically(file, b"two")
    assert file.read_bytes() == b"two"
    (tmp_path / ".file.txt.tmp").symlink_to("/dev/full")  # a disk without space, for real
    with pytest.raises(OSError, match="No space left"):
        write_atomically(file, b"three")
    assert file.read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]
