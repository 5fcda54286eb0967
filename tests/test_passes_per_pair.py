"""`passes_per_pair`: supervised steps by what TEST let through, and what keeps a goal on the Fetch tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pchid import PCHID, PEHID, GoalVecEnv, JointTraining
from pchid.config import new_config
from pchid.errors import InputError
from pchid.experiments.declaration import directory_name

SMALL: dict[str, Any] = {"batch_size": 32, "policy_kwargs": {"hidden_sizes": [8]}, "seed": 0}


@pytest.mark.parametrize("kind", [PCHID, PEHID])
@pytest.mark.parametrize("passes", [0.5, 3.0])
def test_each_pair_is_shown_so_often_on_average(kind: type[PCHID], passes: float) -> None:
    agent = kind("GoalPolicy", "BitFlip-v0", K_max=2, passes_per_pair=passes, updates_per_episode=1000, **SMALL)
    agent.learn(400)
    assert agent.learner.buffers.added > 200
    assert agent._n_updates == int(passes * agent.learner.buffers.added / 32)


def test_no_pair_no_step() -> None:
    agent = PCHID("GoalPolicy", "BitFlip-v0", K_max=1, passes_per_pair=5.0, min_displacement=99.0, **SMALL)
    before = {name: value.clone() for name, value in agent.policy.state_dict().items()}
    agent.learn(100)
    assert agent._n_updates == 0
    assert all((agent.policy.state_dict()[name] == value).all() for name, value in before.items())


def test_beside_stable_baselines3() -> None:
    from stable_baselines3 import DQN

    model = DQN("MultiInputPolicy", GoalVecEnv.make("BitFlip-v0", n_bits=4), learning_starts=10_000, seed=0)
    module = JointTraining(K_max=1, passes_per_pair=2.0, batch_size=32)
    model.learn(300, callback=module)
    assert module.updates == int(2.0 * module.learner.buffers.added / 32) > 0


def test_what_is_not_asked_for_leaves_no_trace_in_the_settings() -> None:
    plain = new_config({"env": "BitFlip-v0"})
    assert "passes_per_pair" not in plain
    asked = new_config({"env": "BitFlip-v0", "passes_per_pair": 4})
    assert asked["passes_per_pair"] == 4.0
    assert directory_name(plain) != directory_name(asked)


def test_recommended_for_manipulation_and_replaced_by_the_other_way_to_say_it() -> None:
    assert new_config({"env": "FetchPush-v4", "method": "pehid"})["passes_per_pair"] == 60.0
    assert "passes_per_pair" not in new_config({"env": "FetchPush-v4", "method": "pehid", "updates_per_episode": 4})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"passes_per_pair": 0.0}, "positive"),
        ({"passes_per_pair": float("inf")}, "finite"),
        ({"passes_per_pair": "many"}, "cannot be"),
        ({"passes_per_pair": 2.0, "updates_per_episode": 3}, "not both"),
    ],
)
def test_bad_values(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        new_config({"env": "BitFlip-v0", **given})


def test_a_run_is_not_resumed_with_another_value(call: Any, tmp_path: Path) -> None:
    words = ("train", "BitFlip-v0", "--episodes", 20, "--eval-episodes", 4, "--final-episodes", 4, "--quiet")
    assert call(*words, "--passes-per-pair", 2, "--out", tmp_path / "run").code == 0
    outcome = call("train", "--resume", "--passes-per-pair", 3, "--out", tmp_path / "run")
    assert outcome.code == 2
    assert "passes_per_pair 2" in outcome.err


def test_holding_leaves_the_fingers_to_the_policy() -> None:
    agent = PEHID("GoalPolicy", GoalVecEnv.make("FetchPickAndPlace-v4"), K_max=2, hold_goal=True, test="none", **SMALL)
    assert agent.env is not None
    seen = agent.env.reset()
    far, _ = agent.predict(seen)
    assert far[0, :3].any()
    near, _ = agent.predict({**seen, "desired_goal": seen["achieved_goal"]})
    agent._null_action = None
    free, _ = agent.predict({**seen, "desired_goal": seen["achieved_goal"]})
    np.testing.assert_array_equal(near[0, :3], 0.0)
    assert near[0, 3] == free[0, 3] != 0.0
