"""The methods of two and three parts on the command line: what they write, what they refuse, and what they evaluate."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import QUICK, Outcome

import pchid.cli
from pchid.combine.agent import CombinedAgent
from pchid.envs.make import make_probe
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError
from pchid.evaluation import evaluate
from pchid.methods import Method, parse_method
from pchid.training import EVALUATION_SEED

Call = Callable[..., Outcome]
NETWORK = ("--sb3.policy_kwargs", "{'net_arch': [16]}")
FEW = (*QUICK, "--updates-per-episode", 2, *NETWORK)
BITS = ("train", "BitFlip-v0", "--env.n_bits", 4, *FEW)
REACH = ("train", "FetchReach-v4", "--env.horizon", 6, *FEW)
LEARNING = ("--sb3.learning_starts", 8, "--sb3.batch_size", 16, "--sb3.buffer_size", 500)
ROLLOUT = ("--sb3.n_steps", 12, "--sb3.batch_size", 12, "--sb3.n_epochs", 2)
COLUMNS = [
    *("episodes", "env_steps", "test_steps", "wall_seconds"),
    *("final_success", "any_success", "mean_return", "steps_to_goal", "K"),
]


def main(*words: object) -> int:
    return pchid.cli.main([str(word) for word in words])


def rows_of(out: Path) -> list[dict[str, str]]:
    with (out / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def config_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "config.json").read_text())
    return found


def summary_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return found


# The names of methods.


def test_names_are_taken_apart() -> None:
    assert parse_method("pchid") == Method(None, False, "pchid")
    assert parse_method("dqn") == Method("dqn", False, None)
    assert parse_method("sac+her") == Method("sac", True, None)
    assert parse_method("td3+pehid") == Method("td3", False, "pehid")
    assert parse_method("ppo+her+pchid") == Method("ppo", True, "pchid")
    assert parse_method("ddpg+hid").one_step
    assert not parse_method("ddpg+pchid").one_step


UNKNOWN = [
    *("foo", "dqn+foo", "her+dqn", "pchid+her", "dqn+pchid+her", "dqn+her+her", "dqn+hid+pchid", "her", "+", ""),
    *("dqn+", "DQN", "dqn+id", "dqn+her+id", "a2c", "dqn +her"),
]


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="unknown method") as caught:
        parse_method(name)
    assert "\n" not in str(caught.value)


# What a run writes.


DISCRETE = [
    ("dqn", LEARNING, (None, None)),
    ("dqn+her", LEARNING, (None, None)),
    ("dqn+her+pchid", LEARNING, ("joint", 1.0)),
    ("dqn+pehid", (*LEARNING, "--combine", "intrinsic"), ("intrinsic", 0.1)),
    ("ppo", ROLLOUT, (None, None)),
    ("ppo+pchid", (*ROLLOUT, "--combine", "average", "--weight", 0.3), ("average", 0.3)),
    ("ppo+her+pchid", (*ROLLOUT, "--combine", "joint"), ("joint", 1.0)),
    ("ppo+her+hid", (*ROLLOUT, "--combine", "average"), ("average", 0.5)),
]
CONTINUOUS = [
    ("sac+her+hid", LEARNING, ("joint", 1.0)),
    ("td3+pchid", (*LEARNING, "--combine", "average"), ("average", 0.5)),
    ("ddpg+her", LEARNING, (None, None)),
    ("ppo+her+pehid", (*ROLLOUT, "--combine", "intrinsic", "--weight", 0), ("intrinsic", 0.0)),
    ("tqc+her+pchid", LEARNING, ("joint", 1.0)),
]


def assert_written(out: Path, method: str, combination: tuple[Any, Any], env: str, horizon: int) -> None:
    config, rows, summary = config_of(out), rows_of(out), summary_of(out)
    assert (config["method"], config["combine"], config["weight"]) == (method, *combination)
    assert config["sb3_settings"]["policy_kwargs"] == {"net_arch": [16]}
    assert config["sb3_settings"]["batch_size"] in (12, 16)
    assert list(rows[0])[: len(COLUMNS)] == COLUMNS
    assert any("loss" in name for name in rows[0])
    episodes = [int(row["episodes"]) for row in rows]
    assert (episodes[0], episodes[-1]) == (0, 13)  # as many as were asked for
    assert episodes == sorted(set(episodes))
    assert len(rows) >= 4
    has_module = parse_method(method).module is not None
    for row in rows:
        assert 0.0 <= float(row["final_success"]) <= float(row["any_success"]) <= 1.0
        assert 1.0 <= float(row["steps_to_goal"]) <= horizon
        assert math.isfinite(float(row["mean_return"]))
        assert (row["K"] != "") == has_module
        assert has_module or int(row["test_steps"]) == 0
    assert (rows[-1]["loss"] != "") == has_module
    for name, cell in rows[-1].items():
        assert summary[name] == (float(cell) if cell else None)
    assert (summary["method"], summary["env"], summary["seed"]) == (method, env, 4)
    assert {"pchid", "torch", "stable-baselines3"} <= set(summary["versions"])
    assert (out / "policy" / "agent.safetensors").exists()
    assert list((out / "tensorboard").glob("events.out.tfevents.*"))


RUN = ("--seed", 4, "--episodes", 13, "--eval-every", 3)


@pytest.mark.parametrize(
    ("method", "words", "combination"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] * (case[0] in ("dqn+her", "dqn+pehid", "ppo", "ppo+her+hid")))
        for case in DISCRETE
    ],
)
def test_a_run_writes_what_it_should(
    tmp_path: Path, method: str, words: tuple[Any, ...], combination: tuple[Any, Any]
) -> None:
    out = tmp_path / "run"
    assert main(*BITS, "--method", method, *words, *RUN, "--out", out) == 0
    assert_written(out, method, combination, "BitFlip-v0", 4)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "words", "combination"), CONTINUOUS)
def test_so_does_one_in_mujoco(
    tmp_path: Path, method: str, words: tuple[Any, ...], combination: tuple[Any, Any]
) -> None:
    if method.startswith("tqc"):
        pytest.importorskip("sb3_contrib")
    out = tmp_path / "run"
    assert main(*REACH, "--method", method, *words, *RUN, "--out", out) == 0
    assert_written(out, method, combination, "FetchReach-v4", 6)


@pytest.mark.slow
def test_the_recommended_settings_work_where_episodes_are_long(call: Call, tmp_path: Path) -> None:
    words = ("train", "PointMaze_UMaze-v3", "--method", "sac+her", *NETWORK, "--episodes", 1, *QUICK)
    outcome = call(*words, "--eval-episodes", 1, "--final-episodes", 1, "--out", tmp_path / "run")
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize("method", ["dqn", "ppo", "ppo+her", "ppo+pchid"])
def test_the_recommended_settings_work_on_grid_world(call: Call, tmp_path: Path, method: str) -> None:
    small = ("--env.size", 6, "--policy.hidden_channels", 4, "--eval-episodes", 2, "--final-episodes", 2)
    words = ("train", "GridWorld-v0", *small, "--method", method, "--episodes", 1, "--quiet")
    outcome = call(*words, "--out", tmp_path / "run")
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize("method", ["dqn+her", "ppo+pchid"])
@pytest.mark.parametrize("episodes", [1, 7])
def test_the_number_of_episodes_is_exact(tmp_path: Path, method: str, episodes: int) -> None:
    settings = (*LEARNING, "--sb3.learning_starts", 0) if method == "dqn+her" else ROLLOUT
    words = ("--method", method, *settings, "--episodes", episodes)
    assert main(*BITS, *words, "--out", tmp_path / "run") == 0
    assert int(rows_of(tmp_path / "run")[-1]["episodes"]) == episodes


def test_steps_may_stand_for_episodes(tmp_path: Path) -> None:
    assert main(*BITS, "--method", "dqn+hid", *LEARNING, "--steps", 50, "--out", tmp_path / "run") == 0
    assert int(rows_of(tmp_path / "run")[-1]["env_steps"]) == 50


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    words = (*BITS, "--method", "ppo+her+pchid", *ROLLOUT, "--episodes", 12)
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        assert main(*words, "--seed", seed, "--out", tmp_path / name) == 0
    one, two, other = (
        (tmp_path / name / "policy" / "agent.safetensors").read_bytes() for name in ("one", "two", "other")
    )
    assert one == two != other


@pytest.mark.slow
def test_with_weight_0_a_run_is_that_of_the_algorithm_alone(tmp_path: Path) -> None:
    words = (*BITS, *LEARNING, "--episodes", 20)
    assert main(*words, "--method", "dqn+her", "--out", tmp_path / "alone") == 0
    alone = policy_of(tmp_path / "alone", "BitFlip-v0", n_bits=4)
    for combine in ("joint", "average", "intrinsic"):
        out = tmp_path / combine
        assert main(*words, "--method", "dqn+her+pchid", "--combine", combine, "--weight", 0, "--out", out) == 0
        both = policy_of(out, "BitFlip-v0", n_bits=4)
        assert all(torch.equal(value, both[name]) for name, value in alone.items())
        for one, other in zip(rows_of(tmp_path / "alone"), rows_of(out), strict=True):
            for name in ("episodes", "env_steps", "final_success", "any_success", "mean_return", "steps_to_goal"):
                assert one[name] == other[name]


def policy_of(out: Path, env_id: str, **options: Any) -> dict[str, torch.Tensor]:
    agent = CombinedAgent.load(out / "policy" / "agent.safetensors", GoalVecEnv.make(env_id, 1, **options))
    state: dict[str, torch.Tensor] = agent.model.policy.state_dict()
    return state


# Options of the algorithm.


def test_options_reach_the_algorithm(tmp_path: Path) -> None:
    words = ("--method", "dqn", *LEARNING, "--episodes", 3, "--sb3.gamma", 0.5, "--sb3.target-update-interval", 77)
    assert main(*BITS, *words, "--out", tmp_path / "run") == 0
    settings = config_of(tmp_path / "run")["sb3_settings"]
    assert (settings["gamma"], settings["target_update_interval"], settings["learning_starts"]) == (0.5, 77, 8)
    state = policy_of(tmp_path / "run", "BitFlip-v0", n_bits=4)
    assert state["q_net.q_net.0.weight"].shape[0] == 16
    other = ("--sb3.learning_rate", 0.05)
    long = (*BITS, "--method", "dqn", *LEARNING, "--episodes", 12)
    assert main(*long, "--out", tmp_path / "one") == 0
    assert main(*long, *other, "--out", tmp_path / "two") == 0
    one, two = (policy_of(tmp_path / name, "BitFlip-v0", n_bits=4) for name in ("one", "two"))
    assert any(not torch.equal(value, two[name]) for name, value in one.items())


WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "no such option": ((*BITS, "--method", "dqn", "--sb3.nonsense", 3), "nonsense"),
    "no such option of this algorithm": ((*BITS, "--method", "ppo", "--sb3.learning_starts", 3), "learning_starts"),
    "no number": ((*BITS, "--method", "dqn", "--sb3.learning_rate", "fast"), "fast"),
    "no settings of networks": ((*BITS, "--method", "dqn", "--sb3.policy_kwargs", 3), "policy_kwargs"),
    "no such setting of networks": ((*BITS, "--method", "dqn", "--sb3.policy_kwargs", "{'depth': 3}"), "depth"),
    "no noise": ((*REACH, "--method", "sac", *LEARNING, "--sb3.action_noise", "loud"), "action_noise"),
    "negative noise": ((*REACH, "--method", "sac", *LEARNING, "--sb3.action_noise", -1), "action_noise"),
    "what cannot go on exactly": ((*REACH, "--method", "sac", "--sb3.use_sde", True), "use_sde"),
    "episodes in several slots": ((*BITS, "--method", "dqn", "--num-envs", 3, "--episodes", 7), "--steps"),
    "no ratio": ((*BITS, "--method", "ppo+her", "--sb3.her_ratio", 2), "her_ratio"),
    "sb3 without sb3": ((*BITS, "--method", "pchid"), "sb3"),
    "combine without a module": ((*BITS, "--method", "dqn", "--combine", "joint"), "--combine"),
    "combine with HER alone": ((*BITS, "--method", "dqn+her", "--combine", "average"), "--combine"),
    "combine with ours": (("train", "BitFlip-v0", "--method", "pchid", "--combine", "joint"), "--combine"),
    "weight without a module": ((*BITS, "--method", "ppo", "--weight", 0.5), "--weight"),
    "no such combination": ((*BITS, "--method", "ppo+pchid", "--combine", "mean"), "mean"),
    "negative weight": ((*BITS, "--method", "ppo+pchid", "--weight", -0.5), "weight"),
    "weight without end": ((*BITS, "--method", "ppo+pchid", *ROLLOUT, "--weight", "inf"), "weight"),
    "weight that is no number": ((*BITS, "--method", "ppo+pchid", "--weight", "nan"), "weight"),
    "more than the whole action": (
        (*REACH, "--method", "sac+pchid", "--combine", "average", "--weight", 2),
        "at most 1",
    ),
    "dqn with continuous actions": ((*REACH, "--method", "dqn"), "DQN"),
    "dqn with a module with continuous actions": ((*REACH, "--method", "dqn+her+pchid"), "DQN"),
    "sac with discrete actions": ((*BITS, "--method", "sac"), "SAC"),
    "td3 with discrete actions": ((*BITS, "--method", "td3+her+pchid"), "TD3"),
    "K_max of one step": ((*BITS, "--method", "dqn+hid", "--K-max", 3), "one step"),
    **{f"method {name}": ((*BITS, "--method", name), "unknown method") for name in UNKNOWN[:4]},
}


@pytest.mark.parametrize(("words", "said"), WRONG.values(), ids=WRONG)
def test_wrong_calls_are_refused_in_one_line(call: Call, tmp_path: Path, words: tuple[Any, ...], said: str) -> None:
    outcome = call(*words, "--episodes", 12, "--out", tmp_path / "run")
    assert outcome.code == 2
    (line,) = outcome.err.splitlines()
    assert line.startswith("pchid: ")
    assert said in line
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_resumed_run_keeps_how_it_was_combined(call: Call, tmp_path: Path) -> None:
    words = ("--method", "ppo+pchid", *ROLLOUT, "--combine", "average", "--episodes", 4)
    assert main(*BITS, *words, "--out", tmp_path / "run") == 0
    again = ("train", "--resume", "--out", tmp_path / "run", "--quiet")
    for change in (("--combine", "joint"), ("--weight", 0.1), ("--sb3.gamma", 0.1), ("--method", "ppo+hid")):
        outcome = call(*again, *change)
        assert outcome.code == 2
        (line,) = outcome.err.splitlines()
        assert "--resume cannot" in line
    assert call(*again, "--combine", "average", "--weight", 0.5, "--episodes", 9).code == 0
    assert summary_of(tmp_path / "run")["episodes"] == 9


# Evaluation.


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("dqn+her+pchid", LEARNING),
        ("ppo+her+pchid", (*ROLLOUT, "--combine", "average", "--weight", 2)),
        pytest.param("dqn+pchid", (*LEARNING, "--combine", "average", "--weight", 3), marks=pytest.mark.slow),
        pytest.param("ppo+her", ROLLOUT, marks=pytest.mark.slow),
        pytest.param("dqn+pehid", (*LEARNING, "--combine", "intrinsic"), marks=pytest.mark.slow),
    ],
)
def test_what_is_evaluated_is_the_policy_of_the_summary(tmp_path: Path, method: str, words: tuple[Any, ...]) -> None:
    out, seed = tmp_path / "run", 4
    assert main(*BITS, "--method", method, *words, "--episodes", 30, "--seed", seed, "--out", out) == 0
    given = ("--episodes", 16, "--seed", seed + EVALUATION_SEED, "--json", tmp_path / "measures.json")
    assert main("evaluate", out, *given) == 0
    measures, summary = json.loads((tmp_path / "measures.json").read_text()), summary_of(out)
    for name in ("final_success", "any_success", "mean_return", "steps_to_goal"):
        assert measures[name] == summary[name]


@pytest.mark.slow
def test_so_it_is_for_continuous_actions(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("--method", "sac+her+pchid", *LEARNING, "--combine", "average", "--episodes", 8)
    assert main(*REACH, *words, "--env.success_reward", 3, "--out", out) == 0
    given = ("--episodes", 16, "--seed", EVALUATION_SEED, "--json", tmp_path / "measures.json")
    assert main("evaluate", out, *given) == 0
    measures, summary = json.loads((tmp_path / "measures.json").read_text()), summary_of(out)
    for name in ("final_success", "any_success", "mean_return", "steps_to_goal"):
        assert measures[name] == summary[name]


def test_the_network_beside_an_averaged_policy_is_saved_with_it(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("--method", "ppo+pchid", *ROLLOUT, "--combine", "average", "--weight", 5, "--episodes", 30)
    assert main(*BITS, *words, "--out", out) == 0
    agent: Any = CombinedAgent.load(out / "policy" / "agent.safetensors", GoalVecEnv.make("BitFlip-v0", 1, n_bits=4))
    probe = make_probe("BitFlip-v0", 16, n_bits=4)
    observations, _ = probe.reset(seed=5)
    both = agent.predict(observations)[0]
    assert agent.module.trained
    agent.module.release()
    assert not np.array_equal(agent.predict(observations)[0], both)
    network = agent.module.network
    untouched = type(network)(network.observation_space, network.action_space, lambda _: 1e-3, hidden_sizes=[16])
    assert any(not torch.equal(a, b) for a, b in zip(network.parameters(), untouched.parameters(), strict=True))
    assert network.network.observation_normaliser.count > 0


def test_a_run_whose_module_has_learned_nothing_is_evaluated_as_it_was(tmp_path: Path) -> None:
    """It was stopped so early that no episode had ended when the policy was saved."""
    out = tmp_path / "run"
    words = ("--method", "dqn+pchid", *LEARNING, "--combine", "average", "--steps", 2)
    assert main(*BITS, *words, "--out", out) == 0
    given = ("--episodes", 16, "--seed", EVALUATION_SEED, "--json", tmp_path / "measures.json")
    assert main("evaluate", out, *given) == 0
    assert json.loads((tmp_path / "measures.json").read_text())["mean_return"] == summary_of(out)["mean_return"]


# The reward of success.


@pytest.mark.slow
def test_another_reward_of_success_is_nothing_to_pchid(tmp_path: Path) -> None:
    words = ("train", "FetchReach-v4", "--env.horizon", 10, *QUICK, "--K-max", 2, "--updates-per-episode", 20)
    for reward in (0, 10):
        given = ("--env.success_reward", reward, "--episodes", 12, "--out", tmp_path / str(reward))
        assert main(*words, *given) == 0
    plain, raised = (rows_of(tmp_path / name) for name in ("0", "10"))
    assert [without(row) for row in plain] == [without(row) for row in raised]
    assert any(float(row["any_success"]) > 0 for row in plain)  # else nothing could differ
    assert [row["mean_return"] for row in plain] != [row["mean_return"] for row in raised]


def without(row: dict[str, str]) -> dict[str, str]:
    return {name: cell for name, cell in row.items() if name not in ("mean_return", "wall_seconds")}


def straight_to_the_goal(seen: dict[str, np.ndarray]) -> np.ndarray:
    away = 10.0 * (seen["desired_goal"] - seen["achieved_goal"])
    return np.column_stack([away.clip(-1, 1), np.zeros(len(away))])


@pytest.mark.slow
def test_it_is_something_to_ppo(tmp_path: Path) -> None:
    words = ("--method", "ppo+her", *ROLLOUT, "--sb3.her_ratio", 1.0, "--episodes", 8)
    for reward in (0, 10):
        assert main(*REACH, *words, "--env.success_reward", reward, "--out", tmp_path / str(reward)) == 0
    one, other = (policy_of(tmp_path / name, "FetchReach-v4", horizon=6) for name in ("0", "10"))
    assert any(not torch.equal(value, other[name]) for name, value in one.items())
    probes = [make_probe("FetchReach-v4", 30, horizon=15, success_reward=reward) for reward in (0.0, 10.0)]
    returns = [evaluate(straight_to_the_goal, probe, 30, 2) for probe in probes]
    reached = returns[0].any_success
    assert reached.any()
    assert (returns[1].total_reward[reached] > returns[0].total_reward[reached]).all()
