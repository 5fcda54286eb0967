"""Every example runs and finds what it was made to find."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pchid import make_probe
from pchid.runs import RunDirectory
from pchid.training import evaluate_run

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples write to the current folder and look at their arguments."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["example"])


def load(name: str) -> ModuleType:
    """The example as a module; one that is written in cells has then run from its first to its last."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_list_of_examples_is_complete() -> None:
    listed = re.findall(r"^\| \[(\w+\.py)\]\(\1\) \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", ["averaged_outputs", "intrinsic_reward", "hindsight_ppo"])
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    load(name).main(steps=300)
    assert "return" in capsys.readouterr().out


def test_train_and_watch(tmp_path: Path) -> None:
    load("train_and_watch").main()
    assert (tmp_path / "runs" / "bitflip-agent.safetensors").exists()


def test_lost_goals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = EXAMPLES.parent / "results" / "table1" / "policies" / "PEHID, Push-0"
    words = ["lost_goals", str(kept), "--episodes", "30", "--out", str(tmp_path / "lost.json")]
    monkeypatch.setattr(sys, "argv", words)
    load("lost_goals").main()
    found = json.loads((tmp_path / "lost.json").read_text())["policies"][kept.name]
    # The same goals as those of `pchid evaluate --seed 7`; a failed episode ends somewhere.
    assert found["final_success"] == evaluate_run(RunDirectory(kept), 30, 7).measures().final_success
    assert sum(found["failures"].values()) == round(30 * (1 - found["final_success"]))
    assert found["goal not held"]["final_success"] < found["final_success"]


def test_how_goals_are_met_and_lost() -> None:
    lost_goals, env = load("lost_goals"), make_probe("FetchPickAndPlace-v4", 1)
    apart = np.array([[0.3, 0.2, 0.0, 0.0], [0.3, 0.01, 0.0, 0.4], [0.0, 0.0, 0.0, 0.0]])  # kept, lost, from the start
    height = np.array([0.42, 0.6, 0.42])
    nothing = np.zeros((3, 4))
    way = np.stack([apart, nothing, nothing, np.broadcast_to(height[:, None], (3, 4))], axis=-1)
    found = lost_goals.arrivals(way, env)
    assert found["kept"] == {"episodes": 1, "median speed": pytest.approx(0.2 / 0.04), "median steps at the goal": 2}
    assert found["lost again"] == {"episodes": 1, "median speed": pytest.approx(7.25), "median steps at the goal": 2}
    assert lost_goals.in_the_air(way, env) == {"goals": 1, "any_success": 1.0, "final_success": 0.0}
    assert lost_goals.in_the_air(way[:1], env) == {}


def test_pictures(tmp_path: Path) -> None:
    load("pictures").main()
    assert {path.name for path in (tmp_path / "docs" / "images").iterdir()} == {
        "bitflip.png",
        "gridworld.png",
        "hanoi.png",
    }


@pytest.mark.slow
def test_own_environment() -> None:
    example = load("own_environment")
    success = example.success
    assert max(success[name] for name in ("random actions", "pieces of 1 step")) < 0.2
    assert min(success[name] for name in ("pieces of 2 steps", "pieces of 2 and 4 steps")) > 0.7
    assert example.test_steps["pieces of 2 and 4 steps"] > 0  # it can be restored, and was


@pytest.mark.slow
def test_one_line_solves_fetch_reach_with_ppo_and_sac() -> None:
    returns = load("sb3_with_pchid").returns
    assert max(returns[name] for name in ("PPO", "SAC + HER")) < -40.0
    assert min(returns[name] for name in ("PPO + PCHID", "SAC + HER + PCHID")) > -10.0


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_cluster_sweep(engine: str, tmp_path: Path) -> None:
    if engine == "ray":
        pytest.importorskip("ray")
        # In a process of its own, with a token of its own: one in which Ray has run before remembers that one's token.
        words = [sys.executable, EXAMPLES / "cluster_sweep.py", "--ray"]
        subprocess.run(words, check=True, cwd=tmp_path, env={**os.environ, "RAY_AUTH_TOKEN": uuid.uuid4().hex})
        assert len(list(tmp_path.rglob("summary.json"))) == 6
    example = load("cluster_sweep")
    few, *_, many = (example.success[label].iqm for label in example.success)
    assert many > 0.8 > 0.5 > few
    assert example.failed == []
    table = (tmp_path / "runs" / "cluster_sweep" / "results" / "bitflip" / "table.md").read_text()
    assert all(label in table for label in example.success)

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")}
    assert len(before) == 6
    assert load("cluster_sweep").success == example.success
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")}  # found, not run again


@pytest.mark.slow
def test_robot_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = load("robot_loop")
    assert all(example.reached)
    assert "predict takes" in capsys.readouterr().out
    assert (tmp_path / "runs" / "robot-agent.safetensors").exists()
