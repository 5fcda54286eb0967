"""Every example runs, on few steps, and says what it was made to say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["joint_training", "averaged_outputs", "intrinsic_reward", "hindsight_ppo"])
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    load(name).main(steps=300)
    assert "return" in capsys.readouterr().out


@pytest.mark.slow
def test_one_line_solves_fetch_reach_with_ppo() -> None:
    assert load("joint_training").main() > -5.0


def test_train_and_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    load("train_and_watch").main()
    assert (tmp_path / "runs" / "bitflip-agent.safetensors").exists()
