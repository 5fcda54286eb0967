"""`pchid fit`, and `pchid train --start`: from a log to a policy, and from a policy to a run."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import QUICK, Outcome, random_episodes
from test_resume import result, train_in_pieces

import pchid.cli
from pchid import PCHID, PEHID, GoalVecEnv, evaluate, make_probe
from pchid.config import new_config
from pchid.errors import InputError
from pchid.experiments.declaration import directory_name
from pchid.offline import load_episodes, save_episodes
from pchid.runs import RunDirectory
from pchid.saving import start_from

Call = Callable[..., Outcome]
BITS = ("BitFlip-v0", "--env.n_bits", 4)
FIT = ("--passes", 3, "--updates-per-episode", 4, "--batch-size", 16, "--policy.hidden_sizes", "[16]", "--quiet")


def main(*words: object) -> int:
    return pchid.cli.main([str(word) for word in words])


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of random episodes of BitFlip with four bits."""
    env = GoalVecEnv.make("BitFlip-v0", 4, n_bits=4)
    return save_episodes(tmp_path_factory.mktemp("log") / "bits.npz", random_episodes(env, 12), env.action_space)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Path:
    """A policy fitted to it, with the environment named."""
    out = tmp_path_factory.mktemp("fitted") / "fit"
    assert main("fit", log, "--out", out, "--env", *BITS, "--K-max", 2, *FIT) == 0
    return out


@pytest.fixture(scope="module")
def unnamed(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Path:
    """The same without the environment's name."""
    out = tmp_path_factory.mktemp("unnamed") / "fit"
    assert main("fit", log, "--out", out, "--K-max", 2, *FIT) == 0
    return out


def assert_refused(outcome: Outcome, *sentences: str) -> None:
    assert outcome.code == 2, outcome
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("pchid: ")
    for sentence in sentences:
        assert sentence in lines[0]


def rows_of(out: Path) -> list[dict[str, str]]:
    with (out / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_the_directory_holds_a_policy_and_what_it_was_made_from(fitted: Path, log: Path) -> None:
    found = json.loads((fitted / "fit.json").read_text())
    assert (found["data"], found["method"], found["env"], found["K_max"]) == (str(log), "pchid", "BitFlip-v0", 2)
    assert found["env_options"] == {"n_bits": 4}
    episodes = load_episodes(log)
    assert (found["episodes"], found["steps"]) == (len(episodes), episodes.length.sum())
    assert found["updates"] == 4 * len(episodes)
    assert found["loss"] > 0.0
    agent = PCHID.load(fitted / "policy" / "agent.safetensors")
    assert agent.policy.hidden_sizes == (16,)
    assert agent.observation_space == GoalVecEnv.make("BitFlip-v0", n_bits=4).observation_space
    assert not list(fitted.rglob("*.tmp"))


def test_passes_per_pair_stand_for_updates(log: Path, tmp_path: Path) -> None:
    plain = [word for word in FIT if word not in ("--updates-per-episode", 4)]
    counts = {}
    for passes in (1, 2.5):
        out = tmp_path / str(passes)
        assert main("fit", log, "--out", out, "--method", "hid", "--passes-per-pair", passes, *plain) == 0
        found = json.loads((out / "fit.json").read_text())
        assert found["passes_per_pair"] == passes
        assert found["updates"] == int(passes * found["pairs"] / 16)
        counts[passes] = found["updates"]
    assert 0 < counts[1] < counts[2.5]


@pytest.mark.parametrize(("method", "kind"), [("hid", PCHID), ("pehid", PEHID), ("id", PCHID)])
def test_every_method_of_ours_is_fitted(call: Call, log: Path, tmp_path: Path, method: str, kind: type[PCHID]) -> None:
    outcome = call("fit", log, "--out", tmp_path / "fit", "--method", method, *FIT)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    agent = kind.load(tmp_path / "fit" / "policy" / "agent.safetensors")
    assert (agent.K_max == 1) == (method != "pehid")
    assert agent.relabel == (method != "id")


def test_same_seed_same_file(log: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        assert main("fit", log, "--out", tmp_path / name, "--K-max", 2, "--seed", seed, *FIT) == 0
    one, two, other = ((tmp_path / n / "policy" / "agent.safetensors").read_bytes() for n in ("one", "two", "other"))
    assert one == two != other


def test_it_says_what_was_learned_and_where_to_go_on(call: Call, log: Path, tmp_path: Path) -> None:
    outcome = call("fit", log, "--out", tmp_path / "fit", "--env", *BITS, *FIT[:-1])
    assert outcome.code == 0
    assert "episodes" in outcome.out
    assert f"pchid train BitFlip-v0 --env.n_bits 4 --start {tmp_path / 'fit'}" in outcome.out.replace("\n", "")


def test_a_fitted_policy_is_evaluated_where_its_environment_is_known(
    call: Call, fitted: Path, unnamed: Path, tmp_path: Path
) -> None:
    outcome = call("evaluate", fitted, "--episodes", 50, "--json", tmp_path / "measures.json")
    assert (outcome.code, outcome.err) == (0, "")
    agent = PCHID.load(fitted / "policy" / "agent.safetensors")
    measures = evaluate(lambda seen: agent.predict(seen)[0], make_probe("BitFlip-v0", 50, n_bits=4), 50, 7).measures()
    assert json.loads((tmp_path / "measures.json").read_text())["mean_return"] == measures.mean_return
    assert_refused(call("evaluate", unnamed), "no environment is known", "after the directory")
    assert_refused(call("watch", unnamed, "--out", tmp_path / "a.gif"), "no environment is known")
    assert_refused(call("evaluate", unnamed, "BitFlip-v0"), "other observations or actions")  # of eleven bits
    assert_refused(call("evaluate", fitted, "Hanoi-v0"), "BitFlip-v0", "Hanoi-v0")
    assert_refused(call("plot", fitted), "not a finished run")


def test_a_policy_of_unnamed_data_plays_where_its_shapes_fit(call: Call, tmp_path: Path) -> None:
    env = GoalVecEnv.make("BitFlip-v0", 4)  # the number of bits that it has by itself
    path = save_episodes(tmp_path / "bits", random_episodes(env, 3), env.action_space)
    assert call("fit", path, "--out", tmp_path / "fit", *FIT).code == 0
    assert call("evaluate", tmp_path / "fit", "BitFlip-v0", "--episodes", 5).code == 0
    assert call("watch", tmp_path / "fit", "BitFlip-v0", "--episodes", 1, "--out", tmp_path / "a.png").code == 0


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (["--method", "sac+her"], ["pehid", "sac+her"]),
        (["--method", "nonsense"], ["unknown method"]),
        (["--method", "hid", "--K-max", 3], ["one step"]),
        (["--test", "interaction"], ["interaction", "rnd"]),
        (["--test", "ground-truth"], ["ground-truth", "rnd"]),
        (["--test", "luck"], ["unknown TEST"]),
        (["--passes", 0], ["passes is 0"]),
        (["--episodes-per-round", 0], ["episodes_per_round is 0"]),
        (["--tolerance", -1], ["tolerance"]),
        (["--K-max", 0], ["K_max is 0"]),
        (["--batch-size", 0], ["batch_size"]),
        (["--passes-per-pair", 2], ["not both"]),
        (["--learning-rate", 0], ["learning_rate"]),
        (["--seed", -1], ["seed"]),
        (["--hold-goal", "True"], ["null action"]),
        (["--policy", "VinPolicy"], ["VinPolicy", "GridWorld"]),
        (["--policy.colour", 3], ["colour"]),
        (["--convergence.hope", 3], ["convergence.hope"]),
        (["--env.n_bits", 4], ["--env ID"]),
        (["--env", "BitFlop-v0"], ["BitFlop-v0", "BitFlip-v0"]),
        (["--env", "BitFlip-v0"], ["'observation'", "(4,)", "(11,)", "BitFlip-v0"]),
        (["--env", "FetchReachDense-v4"], ["dense"]),
        (["--sb3.gamma", 1], ["--sb3.NAME"]),
    ],
)
def test_wrong_calls(call: Call, log: Path, tmp_path: Path, words: list[Any], sentences: list[str]) -> None:
    given = [word for word in FIT if word != "--passes"][1:] if "--passes" in words else FIT
    assert_refused(call("fit", log, "--out", tmp_path / "fit", *given, *words), *sentences)
    assert not (tmp_path / "fit").exists()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [("nowhere.npz", "there is no file"), ("minari:no/such-v0", "no Minari dataset"), ("empty.npz", "damaged")],
)
def test_wrong_data(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, sentence: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    (tmp_path / "empty.npz").write_bytes(b"")
    assert_refused(call("fit", data, "--out", "fit", *FIT), sentence)
    assert not Path("fit").exists()


def test_a_minari_dataset(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    import gymnasium as gym
    from test_offline import collect

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    collect(gym.make("BitFlip-v0", n_bits=4), "test/bits-v0", 5)
    named = ("--env", *BITS, "--out", tmp_path / "named")
    for words in (named, ("--out", tmp_path / "unnamed")):
        assert call("fit", "minari:test/bits-v0", *words, "--K-max", 2, *FIT).code == 0
    one, two = (PCHID.load(tmp_path / name / "policy" / "agent.safetensors") for name in ("named", "unnamed"))
    assert one.observation_space == two.observation_space  # a dataset knows its spaces
    assert all(map(torch.equal, one.policy.state_dict().values(), two.policy.state_dict().values()))
    assert call("evaluate", tmp_path / "named", "--episodes", 3).code == 0
    wrong = call("fit", "minari:test/bits-v0", "--env", "BitFlip-v0", "--out", tmp_path / "wrong", *FIT)
    assert_refused(wrong, "(4,)", "(11,)", "BitFlip-v0")


def test_nothing_is_written_over(call: Call, log: Path, fitted: Path) -> None:
    before = {path: path.read_bytes() for path in fitted.rglob("*") if path.is_file()}
    assert_refused(call("fit", log, "--out", fitted, *FIT), "already holds")
    assert_refused(call("train", *BITS, "--episodes", 2, "--out", fitted, *QUICK), "already holds")
    assert before == {path: path.read_bytes() for path in fitted.rglob("*") if path.is_file()}


# Starting from there.

START = (*BITS, "--updates-per-episode", 3, "--K-max", 2, *QUICK)


def test_training_starts_with_the_fitted_policy(call: Call, fitted: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert call("train", *START, "--start", fitted, "--episodes", 8, "--out", out).code == 0
    assert json.loads((out / "config.json").read_text())["start"] == str(fitted)
    assert call("train", *START, "--episodes", 8, "--out", tmp_path / "plain").code == 0
    first, plain = rows_of(out)[0], rows_of(tmp_path / "plain")[0]
    assert call("evaluate", fitted, "--episodes", 8, "--seed", 1_000_003, "--json", tmp_path / "m.json").code == 0
    assert float(first["final_success"]) == json.loads((tmp_path / "m.json").read_text())["final_success"]
    assert first["mean_return"] != plain["mean_return"]
    # The statistics of its inputs have come along: those of the log, and what the run has seen.
    counts = [
        float(PCHID.load(place / "policy" / "agent.safetensors").policy.network.goal_normaliser.count)
        for place in (fitted, out, tmp_path / "plain")
    ]
    assert counts[1] > counts[0] > counts[2]


def test_the_behaviour_policy_is_the_saved_one_at_once(fitted: Path) -> None:
    env = GoalVecEnv.make("BitFlip-v0", 6, n_bits=4)
    agent = PEHID("GoalPolicy", env, exploration=0.0, noise=0.0, policy_kwargs={"hidden_sizes": [16]}, seed=1)
    start_from(agent, fitted / "policy" / "agent.safetensors")
    seen: Any = env.reset()
    agent.recorder.start(seen)
    saved = PCHID.load(fitted / "policy" / "agent.safetensors")
    np.testing.assert_array_equal(agent._behave(seen), saved.predict(seen)[0])


def test_a_run_and_a_file_can_start_one_too(call: Call, fitted: Path, tmp_path: Path) -> None:
    assert call("train", *START, "--start", fitted, "--episodes", 3, "--out", tmp_path / "one").code == 0
    file = tmp_path / "one" / "policy" / "agent.safetensors"
    for name, start in (("by run", tmp_path / "one"), ("by file", file)):
        words = ("--method", "pehid", "--start", start, "--episodes", 3, "--out", tmp_path / name)
        assert call("train", *START, *words).code == 0
    assert result(tmp_path / "by run")["policy"] == result(tmp_path / "by file")["policy"]


def test_the_behaviour_policy_wanders_only_once_it_has_met_goals(call: Call, fitted: Path, tmp_path: Path) -> None:
    words = ("--start", fitted, "--wander", 0.5, "--episodes", 3, "--out", tmp_path / "run")
    assert call("train", *START, *words).code == 0


@pytest.mark.parametrize("rounds", [3, 6])
def test_a_stopped_run_goes_on_exactly_even_if_its_start_is_gone(fitted: Path, tmp_path: Path, rounds: int) -> None:
    start = tmp_path / "start"
    shutil.copytree(fitted, start)
    words = (*START, "--start", start, "--episodes", 12, "--num-envs", 2, "--checkpoint-seconds", 0)
    assert main("train", *words, "--out", tmp_path / "straight") == 0
    config = RunDirectory(tmp_path / "straight").read_config()
    (tmp_path / "pieces").mkdir()
    (tmp_path / "pieces" / "config.json").write_text(json.dumps(config))
    assert train_in_pieces(tmp_path / "straight", tmp_path / "pieces", rounds) >= 1
    assert result(tmp_path / "pieces") == result(tmp_path / "straight")
    shutil.rmtree(start)
    assert main("train", "--resume", "--out", tmp_path / "pieces", "--episodes", 16, "--quiet") == 0
    assert main("train", "--resume", "--out", tmp_path / "straight", "--episodes", 16, "--quiet") == 0
    assert result(tmp_path / "pieces") == result(tmp_path / "straight")


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (["--policy.hidden_sizes", "[8]"], ["hidden_sizes [16]", "[8]", "--policy.hidden_sizes [16]"]),
        (["--policy.averaging", 0.9], ["averaging", "--policy.averaging 0.0"]),
        (["--env.n_bits", 5], ["other observations or actions"]),
        (["--method", "dqn"], ["--start", "dqn"]),
        (["--start", "nowhere"], ["there is no agent"]),
    ],
)
def test_what_cannot_start_is_refused(
    call: Call, fitted: Path, tmp_path: Path, words: list[Any], sentences: list[str]
) -> None:
    given = ["train", *START, "--start", fitted, "--episodes", 3, "--out", tmp_path / "run", *words]
    assert_refused(call(*given), *sentences)
    assert not RunDirectory(tmp_path / "run").exists


def test_damaged_and_foreign_files_are_refused(call: Call, fitted: Path, tmp_path: Path) -> None:
    data = (fitted / "policy" / "agent.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(data[:-100])
    words = ("train", *START, "--episodes", 3, "--out", tmp_path / "run", "--start")
    assert_refused(call(*words, tmp_path / "cut.safetensors"), "damaged")
    combined = ("train", *BITS, "--method", "dqn", "--episodes", 2, *QUICK[4:], "--out", tmp_path / "dqn")
    assert call(*combined).code == 0
    assert_refused(call(*words, tmp_path / "dqn"), "CombinedAgent")
    (tmp_path / "fit").mkdir()
    (tmp_path / "fit" / "fit.json").write_text("{}")
    assert_refused(call("evaluate", tmp_path / "fit"), "fit.json", "'env_options'")
    (tmp_path / "fit" / "fit.json").write_text("[]")
    assert_refused(call("evaluate", tmp_path / "fit"), "fit.json")


def test_a_run_without_a_start_is_named_as_ever() -> None:
    plain = new_config({"env": "BitFlip-v0"})
    assert "start" not in plain
    assert directory_name(plain) == "BitFlip-v0-pchid-ddd6ab7a-0"
    started = new_config({"env": "BitFlip-v0", "start": "runs/fit"})
    assert {**plain, "start": "runs/fit"} == started
    assert directory_name(started) != directory_name(plain)
    with pytest.raises(InputError, match="start cannot be 3"):
        new_config({"env": "BitFlip-v0", "start": 3})


@pytest.mark.slow
def test_a_fit_of_random_episodes_is_evaluated_on_fetch_reach(call: Call, tmp_path: Path) -> None:
    from test_offline import reach_log

    path = save_episodes(tmp_path / "reach", reach_log(20))
    assert call("fit", path, "--out", tmp_path / "fit", "--env", "FetchReach-v4", "--quiet").code == 0
    assert call("evaluate", tmp_path / "fit", "--episodes", 50, "--json", tmp_path / "m.json").code == 0
    assert json.loads((tmp_path / "m.json").read_text())["final_success"] >= 0.8
    assert np.isfinite(json.loads((tmp_path / "fit" / "fit.json").read_text())["loss"])
