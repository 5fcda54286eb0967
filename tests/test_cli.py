"""What other people's scripts rely on."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from support import QUICK, Outcome
from user_envs import RestorableLine

import pchid.cli
from pchid.algorithms import PCHID
from pchid.envs.grid_world import GridWorldVectorEnv, distance_to_goal
from pchid.envs.make import make_probe
from pchid.evaluation import evaluate

Call = Callable[..., Outcome]
BITS = ("train", "BitFlip-v0", "--env.n_bits", 4, *QUICK, "--updates-per-episode", 3)
COLUMNS = [
    *("episodes", "env_steps", "test_steps", "wall_seconds"),
    *("final_success", "any_success", "mean_return", "steps_to_goal", "K"),
]


def main(*words: object) -> int:
    return pchid.cli.main([str(word) for word in words])


def rows_of(out: Path) -> list[dict[str, str]]:
    with (out / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of PCHID, three slots, 31 episodes."""
    out = tmp_path_factory.mktemp("finished") / "run"
    assert main(*BITS, "--K-max", 2, "--num-envs", 3, "--episodes", 31, "--seed", 4, "--out", out) == 0
    return out


def test_the_directory_holds_what_it_should(finished: Path) -> None:
    assert {path.name for path in finished.iterdir()} >= {
        *("config.json", "metrics.csv", "summary.json", "checkpoint", "policy", "tensorboard"),
    }
    assert list((finished / "tensorboard").glob("events.out.tfevents.*"))
    assert (finished / "policy" / "agent.safetensors").exists()
    assert not list(finished.rglob("*.tmp"))
    config = json.loads((finished / "config.json").read_text())
    assert config["env"] == "BitFlip-v0"
    assert config["env_options"] == {"n_bits": 4}
    assert (config["method"], config["seed"], config["K_max"]) == ("pchid", 4, 2)


def test_metrics_have_a_row_for_each_evaluation(finished: Path) -> None:
    rows = rows_of(finished)
    assert list(rows[0])[: len(COLUMNS)] == COLUMNS
    assert any("loss" in name for name in rows[0])
    episodes = [int(row["episodes"]) for row in rows]
    assert episodes[0] == 0
    assert episodes == sorted(set(episodes))
    assert len(rows) >= 8
    for name in ("env_steps", "test_steps"):
        counts = [int(row[name]) for row in rows]
        assert counts == sorted(counts)
    for row in rows:
        assert 0.0 <= float(row["final_success"]) <= float(row["any_success"]) <= 1.0
        assert 1.0 <= float(row["steps_to_goal"]) <= 4.0
        assert 1 <= int(row["K"]) <= 2


def test_the_number_of_episodes_is_exact(finished: Path) -> None:
    assert int(rows_of(finished)[-1]["episodes"]) == 31
    agent = PCHID.load(finished / "policy" / "agent.safetensors")
    assert agent._episode_num == 31
    assert agent.num_timesteps == int(rows_of(finished)[-1]["env_steps"])


@pytest.mark.parametrize(("episodes", "num_envs"), [(1, 1), (1, 4), (5, 4), (9, 7)])
def test_it_is_exact_whatever_the_number_of_slots(tmp_path: Path, episodes: int, num_envs: int) -> None:
    assert main(*BITS, "--episodes", episodes, "--num-envs", num_envs, "--method", "hid", "--out", tmp_path / "r") == 0
    assert int(rows_of(tmp_path / "r")[-1]["episodes"]) == episodes
    # Each episode of 4 bits and one step at a time gives at most 4 pairs, and at least one.
    arrays = PCHID.load(tmp_path / "r" / "policy" / "agent.safetensors").policy.network.observation_normaliser.count
    assert episodes <= int(arrays) <= 4 * episodes


def test_the_summary_is_the_last_row_and_what_the_run_was(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    for name, cell in rows_of(finished)[-1].items():
        assert summary[name] == (float(cell) if cell else None)
    assert summary["seed"] == 4
    assert summary["method"] == "pchid"
    assert summary["env"] == "BitFlip-v0"
    assert {"pchid", "torch", "gymnasium", "python"} <= set(summary["versions"])


def test_steps_may_stand_for_episodes(tmp_path: Path) -> None:
    assert main(*BITS, "--steps", 60, "--num-envs", 3, "--out", tmp_path / "run") == 0
    rows = rows_of(tmp_path / "run")
    assert int(rows[-1]["env_steps"]) == 60
    assert len({row["env_steps"] for row in rows}) == len(rows)
    assert int(rows[-1]["episodes"]) >= 15 - 3


@pytest.mark.parametrize("method", ["id", "hid", "pchid", "pehid"])
def test_every_method_trains(tmp_path: Path, method: str) -> None:
    assert main(*BITS, "--method", method, "--episodes", 6, "--out", tmp_path / "run") == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["method"] == method


@pytest.mark.parametrize("test", ["interaction", "ground-truth", "rnd", "none"])
def test_every_test_trains_and_counts_its_steps(tmp_path: Path, test: str) -> None:
    words = (*BITS, "--method", "pehid", "--K-max", 3, "--test", test, "--episodes", 12)
    assert main(*words, "--out", tmp_path / "run") == 0
    row = rows_of(tmp_path / "run")[-1]
    assert (int(row["test_steps"]) > 0) == (test == "interaction")
    assert row["test_pass_rate"] != ""
    if test == "none":
        assert float(row["test_pass_rate"]) == 1.0
    if test != "ground-truth":  # it would be compared with itself
        assert 0.0 <= float(row["test_accuracy"]) <= 1.0
        assert 0.0 <= float(row["test_recall"]) <= 1.0


def without_time(out: Path) -> list[dict[str, str]]:
    return [{name: cell for name, cell in row.items() if name != "wall_seconds"} for row in rows_of(out)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        (*BITS, "--K-max", 2, "--episodes", 20),
        (*BITS, "--method", "pehid", "--test", "rnd", "--episodes", 20),
        ("train", "UserLine-v0", "--episodes", 8, "--updates-per-episode", 3, *QUICK),
    ],
)
def test_same_seed_same_rows_and_same_policy(tmp_path: Path, words: tuple[Any, ...]) -> None:
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        assert main(*words, "--seed", seed, "--out", tmp_path / name) == 0
    one, two, other = (without_time(tmp_path / name) for name in ("one", "two", "other"))
    assert one == two
    assert one != other
    one_policy, two_policy = (
        (tmp_path / name / "policy" / "agent.safetensors").read_bytes() for name in ("one", "two")
    )
    assert one_policy == two_policy


def test_environment_options_reach_the_environment(tmp_path: Path) -> None:
    words = ("train", "Hanoi-v0", "--env.n_discs=2", "--episodes", 3, "--method", "hid", *QUICK)
    assert main(*words, "--out", tmp_path / "run") == 0
    assert PCHID.load(tmp_path / "run" / "policy" / "agent.safetensors").observation_space["observation"].shape == (6,)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--env.a", "3"], {"a": 3}),
        (["--env.a=0.5"], {"a": 0.5}),
        (["--env.long-name", "text"], {"long_name": "text"}),
        (["--env.a", "-1"], {"a": -1}),
        (["--env.a=[1, 2]", "--env.b", "True"], {"a": [1, 2], "b": True}),
    ],
)
def test_environment_options_are_values(words: list[str], options: dict[str, Any]) -> None:
    rest, found = pchid.cli.split_options("--env.", ["train", *words, "--seed", "3"])
    assert rest == ["train", "--seed", "3"]
    assert found == options


def test_evaluate_prints_and_writes_the_measures(call: Call, finished: Path, tmp_path: Path) -> None:
    outcome = call("evaluate", finished, "--episodes", 40, "--seed", 7, "--json", tmp_path / "measures.json")
    assert (outcome.code, outcome.err) == (0, "")
    written = json.loads((tmp_path / "measures.json").read_text())
    agent = PCHID.load(finished / "policy" / "agent.safetensors")
    environment = make_probe("BitFlip-v0", 3, n_bits=4)
    measures = evaluate(lambda seen: agent.predict(seen, deterministic=True)[0], environment, 40, 7).measures()
    assert {name: written[name] for name in measures.as_dict()} == measures.as_dict()
    assert (written["episodes"], written["seed"]) == (40, 7)
    assert f"{measures.final_success:.3f}" in outcome.out
    again = call("evaluate", finished, "--episodes", 40, "--seed", 7)
    assert again.out == outcome.out
    other = call("evaluate", finished, "--episodes", 40, "--seed", 8, "--json", tmp_path / "other.json")
    assert other.code == 0
    assert json.loads((tmp_path / "other.json").read_text())["mean_return"] != written["mean_return"]


def test_evaluation_does_not_touch_the_run(call: Call, finished: Path) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    assert call("evaluate", finished, "--episodes", 5).code == 0
    assert before == {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def on_maps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """A run on GridWorld, and thirty maps that it has not seen."""
    out = tmp_path_factory.mktemp("maps") / "run"
    words = ("train", "GridWorld-v0", "--env.size", 8, "--env.n_obstacles", 6, "--method", "hid", "--episodes", 8)
    assert main(*words, *QUICK[4:], "--updates-per-episode", 2, "--batch-size", 16, "--out", out) == 0
    env = GridWorldVectorEnv(30, size=8, n_obstacles=6)
    seen, _ = env.reset(seed=123)
    maps = {"obstacle": seen["observation"][:, 0], "start": seen["achieved_goal"], "goal": seen["desired_goal"]}
    return out, maps


@pytest.mark.slow
@pytest.mark.parametrize("budget", [None, "shortest", "long"])
def test_given_maps_are_played_as_given(
    call: Call, on_maps: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, budget: str | None
) -> None:
    out, maps = on_maps
    shortest = distance_to_goal(maps["obstacle"], maps["goal"])[np.arange(30), maps["start"][:, 0], maps["start"][:, 1]]
    limits = {None: np.full(30, 50), "shortest": shortest.astype(int), "long": np.full(30, 70)}[budget]
    np.savez(tmp_path / "maps.npz", **maps, **({} if budget is None else {"budget": limits}))
    words = ("evaluate", out, "--maps", tmp_path / "maps.npz", "--json", tmp_path / "measures.json")
    assert call(*words).code == 0
    found = json.loads((tmp_path / "measures.json").read_text())
    agent = PCHID.load(out / "policy" / "agent.safetensors")
    success, steps, returns = [], [], []
    for index in range(30):  # one map after the other, one cell after the other
        obstacle, goal = maps["obstacle"][index], maps["goal"][index]
        cell, total, reached, step = maps["start"][index].copy(), 0.0, False, 0
        while not reached and step < limits[index]:
            agent_map = np.zeros_like(obstacle)
            agent_map[tuple(cell)] = 1
            seen = {"observation": np.stack([obstacle, agent_map]), "achieved_goal": cell, "desired_goal": goal}
            action = int(agent.predict(seen, deterministic=True)[0])
            move = [(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)][action]
            if obstacle[tuple(cell + move)] == 0:
                cell = cell + move
            step += 1
            reached = bool((cell == goal).all())
            total += 10.0 if reached else -0.02
        success.append(reached)
        steps.append(step)
        returns.append(total)
    assert found["final_success"] == found["any_success"] == pytest.approx(np.mean(success))
    assert found["steps_to_goal"] == pytest.approx(np.mean(steps))
    assert found["mean_return"] == pytest.approx(np.mean(returns))
    assert 0.0 < found["final_success"] < 1.0  # otherwise the comparison would say little


def test_a_result_on_maps_says_how_many(
    call: Call, on_maps: tuple[Path, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    out, maps = on_maps
    np.savez(tmp_path / "maps.npz", **maps)
    assert call("evaluate", out, "--maps", tmp_path / "maps.npz", "--json", tmp_path / "measures.json").code == 0
    assert json.loads((tmp_path / "measures.json").read_text())["episodes"] == 30


@pytest.mark.slow
def test_maps_of_another_size_are_for_policies_that_plan(
    call: Call, on_maps: tuple[Path, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    seen, _ = GridWorldVectorEnv(20, size=11).reset(seed=5)
    maps = {"obstacle": seen["observation"][:, 0], "start": seen["achieved_goal"], "goal": seen["desired_goal"]}
    np.savez(tmp_path / "maps.npz", **maps)
    words = ("--maps", tmp_path / "maps.npz", "--json", tmp_path / "measures.json")
    assert call("evaluate", on_maps[0], *words).code == 0
    assert json.loads((tmp_path / "measures.json").read_text())["any_success"] > 0.0
    other = ("train", "GridWorld-v0", "--env.size", 8, "--method", "hid", "--policy", "GoalPolicy", "--episodes", 2)
    assert call(*other, *QUICK[4:], "--out", tmp_path / "other").code == 0
    refused = call("evaluate", tmp_path / "other", *words)
    assert refused.code == 2
    assert "size 11" in refused.err
    assert "size 8" in refused.err


def test_plot_writes_a_picture(call: Call, finished: Path, tmp_path: Path) -> None:
    for axis in ("env_steps", "all_steps", "episodes"):
        outcome = call("plot", finished, finished, "--out", tmp_path / f"{axis}.png", "--axis", axis)
        assert outcome.code == 0
        assert (tmp_path / f"{axis}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_quiet_prints_nothing_and_otherwise_both_step_counts_are_shown(call: Call, tmp_path: Path) -> None:
    words = ("train", "BitFlip-v0", "--env.n_bits", 3, *QUICK[:-1], "--episodes", 3, "--K-max", 2)
    quiet = call(*words, "--quiet", "--out", tmp_path / "quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    loud = call(*words, "--out", tmp_path / "loud")
    assert loud.code == 0
    assert "TEST" in loud.out
    assert "pchid evaluate" in loud.out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["UserLine-v0"],
            "TEST by RND (the environment cannot be restored: get_state, set_state and observe are missing)",
        ),
        (["UserRestorableLine-v0"], "TEST by interaction (the environment can be restored)"),
        (["UserRestorableLine-v0", "--test", "rnd"], "TEST by RND"),
        (["BitFlip-v0", "--env.n_bits", 3, "--test", "ground-truth"], "TEST by ground truth"),
        (["UserLine-v0", "--test", "none"], "no TEST: every piece is learned from"),
        (["UserLine-v0", "--K-max", 3, "--K-step", 2], None),
        (["UserLine-v0", "--method", "hid"], None),
        (["UserLine-v0", "--method", "dqn"], None),
        (
            ["UserLine-v0", "--method", "dqn+pchid"],
            "TEST by RND (the environment cannot be restored: get_state, set_state and observe are missing)",
        ),
        (["BitFlip-v0", "--env.n_bits", 3, "--method", "dqn+pehid"], "TEST by interaction (the environment can be"),
    ],
)
def test_the_first_line_says_which_test_there_is(
    call: Call, tmp_path: Path, words: list[Any], line: str | None
) -> None:
    given = ("train", *words, "--episodes", 2, "--eval-episodes", 2, "--final-episodes", 2, "--out", tmp_path / "run")
    outcome = call(*given)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("episodes 0 " if line is None else f"{line}")
    assert outcome.out.count("no TEST") + outcome.out.count("TEST by") == (line is not None)


def test_what_is_missing_for_interaction_is_named(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(RestorableLine, "observe")
    words = ("train", "UserRestorableLine-v0", "--episodes", 1, "--eval-episodes", 1, "--final-episodes", 1)
    assert "cannot be restored: observe is missing)" in call(*words, "--out", tmp_path / "run").out


def test_the_version(call: Call) -> None:
    outcome = call("--version")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"pchid {version('pchid')}\n", "")


def test_the_package_is_the_command() -> None:
    process = subprocess.run([sys.executable, "-m", "pchid", "--version"], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (0, f"pchid {version('pchid')}\n", "")


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["--version"], ["reproduce", "--list"]])
def test_a_reader_who_has_enough_is_not_complained_to(words: list[str]) -> None:
    command = [sys.executable, "-m", "pchid", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["evaluate", "--help"], ["plot", "--help"]])
def test_help_is_there(call: Call, words: list[str]) -> None:
    outcome = call(*words)
    assert outcome.code == 0
    assert "usage: pchid" in outcome.out


def test_without_out_the_run_goes_under_runs(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(*BITS, "--method", "hid", "--episodes", 2, "--seed", 3).code == 0
    assert (tmp_path / "runs" / "BitFlip-v0-hid-3" / "summary.json").exists()
    assert call("train", "BitFlip-v0", "--method", "hid", "--seed", 3, "--resume", "--quiet").code == 0


def test_a_resumed_run_can_be_made_longer(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert call(*BITS, "--method", "hid", "--episodes", 6, "--out", out).code == 0
    assert call("train", "--resume", "--episodes", 15, "--out", out, "--quiet").code == 0
    assert int(rows_of(out)[-1]["episodes"]) == 15
    assert json.loads((out / "summary.json").read_text())["episodes"] == 15
    # A run that is done stays done, at the length that it was given last.
    assert call("train", "--resume", "--out", out, "--quiet").code == 0
    assert int(rows_of(out)[-1]["episodes"]) == 15
    assert json.loads((out / "config.json").read_text())["budget"] == 15


MODULE = """
from pathlib import Path
import gymnasium
from user_envs import Line

Path({marker!r}).touch()
if "Mine-v0" not in gymnasium.registry:
    gymnasium.register("Mine-v0", entry_point=Line, max_episode_steps=6)
"""


@pytest.mark.slow
def test_a_module_is_imported_only_when_the_caller_names_it(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "imported"
    (tmp_path / "users_own_module.py").write_text(MODULE.format(marker=str(marker)))
    monkeypatch.syspath_prepend(tmp_path)
    name, out = "users_own_module:Mine-v0", tmp_path / "run"

    def forget() -> None:
        sys.modules.pop("users_own_module", None)
        gym.registry.pop("Mine-v0", None)
        marker.unlink(missing_ok=True)

    outcome = call("train", name, "--episodes", 4, "--out", out, *QUICK)
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads((out / "config.json").read_text())["env"] == name
    for words in (("evaluate", out, "--episodes", 3), ("train", "--resume", "--out", out, "--quiet")):
        forget()
        refused = call(*words)
        assert refused.code == 2
        assert name in refused.err
        assert len(refused.err.splitlines()) == 1
        assert not marker.exists()
    for words in (
        ("evaluate", out, name, "--episodes", 3),
        ("train", name, "--resume", "--episodes", 6, "--out", out, "--quiet"),
    ):
        forget()
        accepted = call(*words)
        assert (accepted.code, accepted.err) == (0, "")
        assert marker.exists()
    forget()
    assert call("plot", out, "--out", tmp_path / "curve.png").code == 0
    assert not marker.exists()


def test_losses_are_numbers(finished: Path) -> None:
    last = rows_of(finished)[-1]
    assert math.isfinite(float(last["loss"]))
    assert 0.0 <= float(last["continuation_1"]) <= 1.0
