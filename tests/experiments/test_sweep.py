"""A user's own grid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import Outcome

from pchid.errors import InputError
from pchid.experiments.sweep import SEEDS, grid, read_grid, read_settings, try_rows

Call = Callable[..., Outcome]
BITS = ("sweep", "BitFlip-v0", "--set")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_grid_has_a_row_for_each_combination() -> None:
    settings = {"episodes": [6], "learning_rate": [0.1, 0.01], "env.n_bits": [3, 4]}
    found = grid("mine", "episodes", ["BitFlip-v0", "Hanoi-v0"], ["hid", "pchid"], settings, seeds=2)
    assert len(found.rows) == 2 * 2 * 2 * 2
    assert len({row.label for row in found.rows}) == len(found.rows)
    assert {(row.env, row.method, *row.settings.values()) for row in found.rows} == {
        (env, method, 6, rate, bits)
        for env in ("BitFlip-v0", "Hanoi-v0")
        for method in ("hid", "pchid")
        for rate in (0.1, 0.01)
        for bits in (3, 4)
    }
    assert len(found.runs()) == 32
    assert found.name == "mine"


def test_labels_say_what_varies_and_nothing_else() -> None:
    one = grid("x", "episodes", ["BitFlip-v0"], ["hid", "pchid"], {"episodes": [6]})
    assert [row.label for row in one.rows] == ["hid", "pchid"]
    two = grid("x", "episodes", ["BitFlip-v0", "Hanoi-v0"], ["hid"], {"episodes": [6], "K_max": [1, 2]})
    assert [row.label for row in two.rows] == [
        f"hid {env} K_max={K}" for env in ("BitFlip-v0", "Hanoi-v0") for K in (1, 2)
    ]


def test_each_environment_has_panels_of_its_own_rows() -> None:
    found = grid("x", "all_steps", ["BitFlip-v0", "Hanoi-v0"], ["hid", "pchid"], {})
    assert [(panel.measure, panel.axis) for panel in found.panels] == [
        ("final_success", "all_steps"),
        ("mean_return", "all_steps"),
    ] * 2
    assert found.panels[0].labels == ("hid BitFlip-v0", "pchid BitFlip-v0")
    assert found.panels[3].labels == ("hid Hanoi-v0", "pchid Hanoi-v0")


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["episodes=100"], {"episodes": [100]}),
        (["episodes=100,200", "learning-rate=1e-3,0.1"], {"episodes": [100, 200], "learning_rate": [0.001, 0.1]}),
        (["K_max=3", "K-step=1"], {"K_max": [3], "K_step": [1]}),
        (["test=rnd:0.9,interaction"], {"test": ["rnd:0.9", "interaction"]}),
        (["hold_goal=True,False"], {"hold_goal": [True, False]}),
        (["policy.hidden_sizes=[16, 16]"], {"policy.hidden_sizes": [[16, 16]]}),
        (["policy.hidden_sizes=[16],[16,16],[]"], {"policy.hidden_sizes": [[16], [16, 16], []]}),
        (["policy.hidden_sizes=(16,16)"], {"policy.hidden_sizes": [(16, 16)]}),
        (["sb3.policy_kwargs={'net_arch': [8, 8]}"], {"sb3.policy_kwargs": [{"net_arch": [8, 8]}]}),
        (["env.n-bits=3,4"], {"env.n_bits": [3, 4]}),
        (["env.file=a=b"], {"env.file": ["a=b"]}),
        (["noise=-1"], {"noise": [-1]}),
    ],
)
def test_settings_are_lists_of_values(words: list[str], settings: dict[str, list[Any]]) -> None:
    assert read_settings(words) == settings


def test_a_file_says_the_same_as_words(tmp_path: Path) -> None:
    text = """
        env = ["BitFlip-v0"]
        method = ["hid", "dqn+her"]
        seeds = 4
        [settings]
        episodes = 6
        learning-rate = [0.1, 0.01]
        policy.hidden_sizes = [[16, 16]]
        [settings.env]
        n_bits = [3, 4]
    """
    words = ["episodes=6", "learning_rate=0.1,0.01", "policy.hidden_sizes=[16,16]", "env.n_bits=3,4"]
    expected = {"envs": ["BitFlip-v0"], "methods": ["hid", "dqn+her"], "settings": read_settings(words), "seeds": 4}
    assert read_grid(write(tmp_path / "grid.toml", text)) == expected


def test_a_file_may_be_one_line(tmp_path: Path) -> None:
    expected = {"envs": ["BitFlip-v0"], "methods": ["pchid"], "settings": {}, "seeds": SEEDS}
    assert read_grid(write(tmp_path / "grid.toml", 'env = "BitFlip-v0"')) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("env = ", "not valid TOML"),
        ("\x00", "not valid TOML"),
        ("seeds = 3", "needs env"),
        ('env = "BitFlip-v0"\nenvs = "x"', "envs"),
        ("env = 5", "names"),
        ("env = []", "nothing to run"),
        ('env = "BitFlip-v0"\nmethod = 5', "names"),
        ('env = "BitFlip-v0"\nmethod = []', "nothing to run"),
        ('env = "BitFlip-v0"\nmethod = "foo"', "foo"),
        ('env = "BitFlip-v0"\nseeds = 0', "seeds is 0"),
        ('env = "BitFlip-v0"\nseeds = -1', "seeds is -1"),
        ('env = "BitFlip-v0"\nseeds = 2.0', "seeds is 2.0"),
        ('env = "BitFlip-v0"\nseeds = true', "seeds is True"),
        ('env = "BitFlip-v0"\nsettings = 3', "settings is 3"),
        ('env = "BitFlip-v0"\n[settings]\nepisodes = []', "nothing to run"),
        ('env = "BitFlip-v0"\n[settings]\nepisodes = "many"', "episodes cannot be 'many'"),
        ('env = "BitFlip-v0"\n[settings]\nepisodes = [5, 5]', "twice"),
        ('env = "BitFlip-v0"\n[settings]\nlearning_rate = nan', "learning_rate"),
        ('env = "BitFlip-v0"\n[settings]\nseed = 3', "seed"),
        ('env = "BitFlip-v0"\n[settings]\nfoo = 3', "foo"),
        ('env = "BitFlip-v0"\n[settings]\nfoo.bar = 3', "foo.bar"),
        ('env = "BitFlip-v0"\n[settings]\nenv.n_bits = 1979-05-27', "1979"),
    ],
)
def test_a_wrong_file_is_one_line_and_runs_nothing(call: Call, tmp_path: Path, text: str, complaint: str) -> None:
    refused(call, tmp_path, complaint, "sweep", write(tmp_path / "grid.toml", text))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("sweep",), "name an environment"),
        (("sweep", "Nope-v0"), "no environment 'Nope-v0'"),
        (("sweep", "CartPole-v1"), "not a goal environment"),
        (("sweep", "BitFlip-v0", "BitFlip-v0"), "twice"),
        (("sweep", "nowhere.toml"), "cannot read nowhere.toml"),
        (("sweep", "BitFlip-v0", "--methods", "foo"), "unknown method 'foo'"),
        (("sweep", "BitFlip-v0", "--methods", "hid", "hid"), "twice"),
        (("sweep", "BitFlip-v0", "--methods", "ddpg"), "DDPG"),
        (("sweep", "BitFlip-v0", "--seeds", 0), "--seeds is 0"),
        (("sweep", "BitFlip-v0", "--seeds", "x"), "--seeds"),
        (("sweep", "BitFlip-v0", "--workers", 0), "--workers is 0"),
        (("sweep", "BitFlip-v0", "--workers", -1), "--workers is -1"),
        (("sweep", "BitFlip-v0", "--engine", "foo"), "foo"),
        (("sweep", "BitFlip-v0", "--foo", "3"), "--foo"),
        (("sweep", "BitFlip-v0", "--env.n_bits", 3), "--env.NAME"),
        ((*BITS, "episodes"), "NAME=VALUE"),
        ((*BITS, "episodes="), "NAME=VALUE"),
        ((*BITS, "=3"), "NAME=VALUE"),
        ((*BITS, "episodes=0"), "at least 1"),
        ((*BITS, "episodes=1,,2"), "episodes cannot be ''"),
        ((*BITS, "episodes=1e3"), "episodes cannot be 1000.0"),
        ((*BITS, "episodes=5", "episodes=6"), "twice"),
        ((*BITS, "episodes=5", "steps=6"), "--steps"),
        ((*BITS, "learning_rate=0.1,fast"), "learning_rate cannot be 'fast'"),
        ((*BITS, "quiet=True"), "quiet"),
        ((*BITS, "out=x"), "out"),
        ((*BITS, "env_options=3"), "env_options"),
        ((*BITS, "env.nonsense=3"), "nonsense"),
        ((*BITS, "env.n_bits=4,0"), "n_bits=0"),
        ((*BITS, "policy.nonsense=3"), "nonsense"),
        ((*BITS, "policy.hidden_sizes=16"), "not iterable"),
        ((*BITS, "sb3.gamma=0.9"), "--sb3"),
        ((*BITS, "sb3.foo=0.9", "--methods", "dqn"), "foo"),
    ],
)
def test_a_wrong_call_is_one_line_and_runs_nothing(
    call: Call, tmp_path: Path, words: tuple[object, ...], complaint: str
) -> None:
    refused(call, tmp_path, complaint, *words)


def refused(call: Call, tmp_path: Path, complaint: str, *words: object) -> None:
    outcome = call(*words, "--runs", tmp_path / "runs", "--out", tmp_path / "results")
    assert outcome.code == 2
    assert outcome.err.startswith("pchid: ")
    assert outcome.err.count("\n") == 1
    assert complaint in outcome.err
    assert outcome.out == ""
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "results").exists()


def test_a_grid_comes_from_a_file_or_from_words(call: Call, tmp_path: Path) -> None:
    path = write(tmp_path / "grid.toml", 'env = "BitFlip-v0"')
    refused(call, tmp_path, "not from both", "sweep", path, "--methods", "hid")
    refused(call, tmp_path, "not from both", "sweep", path, "--set", "episodes=3")


def test_the_row_with_the_wrong_option_is_named() -> None:
    found = grid("x", "episodes", ["BitFlip-v0"], ["hid"], {"env.n_bits": [3, 0]})
    with pytest.raises(InputError, match=r"in the row 'hid env\.n_bits=0'"):
        try_rows(found)


@pytest.mark.slow
def test_a_file_is_swept_and_called_after_itself(call: Call, tmp_path: Path) -> None:
    text = """
        env = "BitFlip-v0"
        method = "hid"
        seeds = 3
        [settings]
        episodes = 4
        eval_episodes = 4
        final_episodes = 8
        env.n_bits = 3
        policy.hidden_sizes = [[8], [8, 8]]
    """
    path = write(tmp_path / "widths.toml", text)
    runs, out = tmp_path / "runs", tmp_path / "results"
    outcome = call("sweep", path, "--seeds", 1, "--workers", 2, "--runs", runs, "--out", out)
    assert outcome.code == 0, outcome.err
    assert len(list(runs.glob("BitFlip-v0-hid-*-0/summary.json"))) == 2
    assert "| hid policy.hidden_sizes=[8, 8] | 1 |" in (out / "widths" / "table.md").read_text()
    assert (out / "widths" / "widths.png").exists()
    assert "policy.hidden_sizes=[8, 8]" in outcome.out
