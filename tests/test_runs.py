"""A run directory's files."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pchid.config import new_config
from pchid.envs.make import make_vector
from pchid.errors import InputError, RunError
from pchid.runs import RunDirectory, versions
from pchid.training import trained_policy


def test_metrics_keep_every_digit_and_empty_cells(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    rows = [{"episodes": 0, "loss": None, "x": 0.1 + 0.2}, {"episodes": 10, "loss": 1e-17, "x": 1.0}]
    directory.write_metrics(rows)  # type: ignore[arg-type]
    found = directory.read_metrics()
    assert math.isnan(found[0].pop("loss"))
    assert found == [{"episodes": 0.0, "x": 0.1 + 0.2}, {"episodes": 10.0, "loss": 1e-17, "x": 1.0}]
    assert (tmp_path / "metrics.csv").read_text().splitlines()[0] == "episodes,loss,x"


def test_config_and_summary_come_back(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert not directory.exists
    config = new_config({"env": "BitFlip-v0", "env_options": {"n_bits": 3}, "policy_options": {"agreement": False}})
    directory.write_config(config)
    assert directory.exists
    assert directory.read_config() == config
    with pytest.raises(InputError, match=r"summary\.json"):
        directory.read_summary()
    directory.write_summary({"seed": 3})
    assert directory.read_summary() == {"seed": 3}


@pytest.mark.parametrize("content", [b"{", b"\x80\x04\x95", b""])
def test_an_edited_config_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=r"config\.json is not valid JSON"):
        RunDirectory(tmp_path).read_config()


def test_checkpoints_are_numbered_on_and_two_are_kept(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert directory.load_checkpoint() is None
    for value in range(5):
        directory.save_checkpoint({"value": value})
    assert directory.load_checkpoint() == {"value": 4}
    assert directory.load_checkpoint(4) == {"value": 3}
    with pytest.raises(RunError, match="there are 4, 5"):
        directory.load_checkpoint(2)


@pytest.mark.slow
def test_only_one_process_trains_in_a_directory_and_a_dead_one_does_not_block(tmp_path: Path) -> None:
    hold = "import sys; from pathlib import Path; from pchid.runs import RunDirectory\n"
    hold += "with RunDirectory(Path(sys.argv[1])).lock(): print('locked', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RunError, match="someone is training"), RunDirectory(tmp_path).lock():
            pass
        holder.kill()
        holder.wait()
    with RunDirectory(tmp_path).lock():
        pass


def test_what_a_run_wrote_before_its_first_checkpoint_can_be_withdrawn(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    with directory.lock() as new:
        assert new
        directory.write_config({})
        directory.write_metrics([{"episodes": 0}])
        for folder, name in (("policy", "agent.safetensors"), ("tensorboard", "events.out.tfevents.1"), ("mine", "x")):
            (directory.path / folder).mkdir()
            (directory.path / folder / name).touch()
        (directory.path / "tensorboard" / "notes.txt").touch()
        directory.withdraw()
    assert {path.relative_to(directory.path).as_posix() for path in directory.path.rglob("*")} == {
        *("mine", "mine/x", "tensorboard", "tensorboard/notes.txt"),
    }
    with directory.lock() as new:
        assert not new
    (directory.path / "mine" / "x").unlink()
    (directory.path / "mine").rmdir()
    (directory.path / "tensorboard" / "notes.txt").unlink()
    directory.withdraw()
    assert list(tmp_path.iterdir()) == []


def test_versions_name_what_exactness_depends_on() -> None:
    assert {"pchid", "torch", "numpy", "gymnasium", "stable-baselines3", "mujoco", "python", "machine"} <= set(
        versions()
    )


def test_snapshots_are_the_policies_of_the_evaluations(call: Any, tmp_path: Path) -> None:
    words = ("train", "BitFlip-v0", "--episodes", 6, "--eval-every", 3, "--eval-episodes", 4, "--final-episodes", 4)
    assert call(*words, "--snapshots", True, "--out", tmp_path / "run").code == 0
    run = RunDirectory(tmp_path / "run")
    steps = [int(row["env_steps"]) for row in run.read_metrics()]
    kept = sorted(run.policy.parent.glob("steps-*"))
    assert kept == [run.snapshot(count) for count in steps]
    assert kept[-1].read_bytes() == run.policy.read_bytes() != kept[0].read_bytes()
    seen, _ = make_vector("BitFlip-v0", 3).reset(seed=0)
    np.testing.assert_array_equal(trained_policy(run.path, steps[-1])(seen), trained_policy(run.path)(seen))
    assert call(*words, "--out", tmp_path / "other").code == 0
    assert not list((tmp_path / "other" / "policy").glob("steps-*"))
