"""How many slots a probe has."""

from __future__ import annotations

import pytest
from gymnasium.vector import AutoresetMode
from support import DOMAINS

from pchid.envs.fetch import FetchVectorEnv
from pchid.envs.make import PROBE_SLOTS, make_probe
from pchid.envs.single import SingleEnvsVectorEnv


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


@pytest.mark.parametrize("name", ["UserLine-v0", "UserRestorableLine-v0"])
@pytest.mark.parametrize("episodes", [None, 1, 100])
def test_one_of_any_other_environment_has_one_slot(name: str, episodes: int | None) -> None:
    assert make_probe(name, episodes).num_envs == 1
