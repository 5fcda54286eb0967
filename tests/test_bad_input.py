"""Every wrong call gets one clear line and exit code 2; every run that cannot go on, one line and exit code 1."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import QUICK, Outcome

from pchid.runs import RunDirectory

Call = Callable[..., Outcome]
TRAIN = ("train", "BitFlip-v0", "--env.n_bits", 4, "--episodes", 4, *QUICK)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished run, with a seed of its own."""
    import pchid.cli

    out = tmp_path_factory.mktemp("trained") / "run"
    words = [*TRAIN, "--method", "hid", "--seed", 5, "--out", out]
    assert pchid.cli.main([str(word) for word in words]) == 0
    return out


@pytest.fixture(scope="module")
def trained_on_maps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pchid.cli

    out = tmp_path_factory.mktemp("maps") / "run"
    words = ("train", "GridWorld-v0", "--env.size", 6, "--method", "hid", "--episodes", 2, *QUICK[4:], "--out", out)
    assert pchid.cli.main([str(word) for word in (*words, "--updates-per-episode", 1)]) == 0
    return out


def assert_refused(outcome: Outcome, *sentences: str, code: int = 2) -> None:
    assert outcome.code == code, outcome
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("pchid: ")
    for sentence in sentences:
        assert sentence in lines[0]
    assert "Traceback" not in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (["BitFlop-v0"], ["BitFlop-v0", "BitFlip-v0"]),
        (["FetchReech-v4"], ["FetchReech-v4", "FetchReach-v"]),
        (["no_such_module:Thing-v0"], ["no_such_module"]),
        (["CartPole-v1"], ["not a goal environment", "achieved_goal"]),
        (["Pendulum-v1"], ["not a goal environment"]),
        (["UserNested-v0"], ["'observation'", "nested"]),
        (["UserManyDiscrete-v0"], ["MultiDiscrete"]),
        (["UserUnbounded-v0"], ["unbounded"]),
        (["UserMismatched-v0"], ["differ in shape"]),
        (["UserDense-v0"], ["dense"]),
        (["UserWalk-v0"], ["compute_reward"]),
        (["FetchReachDense-v4"], ["dense", "sparse"]),
        (["UserLine-v0", "--test", "interaction"], ["restored", "rnd"]),
        (["UserLine-v0", "--test", "ground-truth"], ["distance"]),
        (["UserLine-v0", "--num-envs", 2], ["cannot be restored", "--num-envs 1"]),
        ([], ["name an environment"]),
    ],
)
def test_environments(call: Call, words: list[Any], sentences: list[str]) -> None:
    assert_refused(call("train", *words, "--episodes", 2, "--out", "run", *QUICK), *sentences)
    assert not RunDirectory(Path("run")).exists


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (["--K-max", 0], ["K_max is 0"]),
        (["--draw", "asked"], ["--draw", "--test-budget"]),
        (["--draw", "asked", "--test", "none"], ["--draw", "none of here"]),
        (["--method", "dqn+her", "--draw", "asked"], ["--draw", "a method of two parts"]),
        (["--method", "dqn+her+pchid", "--hold-goal", "True"], ["--hold-goal", "pchid's own methods"]),
        (["--K-max", -3], ["K_max is -3"]),
        (["--method", "hid", "--K-max", 2], ["hid", "pchid"]),
        (["--episodes", 0], ["0", "at least 1"]),
        (["--episodes", -5], ["-5"]),
        (["--steps", 0], ["0"]),
        (["--steps", 100, "--episodes", 100], ["not both"]),
        (["--eval-every", 0], ["eval_every"]),
        (["--eval-episodes", 0], ["eval_episodes"]),
        (["--final-episodes", 0], ["final_episodes"]),
        (["--num-envs", 0], ["num_envs"]),
        (["--batch-size", 0], ["batch_size"]),
        (["--updates-per-episode", -1], ["updates_per_episode"]),
        (["--buffer-size", 0], ["buffer_size"]),
        (["--threads", 0], ["threads"]),
        (["--exploration", 1.5], ["exploration"]),
        (["--learning-rate", 0], ["learning_rate"]),
        (["--noise", -1], ["noise"]),
        (["--policy.hidden_sizes", "[0]"], ["hidden_sizes"]),
        (["--policy.hidden_sizes", "[]", "--policy.colour", 3], ["colour"]),
        (["--policy.hidden_sizes", "wide"], ["hidden_sizes"]),
        (["--policy.hidden_sizes"], ["--policy.hidden_sizes needs"]),
        (["--convergence.pairs", 0], ["convergence", "at least 1"]),
        (["--convergence.pairs", 1.5], ["convergence.pairs", "1.5"]),
        (["--convergence.patience", "much"], ["convergence.patience", "much"]),
        (["--convergence.tolerance", 1.5], ["convergence.tolerance", "1.5"]),
        (["--convergence.hope", 3], ["convergence.hope", "patience"]),
        (["--seed", -1], ["seed"]),
        (["--device", "abacus"], ["abacus"]),
        (["--hold-goal", "True"], ["null action"]),
        (["--policy", "VinPolicy"], ["VinPolicy", "GridWorld"]),
        (["--checkpoint", 3], ["--resume"]),
        (["--env.colour", "red"], ["colour"]),
        (["--env.n_bits", 0], ["n_bits", "at least 1"]),
        (["--env.n_bits", "many"], ["n_bits"]),
        (["--env.n_bits"], ["--env.n_bits needs"]),
        (["--env.n_bits", "--quiet"], ["--env.n_bits needs"]),
        (["--env.", 3], ["needs", "a value"]),
    ],
)
def test_options(call: Call, words: list[Any], sentences: list[str]) -> None:
    given = {str(word) for word in words}
    base = ["train", "BitFlip-v0", "--out", "run", *QUICK]
    for option, value in zip(QUICK[::2], QUICK[1::2], strict=False):  # an option may be given once
        if option in given:
            at = base.index(option)
            assert base[at + 1] == value
            del base[at : at + 2]
    if not {"--episodes", "--steps"} & given:
        base += ["--episodes", 2]
    assert_refused(call(*base, *words), *sentences)
    assert not RunDirectory(Path("run")).exists


@pytest.mark.parametrize(
    "words",
    [
        ["train", "BitFlip-v0", "--method", "magic"],
        ["train", "BitFlip-v0", "--K-max", "three"],
        ["train", "BitFlip-v0", "--episodes", "1.5"],
        ["train", "BitFlip-v0", "--colour", "red"],
        ["train", "BitFlip-v0", "another"],
        ["train", "BitFlip-v0", "--seed"],
        ["trian", "BitFlip-v0"],
        ["evaluate"],
        [],
    ],
)
def test_words_that_are_no_options(call: Call, words: list[str]) -> None:
    assert_refused(call(*words))


@pytest.mark.parametrize("what", ["observation", "achieved_goal", "desired_goal", "reward"])
def test_what_is_not_a_number_stops_the_run_and_is_named(call: Call, what: str) -> None:
    words = ("--env.what", what, "--episodes", 9, "--eval-episodes", 1, "--out", "run")
    outcome = call("train", "UserBreaking-v0", *words)
    assert_refused(outcome, "NaN or infinity", what, "step 4", code=1)


def test_a_policy_that_is_no_number_any_more_stops_the_run_and_what_to_do_is_said(call: Call) -> None:
    few = ("--episodes", 6, "--eval-episodes", 1, "--final-episodes", 1, "--quiet", "--out", "run")
    outcome = call("train", "FetchReach-v4", "--learning-rate", 1e12, *few)
    assert_refused(outcome, "loss has become NaN or infinite", "lower the learning rate", code=1)


def test_a_directory_that_holds_a_run_is_not_overwritten(call: Call, trained: Path) -> None:
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    assert_refused(call(*TRAIN, "--out", trained), "already holds a run", "--resume", str(trained))
    assert before == {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}


def test_nothing_to_resume(call: Call) -> None:
    assert_refused(call("train", "--resume", "--out", "nowhere"), "nowhere holds no run to resume")
    assert_refused(call("train", "BitFlip-v0", "--resume"), "holds no run to resume")
    assert not Path("nowhere").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["Hanoi-v0"], "BitFlip-v0"),
        (["--method", "pehid"], "method hid"),
        (["--method", "pchid"], "method hid"),
        (["--seed", 6], "seed 5"),
        (["--seed", 0], "seed 5"),
        (["--env.n_bits", 5], "n_bits"),
        (["--learning-rate", 0.5], "learning_rate"),
        (["--num-envs", 2], "num_envs"),
        (["--policy.hidden_sizes", "[99]"], "hidden_sizes"),
        (["--convergence.pairs", 5], "convergence.pairs"),
        (["--steps", 1000], "episodes"),
    ],
)
def test_a_resumed_run_stays_what_it_was(
    call: Call, trained: Path, tmp_path: Path, words: list[Any], sentence: str
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    before = (tmp_path / "run" / "metrics.csv").read_bytes()
    assert_refused(call("train", *words, "--resume", "--out", "run", "--quiet"), sentence)
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == before


def test_a_checkpoint_that_is_not_there(call: Call, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    outcome = call("train", "--resume", "--checkpoint", 999, "--out", "run", "--quiet")
    assert_refused(outcome, "no checkpoint 999", "there are", code=1)


@pytest.mark.parametrize("words", [["--episodes", 0], ["--episodes", -1]])
def test_evaluations_of_nothing(call: Call, trained: Path, words: list[Any]) -> None:
    assert_refused(call("evaluate", trained, *words), "at least 1")
    assert_refused(call("evaluate", trained, "--seed", -1), "--seed is -1", "negative")


def test_what_is_no_run_cannot_be_evaluated_or_plotted(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in ("nowhere", "empty"):
        assert_refused(call("evaluate", folder), folder, "config.json")
        assert_refused(call("plot", folder), folder, "config.json")
    assert_refused(call("plot"), "at least one")
    (tmp_path / "empty" / "config.json").write_text("[1, 2")
    assert_refused(call("evaluate", "empty"), "config.json", "JSON")


@pytest.mark.parametrize("config", ["{}", "[]", '{"env": "BitFlip-v0"}', '{"env": 3}'])
def test_a_config_of_something_else_is_refused(call: Call, tmp_path: Path, config: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(config)
    assert_refused(call("evaluate", "run"), "config.json")
    assert_refused(call("train", "--resume", "--out", "run"), "config.json")


def test_a_run_without_a_policy_cannot_be_evaluated(call: Call, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "policy" / "agent.safetensors").unlink()
    assert_refused(call("evaluate", "run"), "agent.safetensors")


def test_environment_options_belong_to_training(call: Call, trained: Path) -> None:
    assert_refused(call("evaluate", trained, "--env.n_bits", 5), "pchid train")


def test_another_environment_cannot_be_evaluated(call: Call, trained: Path) -> None:
    assert_refused(call("evaluate", trained, "Hanoi-v0"), "BitFlip-v0", "Hanoi-v0")


def maps(count: int = 2, size: int = 6) -> dict[str, Any]:
    obstacle = np.ones((count, size, size), np.uint8)
    obstacle[:, 1:-1, 1:-1] = 0
    return {"obstacle": obstacle, "start": np.full((count, 2), 1), "goal": np.full((count, 2), 4)}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"obstacle": np.zeros((2, 6, 5))}, "shape (M, size, size)"),
        ({"start": np.zeros((3, 2))}, "start must have shape (2, 2)"),
        ({"goal": np.zeros((2, 2))}, "blocked"),
        ({"budget": np.zeros(5)}, "budget must have shape (2,)"),
    ],
)
def test_wrong_maps(call: Call, trained_on_maps: Path, change: dict[str, Any], sentence: str) -> None:
    np.savez("maps.npz", **{**maps(), **change})
    assert_refused(call("evaluate", trained_on_maps, "--maps", "maps.npz"), "maps.npz", sentence)


def test_files_that_are_no_maps(call: Call, trained_on_maps: Path, tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("not an archive")
    assert_refused(call("evaluate", trained_on_maps, "--maps", "text.npz"), "text.npz")
    np.savez("partial.npz", obstacle=maps()["obstacle"])
    assert_refused(call("evaluate", trained_on_maps, "--maps", "partial.npz"), "partial.npz", "start")
    assert_refused(call("evaluate", trained_on_maps, "--maps", "absent.npz"), "absent.npz")


def test_maps_are_for_grid_worlds(call: Call, trained: Path) -> None:
    np.savez("maps.npz", **maps())
    assert_refused(call("evaluate", trained, "--maps", "maps.npz"), "GridWorld", "BitFlip-v0")


def test_debug_shows_where_it_went_wrong(call: Call) -> None:
    with pytest.raises(ValueError, match="no environment"):
        call("train", "BitFlop-v0", "--debug")


@pytest.mark.slow
def test_a_process_exits_with_the_code_and_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pchid.cli", "train", "BitFlop-v0", "--out", str(tmp_path / "run")]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert process.stdout == ""
    (line,) = process.stderr.splitlines()
    assert line.startswith("pchid: there is no environment 'BitFlop-v0'; did you mean BitFlip-v0, or one of your own")
    assert not (tmp_path / "run").exists()


def test_a_refused_call_leaves_nothing_behind(call: Call, tmp_path: Path) -> None:
    assert call("train", "UserDense-v0", "--out", "run", *QUICK).code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_at_once_leaves_nothing_behind_either(call: Call, tmp_path: Path) -> None:
    words = ("train", "UserBreaking-v0", "--episodes", 9, "--out", "run", *QUICK)
    for _ in range(2):  # the same call may come again
        assert_refused(call(*words), "NaN or infinity", code=1)
        assert list(tmp_path.iterdir()) == []


def test_in_a_directory_that_was_there_a_run_that_fails_stays(call: Call, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    words = ("train", "UserBreaking-v0", "--episodes", 9, "--out", "run", *QUICK)
    assert_refused(call(*words), "NaN or infinity", code=1)
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    assert_refused(call(*words), "already holds a run")


def test_a_damaged_policy_is_refused_in_one_line(call: Call, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    file = tmp_path / "run" / "policy" / "agent.safetensors"
    data = file.read_bytes()
    for damaged in (
        data[:100],
        b"",
        data.replace(b"PCHID", b"PCHIX", 1),
        data.replace(b"hidden_sizes", b"hidden_sixes"),
    ):
        file.write_bytes(damaged)
        assert_refused(call("evaluate", "run", "--episodes", 2))
