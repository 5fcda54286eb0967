"""The behaviour policy: how random it is, and how long its noise lasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from pchid.behaviour import Behaviour
from pchid.buffers import StepBuffers
from pchid.checkpoint import join, split
from pchid.config import new_config
from pchid.episodes import Recorder
from pchid.errors import InputError
from pchid.hindsight import HindsightPairs
from pchid.policies import GoalPolicy
from pchid.runs import RunDirectory

PLANE = spaces.Box(-np.inf, np.inf, (2,), np.float64)
SEEN = spaces.Dict(observation=PLANE, achieved_goal=PLANE, desired_goal=PLANE)
BOX = spaces.Box(-100.0, 100.0, (3,), np.float64)
"""So wide that next to nothing is clipped."""
SLOTS = 400
ZEROS = np.zeros((SLOTS, 2))


class Scene:
    """Slots that move on in every step, and what behaves in them."""

    def __init__(self, **settings: Any) -> None:
        given = {"exploration": 0.0, "noise": 1.0, "wander": 0.0, "persistence": 0.0, **settings}
        self.rng = np.random.default_rng(0)
        self.behaviour = Behaviour(BOX, lambda a, b: (a == b).all(axis=-1), self.rng, **given)
        self.policy = GoalPolicy(SEEN, BOX, lambda _: 1e-3, hidden_sizes=[4])
        self.recorder = Recorder(SEEN, BOX, SLOTS)
        self.time = 0
        self.met = StepBuffers(10)
        self.recorder.start(self.seen())

    def seen(self) -> dict[str, Any]:
        """The policy sees the same in every step but for a trifle, so its own action hardly changes."""
        return {"observation": ZEROS + 1e-9 * self.time, "achieved_goal": ZEROS, "desired_goal": ZEROS + 1.0}

    def step(self, ended: Any = False) -> Any:
        """The actions of all slots, scaled to [-1, 1], after which the slots that ended begin anew."""
        actions = self.behaviour.actions(self.seen(), self.policy, self.recorder, self.met)
        self.time += 1
        last = {key: value[0] for key, value in self.seen().items()}
        dones = np.broadcast_to(ended, SLOTS)
        infos = [{"terminal_observation": last} for _ in range(SLOTS)]
        self.recorder.record(actions, self.seen(), np.zeros(SLOTS), dones, infos, None)  # type: ignore[arg-type]
        return actions / 100.0


def test_without_persistence_every_step_has_noise_of_its_own() -> None:
    scene = Scene(noise=0.1)
    one, two = scene.step(), scene.step()
    assert (one != two).all()
    assert abs(np.corrcoef(one[:, 0], two[:, 0])[0, 1]) < 0.2
    assert (one - one.mean(axis=0)).std() == pytest.approx(0.1, rel=0.1)


def test_noise_stays_as_often_as_asked_each_entry_for_itself() -> None:
    scene = Scene(noise=0.1, persistence=0.75)
    one, two = scene.step(), scene.step()
    same = np.isclose(one, two, atol=1e-6)
    assert same.mean() == pytest.approx(0.75, abs=0.05)
    assert 0.1 < same.all(axis=1).mean() < 0.6  # were the entries one, it would be .75
    assert (two - two.mean(axis=0)).std() == pytest.approx(0.1, rel=0.1)


def test_an_episode_starts_with_noise_of_its_own() -> None:
    scene = Scene(noise=0.1, persistence=0.9)
    ended = np.arange(SLOTS) < SLOTS // 2
    one, two = scene.step(ended), scene.step()
    same = np.isclose(one, two, atol=1e-6)
    assert not same[ended].any()
    assert same[~ended].mean() > 0.8


def test_some_actions_are_random() -> None:
    scene = Scene(noise=0.0, exploration=0.3)
    actions = scene.step()
    usual = np.isclose(actions, np.median(actions, axis=0), atol=1e-6).all(axis=1)
    assert usual.mean() == pytest.approx(0.7, abs=0.08)


def test_it_goes_on_alike_from_a_checkpoint() -> None:
    scene = Scene(noise=0.1, persistence=0.75, wander=0.3, exploration=0.2)
    places = np.random.default_rng(1).normal(size=(10, 2))
    scene.met.add(HindsightPairs(places, places, places, np.zeros((10, 3)), np.ones(10, np.int64), None))
    scene.step()
    assert (scene.behaviour.goals != scene.seen()["desired_goal"]).any()  # some are after others
    state = join(*split({"state": scene.behaviour.state()}))["state"]
    expected = scene.step()
    again = Scene(noise=0.1, persistence=0.75, wander=0.3, exploration=0.2)
    again.policy, again.recorder, again.time, again.met = scene.policy, scene.recorder, scene.time - 1, scene.met
    again.behaviour.load_state(state)
    np.testing.assert_allclose(again.step(), expected, atol=1e-6)
    np.testing.assert_array_equal(again.behaviour.goals, scene.behaviour.goals)


@pytest.mark.parametrize("persistence", [1.0, -0.1, float("nan")])
def test_a_noise_that_never_changes_is_refused(persistence: float) -> None:
    with pytest.raises(InputError, match="probability"):
        Scene(persistence=persistence)


def test_it_is_an_option_of_the_command_line_and_in_config_only_where_it_was_asked_for(
    call: Any, tmp_path: Path
) -> None:
    words = ("train", "FetchReach-v4", "--episodes", 1, "--eval-episodes", 1, "--final-episodes", 1, "--quiet")
    assert call(*words, "--persistence", 0.5, "--out", tmp_path / "run").code == 0
    assert RunDirectory(tmp_path / "run").read_config()["persistence"] == 0.5
    assert "persistence" not in new_config({"env": "FetchReach-v4"})
    assert "probability" in call(*words, "--persistence", 1, "--out", tmp_path / "refused").err


def test_discrete_actions_have_no_noise_that_lasts() -> None:
    with pytest.raises(InputError, match="continuous"):
        Behaviour(
            spaces.Discrete(3),
            np.equal,
            np.random.default_rng(0),
            exploration=0.0,
            noise=1.0,
            wander=0.0,
            persistence=0.5,
        )


def test_each_episode_has_its_own_scale_of_noise() -> None:
    scene = Scene(noise=1.0, least_noise=0.1)
    steps = np.stack([scene.step(time == 29) for time in range(60)])
    own = np.abs(steps - np.median(steps, axis=(0, 1))).mean(axis=2)
    first, second = own[:30].mean(axis=0), own[30:].mean(axis=0)
    assert first.min() < 0.2 and first.max() > 0.6  # calm ones and wild ones
    within = np.corrcoef(own[:15].mean(axis=0), own[15:30].mean(axis=0))[0, 1]
    assert within > 0.8 > 0.2 > abs(np.corrcoef(first, second)[0, 1])  # the same throughout an episode, then another


def test_an_episode_that_begins_with_random_actions_has_its_own_scale_and_noise() -> None:
    scene = Scene(noise=1.0, least_noise=0.1, persistence=0.9)
    scene.step()
    scale, lasting = scene.behaviour.scale, scene.behaviour.lasting
    scene.step(ended=True)
    scene.behaviour.exploration = 1.0
    scene.step()
    scene.behaviour.exploration = 0.0
    scene.step()
    assert scale is not None and (scene.behaviour.scale != scale).all()
    assert lasting is not None and (scene.behaviour.lasting != lasting).all()


def test_scales_of_noise_go_on_alike_from_a_checkpoint() -> None:
    scene = Scene(noise=0.5, least_noise=0.1)
    scene.step()
    state = join(*split({"state": scene.behaviour.state()}))["state"]
    expected = scene.step()
    again = Scene(noise=0.5, least_noise=0.1)
    again.policy, again.recorder, again.time = scene.policy, scene.recorder, scene.time - 1
    again.behaviour.load_state(state)
    np.testing.assert_allclose(again.step(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value"), [("exploration", 5.0), ("exploration", -1.0), ("wander", 2.0), ("noise", float("nan"))]
)
def test_amounts_that_mean_nothing_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name} is"):
        Scene(**{name: value})


@pytest.mark.parametrize("least_noise", [-0.1, 1.1, float("nan")])
def test_the_least_noise_is_not_more_than_the_noise(least_noise: float) -> None:
    with pytest.raises(InputError, match="least_noise"):
        Scene(noise=1.0, least_noise=least_noise)


def test_who_names_a_noise_means_that_noise() -> None:
    assert new_config({"env": "FetchPush-v4", "method": "pehid"})["least_noise"] == 0.15
    assert "least_noise" not in new_config({"env": "FetchPush-v4", "method": "pehid", "noise": 0.1})
    given = new_config({"env": "FetchPush-v4", "method": "pehid", "noise": 1.0, "least_noise": 0.2})
    assert (given["noise"], given["least_noise"]) == (1.0, 0.2)


def test_so_does_who_names_that_of_an_algorithm_beside() -> None:
    def noises(**options: float) -> tuple[float, float | None]:
        given = {"env": "FetchPush-v4", "method": "td3+her", "steps": 1000, "sb3_options": options}
        settings = new_config(given)["sb3_settings"]
        return settings["action_noise"], settings.get("least_action_noise")

    assert noises() == (0.5, 0.05)
    assert noises(action_noise=0.02) == (0.02, None)
    assert noises(action_noise=0.2, least_action_noise=0.1) == (0.2, 0.1)
