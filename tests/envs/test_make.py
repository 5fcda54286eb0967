"""How many slots a probe has, that they do not matter, and what is said about names that nobody knows."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from support import DOMAINS
from user_envs import Line, RestorableLine

from pchid.envs.fetch import FetchVectorEnv
from pchid.envs.make import PROBE_SLOTS, find_spec, make_probe, make_vector
from pchid.envs.single import SingleEnvsVectorEnv
from pchid.errors import InputError
from pchid.evaluation import evaluate


@pytest.mark.parametrize(
    ("episodes", "slots"),
    [(None, 64), (1, 1), (50, 50), (64, 64), (65, 33), (100, 50), pytest.param(1000, 63, marks=pytest.mark.slow)],
)
def test_a_probe_of_fetch_plays_equal_waves_of_at_most_64(episodes: int | None, slots: int) -> None:
    probe = make_probe("FetchReach-v4", episodes)
    assert isinstance(probe, FetchVectorEnv)
    assert probe.num_envs == slots
    assert probe.metadata["autoreset_mode"] is AutoresetMode.DISABLED


@pytest.mark.parametrize(("episodes", "slots"), [(None, 16), (1, 1), (17, 9), (40, 14)])
def test_one_of_single_robots_plays_equal_waves_of_at_most_16(episodes: int | None, slots: int) -> None:
    probe = make_probe("PointMaze_UMaze-v3", episodes)
    assert isinstance(probe, SingleEnvsVectorEnv)
    assert probe.num_envs == slots
    assert probe.metadata["autoreset_mode"] is AutoresetMode.DISABLED


@pytest.mark.parametrize(("name", "options"), DOMAINS)
@pytest.mark.parametrize("episodes", [None, 1, 100, 3000])
def test_one_over_arrays_plays_all_at_once(name: str, options: dict[str, int], episodes: int | None) -> None:
    assert make_probe(name, episodes, **options).num_envs == (episodes or PROBE_SLOTS)


@pytest.mark.parametrize(
    ("name", "slots"),
    [
        ("UserLine-v0", {None: 1, 1: 1, 3: 3, 17: 9, 100: 15}),
        ("UserRestorableLine-v0", {None: 16, 1: 1, 16: 16, 1000: 16}),
    ],
)
def test_one_of_a_users_own_has_as_many_for_episodes_and_for_test_if_it_can_be_restored(
    name: str, slots: dict[int | None, int]
) -> None:
    assert {episodes: make_probe(name, episodes).num_envs for episodes in slots} == slots


class Ending(RestorableLine):
    """It ends at its goal, and does not know what to do after that; it counts what is made of it and done with it."""

    made = closed = steps = 0

    def __init__(self, ends: bool = True) -> None:
        super().__init__()
        type(self).made += 1
        self.ends, self.over = ends, False

    def reset(self, **settings: Any) -> Any:
        self.over = False
        return super().reset(**settings)

    def step(self, action: Any) -> Any:
        assert not self.over, "stepped after its end"
        type(self).steps += 1
        observation, reward, _, *rest = super().step(action)
        self.over = self.ends and reward == 0.0
        return observation, reward, reward == 0.0, *rest

    def close(self) -> None:
        type(self).closed += 1


class Alone(Ending):
    """Of which there can be only one, or so many."""

    made = closed = 0
    most = 1

    def __init__(self) -> None:
        super().__init__()
        if self.made - self.closed > self.most:
            raise RuntimeError("the port is taken")


class Sharing(Line):
    """All of them move the same point."""

    place: ClassVar[list[Any]] = [None]
    position = property(lambda self: self.place[0], lambda self, value: self.place.__setitem__(0, value))  # type: ignore[assignment]


class NotRepeating(Line):
    """No two of its episodes are the same."""

    def __init__(self) -> None:
        super().__init__(reach=1_000_000)

    def reset(self, **settings: Any) -> Any:
        return super().reset(seed=None)


for kind in (Ending, Alone, Sharing, NotRepeating):
    gym.register(f"Probed{kind.__name__}-v0", entry_point=kind, max_episode_steps=6)


def to_the_goal(seen: dict[str, np.ndarray]) -> np.ndarray:
    return (seen["desired_goal"] > seen["achieved_goal"])[:, 0].astype(int)


def sometimes_to_the_goal(seen: dict[str, np.ndarray]) -> np.ndarray:
    return to_the_goal(seen) & (seen["desired_goal"][:, 0] != 2)


def test_no_more_are_made_than_there_are_slots() -> None:
    Ending.made = 0
    make_probe("ProbedEnding-v0", 5)
    assert Ending.made == 5


@pytest.mark.parametrize("name", ["ProbedAlone-v0", "ProbedSharing-v0", "ProbedNotRepeating-v0"])
def test_those_that_get_in_each_others_way_have_one_slot(name: str) -> None:
    assert make_probe(name, 20).num_envs == 1


@pytest.mark.parametrize("most", [1, 3])
def test_what_was_made_in_vain_is_closed(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    for name, value in {"made": 0, "closed": 0, "most": most}.items():
        monkeypatch.setattr(Alone, name, value)
    probe = make_probe("ProbedAlone-v0", 20)
    Alone.made -= 1  # the one that could not be made
    assert Alone.made - Alone.closed == 1
    assert evaluate(to_the_goal, probe, 4, 0).final_success.all()


def half_way(seen: dict[str, np.ndarray]) -> np.ndarray:
    return (seen["desired_goal"] - seen["achieved_goal"]) * 0.2


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("ProbedEnding-v0", sometimes_to_the_goal),
        ("UserLine-v0", sometimes_to_the_goal),
        ("UserReused-v0", half_way),
    ],
)
def test_in_slots_an_episode_ends_as_it_does_alone(name: str, act: Any) -> None:
    alone = evaluate(act, make_vector(name, 1, autoreset=False), 40, 3)
    assert 0 < alone.any_success.mean() < 1
    for episodes, slots in {1: 1, 2: 2, 7: 7, 16: 16, 40: 14}.items():
        probe = make_probe(name, episodes)
        assert probe.num_envs == slots
        together = evaluate(act, probe, 40, 3)
        for field, values in vars(alone).items():
            np.testing.assert_array_equal(getattr(together, field), values)


def test_one_that_has_ended_is_not_stepped_on() -> None:
    probe = make_probe("ProbedEnding-v0", 16)
    Ending.steps = 0
    outcomes = evaluate(to_the_goal, probe, 32, 0)
    assert outcomes.final_success.all()
    assert len(set(outcomes.steps_to_goal)) > 1  # otherwise all would end together
    assert Ending.steps == outcomes.steps_to_goal.sum()


def test_test_may_go_on_past_an_end_and_from_a_restored_state() -> None:
    probe: Any = make_probe("ProbedEnding-v0", 3, ends=False)
    start, _ = probe.reset(seed=0)
    states = probe.get_state()
    slots, left = np.arange(3), np.zeros(3, np.int64)
    shown = start
    for _ in range(4):  # a goal is at most three steps away
        shown = probe.step(to_the_goal(shown))[0]
    stays = probe.step(left)[0]
    np.testing.assert_array_equal(stays["achieved_goal"], start["desired_goal"])
    np.testing.assert_array_equal(probe.advance(left, slots)["achieved_goal"], start["desired_goal"] - 1)
    probe.set_state(states)
    np.testing.assert_array_equal(probe.step(left)[0]["achieved_goal"], start["achieved_goal"] - 1)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("BitFlop-v0", "; did you mean BitFlip-v0, or one of your own by `module:id`, which imports the module first?"),
        ("Xqzw-v0", "; `module:id` imports the module first"),
        ("user_envs:UserLime-v0", "; did you mean UserLine-v0"),
        ("user_envs:Xqzw-v0", "; importing user_envs did not register it"),
    ],
)
def test_a_name_that_nobody_knows(name: str, hint: str) -> None:
    with pytest.raises(InputError) as raised:
        find_spec(name)
    assert str(raised.value).startswith(f"there is no environment '{name}'{hint}")
    assert ("module:id" in hint) == ("module:id" in str(raised.value))
