"""An exported policy: the same actions by onnxruntime alone, for every kind of agent, or no file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from support import QUICK, Outcome
from test_offline import SMALL, bits_log, reach_like

import pchid.cli
import pchid.export
from pchid import PCHID, GoalVecEnv
from pchid.combine.agent import CombinedAgent, make_agent
from pchid.config import new_config
from pchid.envs.grid_world import GridWorldVectorEnv
from pchid.errors import InputError, RunError
from pchid.export import export_agent, export_policy, played_observations, random_observations
from pchid.graphs import policy_graph
from pchid.offline import episodes_from_arrays, save_episodes

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

Call = Callable[..., Outcome]


def session(path: Path) -> Any:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def run(path: Path, observations: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What the file says, given no more than it asks for."""
    loaded = session(path)
    return loaded.run(None, {one.name: observations[one.name] for one in loaded.get_inputs()})  # type: ignore[no-any-return]


def names(path: Path) -> tuple[list[str], list[str]]:
    loaded = session(path)
    return [one.name for one in loaded.get_inputs()], [one.name for one in loaded.get_outputs()]


def bits_agent(**settings: Any) -> PCHID:
    log = bits_log(3)
    return PCHID.from_episodes(log, K_max=1, **{**SMALL, **settings}).fit(log, 1)


def plane_agent(**settings: Any) -> PCHID:
    """An agent with two continuous actions of different bounds, and constant entries in what it observes."""
    log = reach_like()
    rng = np.random.default_rng(0)
    wide = [np.concatenate([place, np.full((len(place), 1), 3.0)], axis=1) for place in log.observation]
    log = episodes_from_arrays(
        {"observation": wide, "achieved_goal": log.achieved_goal, "desired_goal": log.desired_goal},
        rng.uniform([-2.0, 0.0], [0.5, 7.0], log.action.shape),
        log.length,
        action_space=spaces.Box(np.array([-2.0, -1.0], np.float32), np.array([0.5, 7.0], np.float32)),
    )
    return PCHID.from_episodes(log, **{"K_max": 1, **SMALL, **settings}).fit(log, 1)


# Policies of our own.


def test_discrete_actions_and_their_scores(tmp_path: Path) -> None:
    agent = bits_agent()
    found = export_agent(agent, tmp_path / "policy.onnx", metadata={"env": "BitFlip-v0", "method": "hid"})
    assert names(found.path) == (["observation", "desired_goal"], ["action", "scores"])
    assert found.inputs["observation"] == "int8 (batch, 5)"
    assert found.compared == 1000
    assert found.difference <= 1e-5
    for batch in (1, 7):
        seen = random_observations(agent, batch, seed=3)
        action, scores = run(found.path, seen)
        np.testing.assert_array_equal(action, agent.predict(seen)[0])
        assert scores.shape == (batch, 5)
        np.testing.assert_array_equal(scores.argmax(axis=1), action)
    properties = session(found.path).get_modelmeta().custom_metadata_map
    assert properties == {"env": "BitFlip-v0", "method": "hid", "version": pchid.__version__}


@pytest.mark.parametrize("network", [{}, {"averaging": 0.9}, {"difference": True}, {"reach": 60.0}])
def test_continuous_actions_are_as_the_environment_takes_them(tmp_path: Path, network: dict[str, Any]) -> None:
    agent = plane_agent(policy_kwargs={"hidden_sizes": [8], **network})
    found = export_agent(agent, tmp_path / "policy.onnx")
    sees_achieved = bool({"difference", "reach"} & set(network))
    assert names(found.path) == (["observation", "desired_goal", "achieved_goal"][: 2 + sees_achieved], ["action"])
    assert found.inputs["observation"] == "float64 (batch, 3)"
    seen = random_observations(agent, 500, seed=3)
    seen["desired_goal"] *= 50.0  # far away: there the action is at its bounds
    (action,) = run(found.path, seen)
    assert action.dtype == np.float32
    np.testing.assert_allclose(action, agent.predict(seen)[0], atol=1e-5)
    low, high = agent.action_space.low, agent.action_space.high  # type: ignore[attr-defined]
    assert (action >= low).all()
    assert (action <= high).all()
    assert (np.isclose(action, low) | np.isclose(action, high)).any(axis=0).all()


def test_observations_to_compare_on_are_of_the_scale_that_was_seen() -> None:
    agent = plane_agent()
    seen = random_observations(agent)
    statistics = agent.policy.network.observation_normaliser
    np.testing.assert_allclose(seen["observation"].mean(axis=0), statistics.mean.numpy(), atol=0.3)
    np.testing.assert_array_equal(seen["observation"][:, 2], 3.0)
    assert len(seen["desired_goal"]) == 1000


@pytest.mark.parametrize("free", [False, True])
def test_the_null_action_is_in_the_graph_where_the_goal_holds(tmp_path: Path, free: bool) -> None:
    agent = plane_agent(hold_goal=True, tolerance=0.3)
    if free:  # a part that is left to the policy
        agent._null_action = np.array([0.0, np.nan], np.float32)
    found = export_agent(agent, tmp_path / "policy.onnx")
    assert names(found.path)[0] == ["observation", "desired_goal", "achieved_goal"]
    seen = random_observations(agent, 300, seed=3)
    seen["desired_goal"][::2] = seen["achieved_goal"][::2] + 0.1
    (action,) = run(found.path, seen)
    near = np.linalg.norm(seen["desired_goal"] - seen["achieved_goal"], axis=1) < 0.3
    assert near[::2].all()
    assert not near.all()
    assert (action[near, 0] == 0.0).all()
    assert (action[near, 1] == 0.0).all() != free
    assert (action[~near] != 0.0).any()
    np.testing.assert_allclose(action, agent.predict(seen)[0], atol=1e-5)


def test_a_rule_that_is_no_distance_is_refused_and_can_be_left_out(tmp_path: Path) -> None:
    agent = plane_agent(hold_goal=True)
    with pytest.raises(InputError, match="--no-hold exports the policy without it"):
        export_agent(agent, tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())
    found = export_agent(agent, tmp_path / "policy.onnx", hold=False)
    assert names(found.path)[0] == ["observation", "desired_goal"]
    assert agent._null_action is not None  # and the agent still holds


def test_the_threshold_of_fetch_is_found_and_a_false_one_is_not_believed() -> None:
    agent = PCHID("GoalPolicy", "FetchReach-v4", K_max=1, hold_goal=True, **SMALL)
    graph = policy_graph(agent)
    assert graph.hold is not None
    assert graph.hold.threshold == 0.05
    assert np.isnan(graph.hold.null_action[3])
    agent.env.unwrapped.vector._single.distance_threshold = 0.1  # type: ignore[union-attr]
    assert policy_graph(agent).hold.threshold == 0.1  # type: ignore[union-attr]
    agent.is_success = lambda achieved, desired: np.linalg.norm(achieved - desired, axis=-1) < 0.05
    with pytest.raises(InputError, match="--no-hold"):
        policy_graph(agent)


@pytest.mark.slow
@pytest.mark.parametrize("symmetric", [False, True])
def test_a_planning_network_takes_maps_of_any_size(tmp_path: Path, symmetric: bool) -> None:
    env = GoalVecEnv.make("GridWorld-v0", 2, size=6, n_obstacles=4)
    network = {"iterations": 4, "symmetric": symmetric}
    agent = PCHID("VinPolicy", env, K_max=1, updates_per_episode=2, batch_size=8, policy_kwargs=network, seed=0)
    agent.learn(60)
    found = export_agent(agent, tmp_path / "policy.onnx")
    assert found.inputs["observation"] == "uint8 (batch, 2, height, width)"
    for size in (6, 9):
        seen, _ = GridWorldVectorEnv(5, size=size, n_obstacles=4).reset(seed=1)
        action, scores = run(found.path, seen)
        np.testing.assert_array_equal(action, agent.policy.act(seen))
        reference = agent.policy({key: torch.as_tensor(value) for key, value in seen.items()})
        np.testing.assert_allclose(scores, reference.detach().numpy(), rtol=1e-4, atol=1e-4)
    assert "forward" not in vars(agent.policy.network)  # it computes by its kernel again


# Policies of Stable-Baselines3.


def combined(method: str, env_id: str, **given: Any) -> tuple[CombinedAgent, dict[str, Any]]:
    """An agent as `pchid train` makes it, with parameters that nobody has trained."""
    small = {"policy_kwargs": {"net_arch": [16]}, **({} if method.startswith("ppo") else {"buffer_size": 10})}
    config = new_config({"env": env_id, "method": method, "steps": 10, "sb3_options": small, **given})
    return make_agent(config, GoalVecEnv.make(env_id, 1)), config


slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("method", "env_id", "given"),
    [
        pytest.param("dqn", "BitFlip-v0", {}, id="dqn"),
        pytest.param("sac", "FetchReach-v4", {}, id="sac", marks=slow),
        pytest.param("tqc", "FetchReach-v4", {}, id="tqc", marks=slow),
        pytest.param("td3+her", "FetchReach-v4", {}, id="td3", marks=slow),
        pytest.param("ddpg+pchid", "FetchReach-v4", {}, id="ddpg, joint", marks=slow),
        pytest.param("ppo", "FetchReach-v4", {}, id="ppo", marks=slow),
        pytest.param("ppo+her+pchid", "BitFlip-v0", {}, id="ppo, discrete", marks=slow),
        pytest.param("dqn+pchid", "BitFlip-v0", {"combine": "average"}, id="dqn, averaged", marks=slow),
        pytest.param("sac+pchid", "FetchReach-v4", {"combine": "average"}, id="sac, averaged", marks=slow),
        pytest.param("td3+pchid", "FetchReach-v4", {"combine": "average"}, id="td3, averaged", marks=slow),
        pytest.param("ppo+pchid", "FetchReach-v4", {"combine": "average"}, id="ppo, averaged", marks=slow),
        pytest.param("ppo+pehid", "BitFlip-v0", {"combine": "average"}, id="ppo, discrete, averaged", marks=slow),
        pytest.param("sac+pchid", "FetchReach-v4", {"combine": "intrinsic"}, id="sac, intrinsic", marks=slow),
    ],
)
def test_every_algorithm_acts_as_before(tmp_path: Path, method: str, env_id: str, given: dict[str, Any]) -> None:
    pytest.importorskip("sb3_contrib") if method == "tqc" else None
    agent, config = combined(method, env_id, **given)
    seen = played_observations(env_id, {}, 60)
    alone = agent.predict(seen)[0]
    if given.get("combine") == "average":
        agent.module.learner.updates = 1  # type: ignore[union-attr]
        with torch.no_grad():  # an opinion that can be heard
            agent.module.network.network.layers[-1].weight.mul_(20.0)  # type: ignore[union-attr]
        assert not np.array_equal(agent.predict(seen)[0], alone)
    found = export_agent(agent, tmp_path / "policy.onnx", observations=seen)
    assert names(found.path)[0] == ["observation", "desired_goal", "achieved_goal"]
    action, *scores = run(found.path, seen)
    expected = agent.predict(seen)[0]
    if scores:
        assert (action == expected).mean() > 0.98
    else:
        np.testing.assert_allclose(action, expected, atol=1e-5)
        assert action.shape == (60, 4)
    assert found.compared == 60
    assert config["method"] == method


@slow
def test_dqn_on_a_planning_network_needs_no_achieved_goal(tmp_path: Path) -> None:
    given = {"policy": "VinPolicy", "policy_options": {"iterations": 3}, "env_options": {"size": 6, "n_obstacles": 3}}
    config = new_config({"env": "GridWorld-v0", "method": "dqn", "steps": 10, **given})
    agent = make_agent(config, GoalVecEnv.make("GridWorld-v0", 1, size=6, n_obstacles=3))
    seen = played_observations("GridWorld-v0", {"size": 6, "n_obstacles": 3}, 80)
    found = export_agent(agent, tmp_path / "policy.onnx", observations=seen)
    assert names(found.path)[0] == ["observation", "desired_goal"]
    assert (run(found.path, seen)[0] == agent.predict(seen)[0]).mean() > 0.8  # untrained, so many scores tie


# What must not happen.


def test_another_policy_is_not_put_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = plane_agent(), plane_agent(seed=1)
    (tmp_path / "policy.onnx").write_bytes(b"before")
    export = pchid.export.to_onnx
    monkeypatch.setattr(pchid.export, "to_onnx", lambda graph, *rest: export(policy_graph(wrong), *rest))
    with pytest.raises(RunError, match=r"differs from the trained one by .*; nothing was written"):
        export_agent(right, tmp_path / "policy.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["policy.onnx"]
    assert (tmp_path / "policy.onnx").read_bytes() == b"before"


def test_scores_that_tie_may_be_decided_either_way_and_no_others() -> None:
    agent = bits_agent()
    with torch.no_grad():
        agent.policy.network.layers[-1].weight.zero_()
        agent.policy.network.layers[-1].bias.copy_(torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0]))
    seen = random_observations(agent, 10)
    graph = policy_graph(agent)
    values = [seen[key] for key in graph.inputs]
    model = pchid.export.to_onnx(graph, values, {})
    assert pchid.export.compare(model, graph, values, np.full(10, 0)) == (0.0, 0)
    assert pchid.export.compare(model, graph, values, np.full(10, 1)) == (0.0, 10)
    with pytest.raises(RunError, match="decides otherwise on 10 of 10"):
        pchid.export.compare(model, graph, values, np.full(10, 2))


def test_the_file_tells_nothing_of_this_machine(tmp_path: Path) -> None:
    found = export_agent(bits_agent(), tmp_path / "policy.onnx")
    data = found.path.read_bytes()
    assert found.size == len(data)
    for word in (b"site-packages", b"/home", b"/root", str(Path(pchid.__file__).parent).encode(), b"stack_trace"):
        assert word not in data
    again = export_agent(bits_agent(), tmp_path / "again.onnx")
    assert again.path.read_bytes() == data


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"{package}: pip install 'pchid\[onnx\]'"):
        export_policy(tmp_path, tmp_path / "policy.onnx")


# The command.


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    words = ("train", "BitFlip-v0", "--env.n_bits", 4, "--method", "hid", "--episodes", 4, *QUICK, "--out", out)
    assert pchid.cli.main([str(word) for word in words]) == 0
    return out


def test_the_command_says_what_it_wrote_and_nothing_else(call: Call, trained: Path, tmp_path: Path) -> None:
    outcome = call("export", trained, "--out", tmp_path / "deep" / "policy.onnx")
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert "policy.onnx" in "".join(lines[:-3])
    assert lines[-3].split()[:3] == ["inputs", "observation", "int8"]
    assert lines[-2].split()[:3] == ["outputs", "action", "int64"]
    assert "1,000 observations" in lines[-1]
    assert "largest difference" in lines[-1]
    properties = session(tmp_path / "deep" / "policy.onnx").get_modelmeta().custom_metadata_map
    assert (properties["env"], properties["method"]) == ("BitFlip-v0", "hid")
    onnx.checker.check_model(tmp_path / "deep" / "policy.onnx")


def test_an_agents_file_will_do(call: Call, trained: Path, tmp_path: Path) -> None:
    outcome = call("export", trained / "policy" / "agent.safetensors", "--out", tmp_path / "policy.onnx")
    assert (outcome.code, outcome.err) == (0, "")
    assert session(tmp_path / "policy.onnx").get_modelmeta().custom_metadata_map["method"] == "pchid"


def test_wrong_calls(call: Call, trained: Path, tmp_path: Path) -> None:
    for words, sentence in (
        ((tmp_path / "nowhere",), "there is no agent"),
        ((tmp_path,), "not a finished run"),
        ((trained, "Hanoi-v0"), "BitFlip-v0"),
        ((trained, "--env.n_bits", 4), "--env.NAME"),
    ):
        outcome = call("export", *words, "--out", tmp_path / "policy.onnx")
        assert outcome.code == 2, outcome
        assert len(outcome.err.splitlines()) == 1
        assert sentence in outcome.err
    assert not (tmp_path / "policy.onnx").exists()


@slow
def test_a_policy_of_pchid_fit_holds_within_the_tolerance_that_it_was_given(call: Call, tmp_path: Path) -> None:
    log = save_episodes(tmp_path / "log.npz", reach_like())
    words = ("--K-max", 1, "--hold-goal", "True", "--policy.hidden_sizes", "[8]", "--quiet")
    assert call("fit", log, "--tolerance", 0.3, *words, "--out", tmp_path / "fit").code == 0
    outcome = call("export", tmp_path / "fit", "--out", tmp_path / "policy.onnx")
    assert (outcome.code, outcome.err) == (0, "")
    place = np.array([[0.5, 0.5]])
    seen = {"observation": place, "achieved_goal": place, "desired_goal": place + 0.2}
    assert (run(tmp_path / "policy.onnx", seen)[0] == 0.0).all()
    assert (run(tmp_path / "policy.onnx", {**seen, "desired_goal": place + 0.3})[0] != 0.0).any()
    assert call("fit", log, *words, "--out", tmp_path / "other").code == 0
    refused = call("export", tmp_path / "other", "--out", tmp_path / "other.onnx")
    assert refused.code == 2
    assert "--no-hold" in refused.err
    assert not (tmp_path / "other.onnx").exists()


@slow
def test_a_run_of_stable_baselines3_is_exported_and_so_is_one_that_holds_its_goal(call: Call, tmp_path: Path) -> None:
    small = ("--episodes", 1, "--eval-episodes", 1, "--final-episodes", 1, "--quiet")
    assert call("train", "FetchReach-v4", "--method", "td3+her+pchid", *small, "--out", tmp_path / "td3").code == 0
    outcome = call("export", tmp_path / "td3", "--out", tmp_path / "td3.onnx")
    assert (outcome.code, outcome.err) == (0, "")
    assert "achieved_goal" in outcome.out
    held = ("--method", "hid", "--hold-goal", "True", "--out", tmp_path / "hid")
    assert call("train", "FetchReach-v4", *held, *small).code == 0
    assert call("export", tmp_path / "hid", "--out", tmp_path / "hid.onnx").code == 0
    assert "achieved_goal" in names(tmp_path / "hid.onnx")[0]
    refused = call("export", tmp_path / "hid" / "policy" / "agent.safetensors", "--out", tmp_path / "no.onnx")
    assert refused.code == 2
    assert "--no-hold" in refused.err
    file = tmp_path / "hid" / "policy" / "agent.safetensors"
    assert call("export", file, "FetchReach-v4", "--out", tmp_path / "a.onnx").code == 0
    assert names(tmp_path / "a.onnx") == names(tmp_path / "hid.onnx")
