"""What a run is called, and what it is."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path
from typing import Any

import pytest

import pchid.cli
from pchid.cli import parse
from pchid.commands.train import Train
from pchid.config import Config, new_config
from pchid.errors import InputError
from pchid.experiments.declaration import Experiment, Row, Run, directory_name
from pchid.experiments.figures import EXPERIMENTS

SMALL = {
    "episodes": 6,
    "batch_size": 16,
    "eval_episodes": 8,
    "final_episodes": 16,
    "learning_rate": 1,
    "env.n_bits": 4,
    "policy.hidden_sizes": [16],
}


def config_of_call(words: list[str]) -> Config:
    """What `pchid train WORDS` writes to config.json, without the training."""
    command = parse(["train", *words])
    assert isinstance(command, Train)
    config = new_config({name: value for name, value in vars(command).items() if value is not None})
    return json.loads(json.dumps(config))


def named(settings: dict[str, Any], method: str = "pchid", seed: int = 0, env: str = "BitFlip-v0") -> str:
    return Run("a row", env, method, settings, seed).directory(Path()).name


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_declared_run_is_what_its_call_makes(name: str, quick: bool) -> None:
    for run in EXPERIMENTS[name].runs(1, quick):
        expected = config_of_call(run.words())
        assert json.loads(json.dumps(run.config())) == expected, run.label
        assert run.directory(Path("runs")).name == directory_name(expected), run.label


@pytest.mark.parametrize(
    ("env", "method", "settings"),
    [
        ("BitFlip-v0", "pchid", {"K_max": 2, "test": "rnd:0.9", "hold_goal": True, "min_displacement": 0}),
        ("BitFlip-v0", "pchid", {"hold_goal": False, "exploration": 1, "noise": 2, "steps": 60}),
        ("BitFlip-v0", "dqn+her+hid", {"combine": "average", "weight": 1, "sb3.policy_kwargs": {"net_arch": [8, 8]}}),
        ("PointMaze_UMaze-v3", "pchid", {"test_budget": 10, "env.continuing_task": False, "env.reward_type": "sparse"}),
        ("PointMaze_UMaze-v3", "pchid", {"test_budget": None, "combine": None, "episodes": None}),
        ("Hanoi-v0", "pehid", {"policy.hidden_sizes": (16, 16), "num_envs": 2}),
    ],
)
def test_so_are_runs_with_other_kinds_of_values(env: str, method: str, settings: dict[str, Any]) -> None:
    run = Run("a row", env, method, settings, 3)
    assert json.loads(json.dumps(run.config())) == config_of_call(run.words())


def test_the_call_writes_this_config(tmp_path: Path) -> None:
    run = Run("a row", "BitFlip-v0", "hid", SMALL, 2)
    assert pchid.cli.main(["train", *run.words(), "--quiet", "--out", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text()) == run.config()


def test_the_same_words_go_on_with_a_run(tmp_path: Path) -> None:
    settings = {**SMALL, "policy.hidden_sizes": (8, 8), "hold_goal": False, "noise": None, "test": "rnd:0.9"}
    words = [
        "train",
        *Run("a row", "BitFlip-v0", "hid", settings, 2).words(),
        "--quiet",
        "--out",
        str(tmp_path / "run"),
    ]
    assert pchid.cli.main(words) == 0
    assert pchid.cli.main([*words, "--resume"]) == 0


def test_the_command_is_the_call_without_its_seed() -> None:
    run = Run("a row", "BitFlip-v0", "hid", {"episodes": 6, "policy.hidden_sizes": [16, 16]}, 2)
    assert shlex.split(run.command()) == ["pchid", "train", *run.words()[:-2]]
    assert run.words()[-2:] == ["--seed", "2"]
    assert run.command() == "pchid train BitFlip-v0 --method hid --episodes 6 --policy.hidden_sizes '[16, 16]'"


def test_the_name_does_not_depend_on_the_order_of_settings() -> None:
    names = set()
    for seed in range(5):
        items = list(SMALL.items())
        random.Random(seed).shuffle(items)
        names.add(named(dict(items)))
    assert len(names) == 1
    kwargs = [{"net_arch": [8], "n_critics": 1}, {"n_critics": 1, "net_arch": [8]}]
    assert named({"sb3.policy_kwargs": kwargs[0]}, "sac") == named({"sb3.policy_kwargs": kwargs[1]}, "sac")


@pytest.mark.parametrize(
    ("name", "method"),
    [("learning_rate", "pchid"), ("noise", "pchid"), ("test_budget", "pchid"), ("weight", "dqn+pchid")],
)
def test_one_and_one_point_nought_are_the_same_setting(name: str, method: str) -> None:
    assert named({name: 1}, method) == named({name: 1.0}, method) != named({name: 0.5}, method)


@pytest.mark.parametrize("name", ["env.success_reward", "policy.scale"])
def test_they_are_for_options_too(name: str) -> None:
    assert named({name: 1}) == named({name: 1.0}) != named({name: 2.0})
    assert named({name: [1, {"a": 2}]}) == named({name: [1.0, {"a": 2.0}]}) != named({name: [1, {"a": 3}]})
    assert named({name: True}) != named({name: 1})


def test_what_is_recommended_anyway_is_the_same_run() -> None:
    assert named({"num_envs": 4, "exploration": 0.3, "episodes": 300}) == named({})


@pytest.mark.parametrize(
    "other",
    [
        {"episodes": 7},
        {"steps": 6},
        {"learning_rate": 0.5},
        {"K_max": 3},
        {"test": "rnd"},
        {"hold_goal": True},
        {"eval_every": 3},
        {"final_episodes": 17},
        {"checkpoint_seconds": 5},
        {"threads": 2},
        {"env.n_bits": 5},
        {"env.horizon": 9},
        {"policy.hidden_sizes": [16, 16]},
        {"policy": "VinPolicy"},
    ],
)
def test_another_setting_is_another_run(other: dict[str, Any]) -> None:
    mine = {name: value for name, value in SMALL.items() if not ("steps" in other and name == "episodes")}
    assert named({**mine, **other}) != named(SMALL)


def test_another_method_or_environment_is_another_run() -> None:
    assert len({named({}), named({}, "pehid"), named({}, "dqn+her"), named({}, env="Hanoi-v0")}) == 4


def test_the_seed_is_the_last_part_of_the_name_and_nothing_else() -> None:
    stems = {named(SMALL, seed=seed).removesuffix(f"-{seed}") for seed in (0, 1, 12)}
    assert len(stems) == 1
    stem = stems.pop()
    assert stem.startswith("BitFlip-v0-pchid-")
    assert named(SMALL, seed=12) == f"{stem}-12"


def test_the_label_does_not_matter_so_figures_share_runs() -> None:
    one, other = (Run(label, "BitFlip-v0", "hid", SMALL, 0) for label in ("PCHID-1", "one step"))
    assert one.directory(Path()) == other.directory(Path())
    fig4a, fig6a = ({run.directory(Path()) for run in EXPERIMENTS[name].runs(2)} for name in ("fig4a", "fig6a"))
    assert len(fig4a & fig6a) >= 2


def test_the_name_is_one_folder_whatever_the_environment_is_called() -> None:
    run = Run("a row", "user_envs:UserLine-v0", "hid", {}, 0)
    assert run.directory(Path("runs")).parent == Path("runs")
    assert run.directory(Path("runs")).name.startswith("UserLine-v0-hid-")


def test_runs_come_seed_by_seed() -> None:
    rows = (Row("a", "BitFlip-v0", "hid", {"episodes": 9}), Row("b", "BitFlip-v0", "pchid"))
    experiment = Experiment("x", "", rows, seeds=2, minutes=1, quick={"episodes": 3}, quick_seeds=1)
    assert [(run.label, run.seed) for run in experiment.runs()] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert [(run.seed, run.settings) for run in experiment.runs(quick=True)] == [(0, {"episodes": 3})] * 2
    assert len(experiment.runs(seeds=5)) == len(experiment.runs(seeds=5, quick=True)) == 10


@pytest.mark.parametrize(
    ("settings", "method", "named_in_error"),
    [
        ({"episodes": 0}, "pchid", "budget"),
        ({"episodes": "abc"}, "pchid", "episodes"),
        ({"episodes": 10.5}, "pchid", "episodes"),
        ({"episodes": 1000.0}, "pchid", "episodes"),
        ({"episodes": True}, "pchid", "episodes"),
        ({"steps": "many"}, "pchid", "steps"),
        ({"episodes": 5, "steps": 5}, "pchid", "--steps"),
        ({"learning_rate": "fast"}, "pchid", "learning_rate"),
        ({"noise": "low"}, "pchid", "noise"),
        ({"test": 5}, "pchid", "test"),
        ({"test": "foo"}, "pchid", "foo"),
        ({"policy": "Foo"}, "pchid", "Foo"),
        ({"hold_goal": "yes"}, "pchid", "hold_goal"),
        ({"hold_goal": 1}, "pchid", "hold_goal"),
        ({"combine": "joint"}, "pchid", "combine"),
        ({"combine": "foo"}, "dqn+pchid", "foo"),
        ({"combine": 3}, "dqn+pchid", "combine"),
        ({"weight": "x"}, "dqn+pchid", "weight"),
        ({"weight": -1}, "dqn+pchid", "weight"),
        ({"sb3.gamma": 0.9}, "pchid", "--sb3"),
        ({"env.n_bits": {1, 2}}, "pchid", "option"),
        ({}, "foo", "foo"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(
    settings: dict[str, Any], method: str, named_in_error: str
) -> None:
    with pytest.raises(InputError, match=named_in_error):
        Run("a row", "BitFlip-v0", method, settings, 0).config()
