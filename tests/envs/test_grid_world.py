"""GridWorld navigation (Sec. 4.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from pchid.envs.grid_world import MOVES, GridWorldVectorEnv, distance_to_goal, load_maps
from pchid.envs.maps import pack, unpack
from pchid.errors import InputError

SIZES = st.integers(4, 64)


def breadth_first(obstacle: np.ndarray, goal: tuple[int, int]) -> np.ndarray:
    """Search one map, cell by cell."""
    size = len(obstacle)
    distances = np.full((size, size), np.inf)
    distances[goal] = 0
    queue = [goal]
    for row, column in queue:
        for row_step, column_step in MOVES.tolist():
            cell = (row + row_step, column + column_step)
            inside = 0 <= cell[0] < size and 0 <= cell[1] < size
            if inside and not obstacle[cell] and np.isinf(distances[cell]):
                distances[cell] = distances[row, column] + 1
                queue.append(cell)
    return distances


def open_maps(count: int = 1, size: int = 6) -> dict[str, np.ndarray]:
    return {
        "obstacle": np.zeros((count, size, size), dtype=np.uint8),
        "start": np.full((count, 2), 1),
        "goal": np.full((count, 2), 3),
    }


def test_map_distribution_is_near_the_published_statistics() -> None:
    env = GridWorldVectorEnv(3000)
    observations, _ = env.reset(seed=0)
    obstacle = observations["observation"][:, 0]
    assert obstacle[:, [0, -1]].all()
    assert obstacle[:, :, [0, -1]].all()
    assert abs(obstacle[:, 1:-1, 1:-1].mean() - 0.65) < 0.01
    lengths = env.distance(env.get_state(), observations["desired_goal"])
    assert np.isfinite(lengths).all()
    assert lengths.min() == 1
    assert abs(lengths.mean() - 4.7) < 0.25
    assert 15 <= np.percentile(lengths, 99) <= 21


def test_start_and_goal_are_free_and_different() -> None:
    for options in ({}, {"size": 4, "n_obstacles": 3}, {"size": 5, "n_obstacles": 0}, {"size": 64}):
        env = GridWorldVectorEnv(100, **options)  # type: ignore[arg-type]
        observations, _ = env.reset(seed=0)
        obstacle = observations["observation"][:, 0]
        for cells in (observations["achieved_goal"], observations["desired_goal"]):
            assert not obstacle[np.arange(100), cells[:, 0], cells[:, 1]].any()
        assert not env.is_success(observations["achieved_goal"], observations["desired_goal"]).any()


def test_starts_are_uniform_among_the_other_cells_when_all_are_free() -> None:
    observations, _ = GridWorldVectorEnv(12_000, size=4, n_obstacles=0).reset(seed=0)
    start, goal = ((observations[f"{name}_goal"] - 1) @ np.array([2, 1]) for name in ("achieved", "desired"))
    counts = np.bincount(4 * start + goal, minlength=16).reshape(4, 4)
    assert (np.diag(counts) == 0).all()
    assert np.abs(counts[~np.eye(4, dtype=bool)] - 1000).max() < 5 * np.sqrt(1000)


@settings(max_examples=30)
@given(SIZES, st.floats(0, 1), st.integers(0, 10_000))
def test_distance_agrees_with_a_plain_search(size: int, density: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    obstacle = (generator.random((2, size, size)) < density * 0.7).astype(np.uint8)
    goal = generator.integers(size, size=(2, 2))
    start = generator.integers(size, size=(2, 2))
    obstacle[[0, 1], goal[:, 0], goal[:, 1]] = 0
    obstacle[[0, 1], start[:, 0], start[:, 1]] = 0
    expected = np.stack([breadth_first(obstacle[i], (goal[i, 0], goal[i, 1])) for i in range(2)])
    np.testing.assert_array_equal(distance_to_goal(obstacle, goal), expected)
    env = GridWorldVectorEnv(2, size=size)
    env.set_maps(obstacle, start, goal)
    np.testing.assert_array_equal(env.distance(env.get_state(), goal), expected[[0, 1], start[:, 0], start[:, 1]])


def test_a_blocked_goal_cannot_be_reached() -> None:
    env = GridWorldVectorEnv(50)
    env.reset(seed=0)
    assert np.isinf(env.distance(env.get_state(), np.zeros((50, 2), dtype=np.int64))).all()
    maps = open_maps()
    maps["obstacle"][0, 3, 3] = 1
    assert np.isinf(distance_to_goal(maps["obstacle"], maps["goal"])).all()


@given(SIZES, st.integers(0, 10_000))
def test_packing_is_undone_by_unpacking(size: int, seed: int) -> None:
    cells = np.random.default_rng(seed).integers(2, size=(3, size, size))
    np.testing.assert_array_equal(unpack(pack(cells), size), cells)
    np.testing.assert_array_equal(unpack(pack(cells).view(np.int64), size), cells)


@settings(max_examples=30)
@given(st.integers(4, 20), st.integers(0, 60), st.integers(0, 10_000))
def test_the_agent_is_never_inside_an_obstacle(size: int, n_obstacles: int, seed: int) -> None:
    env = GridWorldVectorEnv(8, size=size, n_obstacles=n_obstacles)
    observations, _ = env.reset(seed=seed)
    for actions in np.random.default_rng(seed).integers(8, size=(15, 8)):
        obstacle, agent = observations["observation"].swapaxes(0, 1)
        assert not (obstacle & agent).any()
        assert (agent.sum(axis=(1, 2)) == 1).all()
        rows, columns = observations["achieved_goal"].T
        assert agent[np.arange(8), rows, columns].all()
        observations = env.step(actions)[0]


def test_moves_are_the_documented_steps() -> None:
    env = GridWorldVectorEnv(8, size=6, autoreset_mode=AutoresetMode.DISABLED)
    maps = open_maps(8)
    maps["start"][:] = 2
    maps["goal"][:] = 5
    env.set_maps(**maps)
    np.testing.assert_array_equal(env.step(np.arange(8))[0]["achieved_goal"], 2 + MOVES)


def test_blocked_moves_and_the_edge_leave_the_agent_in_place_and_diagonals_squeeze_through() -> None:
    env = GridWorldVectorEnv(3, size=6, autoreset_mode=AutoresetMode.DISABLED)
    maps = open_maps(3)
    maps["obstacle"][0, 0, 1] = 1  # north of slot 0
    maps["obstacle"][1, [1, 2], [2, 1]] = 1  # either side of slot 1's way south-east
    maps["start"][2] = 0  # slot 2 stands in the corner of a map without border
    env.set_maps(**maps)
    observations, _, terminated, _, _ = env.step([0, 3, 7])
    assert observations["achieved_goal"].tolist() == [[1, 1], [2, 2], [0, 0]]
    assert not terminated.any()


def test_rewards_and_termination() -> None:
    env = GridWorldVectorEnv(1, size=6, autoreset_mode=AutoresetMode.DISABLED)
    env.set_maps(**open_maps())
    _, rewards, terminated, _, _ = env.step([3])
    assert (rewards[0], terminated[0]) == (-0.02, False)
    _, rewards, terminated, truncated, _ = env.step([3])
    assert (rewards[0], terminated[0], truncated[0]) == (10.0, True, False)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"obstacle": np.zeros((1, 6, 5))}, r"shape \(M, size, size\)"),
        ({"obstacle": np.zeros((0, 6, 6))}, "at least one map"),
        ({"obstacle": np.full((1, 6, 6), 2)}, "0 .free. and 1 .blocked. only"),
        ({"obstacle": np.full((1, 6, 6), 0.5)}, "obstacle must hold whole numbers"),
        ({"obstacle": np.full((1, 6, 6), np.nan)}, "obstacle must hold whole numbers"),
        ({"obstacle": np.full((1, 6, 6), "x")}, "obstacle must hold whole numbers"),
        ({"start": np.zeros(2)}, r"start must have shape \(1, 2\), got \(2,\)"),
        ({"goal": np.zeros((2, 2))}, r"goal must have shape \(1, 2\), got \(2, 2\)"),
        ({"start": np.full((1, 2), 6)}, "start must lie inside the map, between 0 and 5"),
        ({"goal": np.full((1, 2), -1)}, "goal must hold whole numbers that are not negative"),
        ({"obstacle": np.eye(6)[None]}, "the start of map 0 is a blocked cell"),
    ],
)
def test_wrong_maps_are_refused_in_one_sentence(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    maps = {**open_maps(), **change}
    with pytest.raises(ValueError, match=sentence):
        GridWorldVectorEnv(1, size=6).set_maps(**maps)
    file = tmp_path / "maps.npz"
    np.savez(file, **maps)
    with pytest.raises(ValueError, match=sentence) as caught:
        load_maps(file)
    assert "maps.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_maps_must_fit_the_environment() -> None:
    with pytest.raises(ValueError, match=r"obstacle must have shape \(2, 6, 6\), got \(1, 6, 6\)"):
        GridWorldVectorEnv(2, size=6).set_maps(**open_maps())
    with pytest.raises(ValueError, match=r"obstacle must have shape \(1, 16, 16\), got \(1, 6, 6\)"):
        GridWorldVectorEnv(1).set_maps(**open_maps())


def test_maps_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "maps.npz"
    np.savez(file, **open_maps(3), budget=np.array([4, 5, 6]))
    maps = load_maps(file)
    assert maps["budget"].tolist() == [4, 5, 6]
    env = GridWorldVectorEnv(3, size=6, autoreset_mode=AutoresetMode.DISABLED)
    env.set_maps(maps["obstacle"], maps["start"], maps["goal"])
    observations = env.observe()
    np.testing.assert_array_equal(observations["achieved_goal"], maps["start"])
    np.testing.assert_array_equal(observations["desired_goal"], maps["goal"])
    np.savez(file, **open_maps(3))
    assert "budget" not in load_maps(str(file))
    np.savez(file, **open_maps(3), budget=np.zeros(2))
    with pytest.raises(ValueError, match=r"budget must have shape \(3,\), got \(2,\)"):
        load_maps(file)


def test_files_that_are_no_maps_are_refused_in_one_sentence(tmp_path: Path) -> None:
    text = tmp_path / "text.npz"
    text.write_text("not an archive")
    single = tmp_path / "single.npy"
    np.save(single, np.zeros(3))
    code = tmp_path / "objects.npz"
    np.savez(code, **{**open_maps(), "start": np.array([{}], dtype=object)}, allow_pickle=True)
    torn = tmp_path / "torn.npz"
    np.savez_compressed(torn, **open_maps(50))
    torn.write_bytes(torn.read_bytes()[:-40])
    empty = tmp_path / "empty.npz"
    empty.touch()
    for file in (text, single, code, torn, empty):
        with pytest.raises(ValueError, match=f"{file.name} is not an .npz file of plain arrays"):
            load_maps(file)
    partial = tmp_path / "partial.npz"
    np.savez(partial, obstacle=np.zeros((1, 6, 6)))
    with pytest.raises(ValueError, match=r"partial.npz: maps need .* no start and no goal"):
        load_maps(partial)
    with pytest.raises(InputError):
        load_maps(tmp_path / "absent.npz")


def test_an_impossible_map_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pchid.envs.domain.MAX_ATTEMPTS", 20)
    with pytest.raises(RuntimeError, match="no episode with a reachable goal in 20 attempts"):
        GridWorldVectorEnv(1, size=4, n_obstacles=500).reset(seed=0)


def test_text_shows_map_agent_and_goal() -> None:
    env = GridWorldVectorEnv(1, "ansi", size=4, autoreset_mode=AutoresetMode.DISABLED)
    obstacle = np.ones((1, 4, 4), dtype=np.uint8)
    obstacle[0, 1:3, 1:3] = 0
    env.set_maps(obstacle, [[1, 1]], [[2, 2]])
    assert env.render() == ("████████\n██ ● ·██\n██ · ◎██\n████████\nstep 0 of 50",)
    env.step([3])
    assert "██ · ◉██" in env.render()[0]
