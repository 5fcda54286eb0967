"""An agent's file: data, and nothing that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from user_envs import Dense, Line, RestorableLine

from pchid.algorithms import PCHID, PEHID
from pchid.envs import register_robotics
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError
from pchid.policies import GoalPolicy
from pchid.saving import describe, in_half_precision, rebuild
from pchid.solvability import Interaction


@st.composite
def boxes(draw: st.DrawFn) -> spaces.Box:
    shape = draw(hnp.array_shapes(max_dims=3, max_side=3))
    dtype = draw(st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.int8]))
    if np.issubdtype(dtype, np.floating):
        width = 32 if dtype is np.float32 else 64
        edges: st.SearchStrategy[Any] = st.floats(-1e6, 1e6, width=width) | st.sampled_from([-np.inf, np.inf])
    else:
        edges = st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    uniform = draw(st.booleans())
    one, other = (
        np.full(shape, draw(edges), dtype) if uniform else draw(hnp.arrays(dtype, shape, elements=edges)) for _ in "ab"
    )
    low, high = np.minimum(one, other), np.maximum(one, other)
    if np.issubdtype(dtype, np.floating):  # a bound at the wrong infinity is no bound
        low, high = np.where(low == np.inf, dtype(0), low), np.where(high == -np.inf, dtype(0), high)
    return spaces.Box(low.astype(dtype), high.astype(dtype), shape, dtype)


some_spaces = (
    boxes()
    | st.integers(1, 100).map(spaces.Discrete)
    | st.integers(1, 20).map(spaces.MultiBinary)
    | st.tuples(st.integers(1, 4), st.integers(1, 4)).map(spaces.MultiBinary)
)


@given(some_spaces)
def test_a_space_comes_back_from_json(space: spaces.Space[Any]) -> None:
    again = rebuild(json.loads(json.dumps(describe(space))))
    assert again == space
    assert again.shape == space.shape
    assert again.dtype == space.dtype


class Wide(GoalPolicy):
    """A policy class of the user's own."""


def make(kind: type[PCHID] | type[PEHID] = PCHID, policy: Any = "GoalPolicy", **settings: Any) -> PCHID | PEHID:
    env = GoalVecEnv.make("BitFlip-v0", 2, n_bits=4)
    settings = {"K_max": 1, "updates_per_episode": 3, "policy_kwargs": {"hidden_sizes": [8, 4]}, "seed": 5} | settings
    return kind(policy, env, **settings).learn(60)


@pytest.mark.parametrize("kind", [PCHID, PEHID])
def test_an_agent_comes_back_with_its_settings(tmp_path: Path, kind: type[PCHID]) -> None:
    agent = make(kind, learning_rate=0.02, exploration=0.4, noise=0.7, min_displacement=0.1, batch_size=17)
    agent.save(tmp_path / "agent")
    again = kind.load(tmp_path / "agent")
    seen = agent.env.reset()  # type: ignore[union-attr]
    np.testing.assert_array_equal(again.predict(seen)[0], agent.predict(seen)[0])
    for name in ("K_max", "learning_rate", "exploration", "noise", "min_displacement", "batch_size", "seed"):
        assert getattr(again, name) == getattr(agent, name)
    assert (again.num_timesteps, again._episode_num) == (agent.num_timesteps, agent._episode_num)
    assert again.observation_space == agent.observation_space
    assert again.policy.hidden_sizes == (8, 4)


def test_the_file_is_safetensors_and_the_same_agent_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two.safetensors", "three.zip"):
        make().save(tmp_path / name)
    files = [tmp_path / name for name in ("one.safetensors", "two.safetensors", "three.zip")]
    with safe_open(files[0], framework="numpy") as file:
        assert json.loads(file.metadata()["pchid"])["algorithm"] == "PCHID"
        assert any(name.startswith("network.") for name in file.keys())  # noqa: SIM118
    assert len({file.read_bytes() for file in files}) == 1
    PCHID.load(files[2])


def test_a_class_of_the_users_own_is_named_again(tmp_path: Path) -> None:
    agent = make(policy=Wide)
    agent.save(tmp_path / "agent")
    assert b"Wide" not in (tmp_path / "agent.safetensors").read_bytes()
    with pytest.raises(InputError, match="policy=Class"):
        PCHID.load(tmp_path / "agent")
    again = PCHID.load(tmp_path / "agent", policy=Wide)
    assert type(again.policy) is Wide


def test_wrong_loads_are_refused(tmp_path: Path) -> None:
    make().save(tmp_path / "agent")
    with pytest.raises(InputError, match=r"PCHID\.load"):
        PEHID.load(tmp_path / "agent")
    with pytest.raises(InputError, match="other observations or actions"):
        PCHID.load(tmp_path / "agent", GoalVecEnv.make("BitFlip-v0", 1, n_bits=5))
    with pytest.raises(InputError, match="there is no agent"):
        PCHID.load(tmp_path / "nowhere")


def test_a_loaded_agent_with_an_environment_learns_on(tmp_path: Path) -> None:
    agent = make()
    agent.save(tmp_path / "agent")
    again = PCHID.load(tmp_path / "agent", GoalVecEnv.make("BitFlip-v0", 2, n_bits=4))
    before = again.policy.network.layers[0].weight.clone()
    again.learn(60, reset_num_timesteps=False)
    assert again.num_timesteps == agent.num_timesteps + 60
    assert not np.array_equal(before.detach(), again.policy.network.layers[0].weight.detach())


def test_a_damaged_file_is_refused_or_harmless(tmp_path: Path) -> None:
    make().save(tmp_path / "agent")
    data = (tmp_path / "agent.safetensors").read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    for position in range(0, header, 5):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 7
        (tmp_path / "damaged.safetensors").write_bytes(damaged)
        try:
            PCHID.load(tmp_path / "damaged")
        except InputError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    make().save(tmp_path / "agent")
    data = (tmp_path / "agent.safetensors").read_bytes()
    (tmp_path / "agent.safetensors").write_bytes(data[: int(share * len(data))])
    with pytest.raises(InputError, match="not an agent that pchid saved, or it is damaged"):
        PCHID.load(tmp_path / "agent")


@pytest.mark.parametrize("average", [{}, {"averaging": 0.9}, {"averaging": 0.9, "averaging_warmup": True}])
def test_in_half_precision_an_agent_is_half_as_large_and_acts_nearly_the_same(
    tmp_path: Path, average: dict[str, Any]
) -> None:
    """Where an average acts, only that is kept: a quarter is left."""
    wide = {"hidden_sizes": [256, 256], **average}
    agent = PCHID("GoalPolicy", "FetchReach-v4", K_max=1, policy_kwargs=wide, seed=0, device="cpu").learn(100)
    agent.save(tmp_path / "agent")
    whole = tmp_path / "agent.safetensors"
    half = tmp_path / "half.safetensors"
    half.write_bytes(in_half_precision(whole))
    assert half.stat().st_size < (0.27 if average else 0.52) * whole.stat().st_size
    again = PCHID.load(half)
    assert all(value.dtype == torch.float32 for value in again.policy.network.parameters())
    seen, _ = agent.get_env().vector.reset(seed=0)  # type: ignore[union-attr]
    np.testing.assert_allclose(again.predict(seen)[0], agent.predict(seen)[0], atol=5e-3)
    assert not np.array_equal(again.predict(seen)[0], agent.predict(seen)[0])


def arm(name: str, **settings: Any) -> PEHID:
    """An agent that does nothing at random, once it knows something."""
    small: dict[str, Any] = {"updates_per_episode": 2, "policy_kwargs": {"hidden_sizes": [8]}, "seed": 5}
    chosen = {"K_max": 2, "test_budget": 1.5, "draw": "asked", "exploration": 0.0, "noise": 0.0}
    return PEHID("GoalPolicy", GoalVecEnv.make(name, 4, horizon=10), **{**small, **chosen, **settings})


@pytest.fixture
def own_scene() -> Iterator[str]:
    """A user's own scene, in which there may be more than arm and object."""
    register_robotics()
    push: Any = gym.make("FetchPush-v4").unwrapped
    gym.register("OwnScene-v0", type("OwnScene", (type(push),), {"__module__": __name__}), max_episode_steps=10)
    yield "OwnScene-v0"
    gym.registry.pop("OwnScene-v0")


def test_an_agent_acts_in_a_single_environment_that_knows_no_symmetries(tmp_path: Path, own_scene: str) -> None:
    arm("FetchPush-v4", symmetries=True).learn(80).save(tmp_path / "agent")
    single = gym.make(own_scene)
    with pytest.warns(UserWarning, match="knows no symmetries"):
        agent = PEHID.load(tmp_path / "agent", single)
    seen, _ = single.reset(seed=0)
    assert single.action_space.contains(agent.predict(seen)[0])
    assert agent.learner.draw_symmetry is None
    for known in (GoalVecEnv.make("FetchPush-v4"), gym.make("FetchPush-v4")):
        assert PEHID.load(tmp_path / "agent", known).learner.draw_symmetry is not None


def test_an_agent_goes_on_as_it_was_trained(tmp_path: Path) -> None:
    before = arm("FetchReach-v4").learn(80)
    before.save(tmp_path / "agent")
    env = GoalVecEnv.make("FetchReach-v4", 4, horizon=10)
    agent = PEHID.load(tmp_path / "agent", env)
    assert (agent.test_budget, agent.draw) == (1.5, "asked")
    agent.learn(4)
    first = {name: values[:, 0] for name, values in agent.recorder.state()["arrays"].items()}
    known = before.policy.act({key: first[key] for key in ("observation", "achieved_goal", "desired_goal")})
    np.testing.assert_allclose(first["action"], known, atol=1e-6)
    assert PEHID.load(tmp_path / "agent", env, test="none").learner.test_budget is None


def test_a_budget_is_forgotten_where_nothing_can_be_restored(tmp_path: Path) -> None:
    test = Interaction(RestorableLine)
    PCHID("GoalPolicy", RestorableLine(), K_max=3, test=test, test_budget=1.0).learn(30).save(tmp_path / "agent")
    assert PCHID.load(tmp_path / "agent", Line()).learner.test_budget is None
    assert PCHID.load(tmp_path / "agent", RestorableLine(), test=test).learner.test_budget == 1.0
    agent = PCHID.load(tmp_path / "agent")
    agent.set_env(Line())
    assert agent.learner.test_budget is None
    with pytest.raises(InputError, match="a budget of TEST steps is for the interaction TEST"):
        PCHID.load(tmp_path / "agent", Line(), test_budget=1.0)


def test_an_agent_that_goes_on_refuses_a_dense_reward_too(tmp_path: Path) -> None:
    PCHID("GoalPolicy", TimeLimit(Line(), 10), K_max=1, seed=0).learn(30).save(tmp_path / "agent")
    far = TimeLimit(Dense(reach=90), 10)  # where rewards of more than two values are met whichever way it walks
    with pytest.raises(InputError, match="dense"):
        PCHID.load(tmp_path / "agent", far).learn(30)


def test_an_agent_that_was_never_trained_begins_at_random(tmp_path: Path) -> None:
    arm("FetchReach-v4").save(tmp_path / "agent")
    agent = PEHID.load(tmp_path / "agent", GoalVecEnv.make("FetchReach-v4", 4, horizon=10))
    agent.learn(4)
    first = {name: values[:, 0] for name, values in agent.recorder.state()["arrays"].items()}
    known = agent.policy.act({key: first[key] for key in ("observation", "achieved_goal", "desired_goal")})
    assert not np.isclose(first["action"], known, atol=1e-3).any(axis=1).all()
