"""What `pchid watch` shows is what `pchid evaluate` measures."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image
from support import QUICK, Outcome
from user_envs import Line

import pchid.cli
from pchid.envs.drawing import Canvas
from pchid.envs.grid_world import GridWorldVectorEnv
from pchid.runs import RunDirectory
from pchid.training import evaluate_run, load_policy, predictor
from pchid.watch import animation, episodes, grid_world, watch_run

Call = Callable[..., Outcome]
SEED = 7


class DrawnLine(Line):
    """The line, drawn as a row of 21 squares."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> Any:
        picture = np.full((1, 21, 3), 255, np.uint8)
        picture[0, 10 + int(self.goal[0])] = (255, 160, 0)
        picture[0, 10 + int(self.position[0])] = (0, 0, 255)
        return picture.repeat(4, axis=0).repeat(4, axis=1)


class Invisible(DrawnLine):
    """Says that it can be drawn, and gives nothing."""

    def render(self) -> Any:
        return None


class Shy(DrawnLine):
    """Drawn, it does not go to goals on the right: an episode that reaches its goal unseen may miss it here."""

    def move(self, action: Any) -> None:
        if self.render_mode is None or self.goal[0] < 0:
            super().move(action)


for name, kind in {"WatchLine-v0": DrawnLine, "WatchNothing-v0": Invisible, "WatchShy-v0": Shy}.items():
    gym.register(name, entry_point=kind, max_episode_steps=6)


def train(folder: Path, *words: object) -> Path:
    assert pchid.cli.main([str(word) for word in ("train", *words, "--out", folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def bits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ("BitFlip-v0", "--env.n_bits", 4, "--method", "hid", "--episodes", 12, "--updates-per-episode", 3, *QUICK)
    return train(tmp_path_factory.mktemp("bits"), *words)


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ("GridWorld-v0", "--env.size", 8, "--env.n_obstacles", 6, "--env.horizon", 12, "--method", "hid")
    return train(tmp_path_factory.mktemp("grid"), *words, "--episodes", 8, "--updates-per-episode", 2, *QUICK[2:])


@pytest.fixture(scope="module")
def plain_grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on GridWorld whose policy does not plan."""
    words = ("GridWorld-v0", "--env.size", 8, "--env.horizon", 12, "--method", "hid", "--policy", "GoalPolicy")
    return train(tmp_path_factory.mktemp("plain"), *words, "--episodes", 4, "--updates-per-episode", 2, *QUICK)


@pytest.fixture(params=["bits", "grid", "plain_grid"])
def run(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue(request.param)
    return folder


def episodes_of(run: Path, out: Path, episodes: int = 6, **settings: Any) -> list[animation.Episode]:
    return watch_run(RunDirectory(run), out, episodes, SEED, **settings)


def assert_refused(outcome: Outcome, *sentences: str) -> None:
    assert outcome.code == 2, outcome
    (line,) = outcome.err.splitlines()
    assert line.startswith("pchid: ")
    for sentence in sentences:
        assert sentence in line


def test_the_episodes_are_those_of_an_evaluation(run: Path, tmp_path: Path) -> None:
    outcomes = evaluate_run(RunDirectory(run), 12, SEED)
    shown = episodes_of(run, tmp_path / "a.gif", 12)
    assert [episode.number for episode in shown] == list(range(12))
    assert [episode.success for episode in shown] == outcomes.final_success.tolist()
    for episode, steps in zip(shown, outcomes.steps_to_goal.tolist(), strict=True):
        assert [moment.step for moment in episode.moments] == list(range(steps + 1))
        assert [moment.over for moment in episode.moments] == [False] * steps + [True]
        assert episode.moments[-1].reached == episode.success


def test_the_command_says_where_and_how_many(call: Call, run: Path, tmp_path: Path) -> None:
    reached = int(evaluate_run(RunDirectory(run), 5, SEED).final_success.sum())
    outcome = call("watch", run, "--episodes", 5, "--out", tmp_path / "deep" / "a.gif")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == f"{tmp_path / 'deep' / 'a.gif'}\n{reached} of 5 episodes reached the goal\n"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.gif"]


def test_a_gif_plays_all_episodes_side_by_side(call: Call, grid: Path, tmp_path: Path) -> None:
    outcomes = evaluate_run(RunDirectory(grid), 6, SEED)
    assert call("watch", grid, "--out", tmp_path / "a.gif", "--fps", 10).code == 0
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == outcomes.steps_to_goal.max() + 1  # type: ignore[attr-defined]
        assert gif.size == (3 * (320 + 8) + 8, 2 * (320 + 26 + 8) + 8)
        durations = []
        for index in range(gif.n_frames):  # type: ignore[attr-defined]
            gif.seek(index)
            durations.append(gif.info["duration"])
    assert durations == [100] * (len(durations) - 1) + [1100]
    assert (tmp_path / "a.gif").stat().st_size < 500_000


def test_an_episode_that_is_over_holds_its_last_picture(grid: Path, tmp_path: Path) -> None:
    shown = episodes_of(grid, tmp_path / "a.gif")
    pictures = list(animation.frames(shown))
    shortest = min(shown, key=lambda episode: len(episode.moments))
    row, column = divmod(shown.index(shortest), 3)
    top, left = 8 + row * (346 + 8), 8 + column * (320 + 8)
    ends = [picture[top : top + 346, left : left + 320] for picture in pictures[len(shortest.moments) - 1 :]]
    assert len(ends) > 1
    for end in ends:
        np.testing.assert_array_equal(end, animation.tile(shortest, shortest.moments[-1]))


def test_the_caption_tells_success_from_failure(grid: Path, tmp_path: Path) -> None:
    for only, colour, other in (
        ("successes", animation.REACHED, animation.FAILED),
        ("failures", animation.FAILED, animation.REACHED),
    ):
        shown = episodes_of(grid, tmp_path / "a.gif", 3, only=only)
        for episode in shown:
            captions = [
                animation.tile(episode, moment)[: animation.CAPTION].reshape(-1, 3) for moment in episode.moments
            ]
            assert (captions[-1] == colour).all(axis=1).any()
            for caption in captions[:-1]:
                assert not (caption == colour).all(axis=1).any()
            assert not any((caption == other).all(axis=1).any() for caption in captions)


def test_a_strip_has_a_row_for_each_episode(call: Call, grid: Path, tmp_path: Path) -> None:
    assert call("watch", grid, "--out", tmp_path / "a.PNG", "--episodes", 4).code == 0
    with Image.open(tmp_path / "a.PNG") as picture:
        assert picture.size == (6 * (224 + 8) + 8, 4 * (224 + 26 + 8) + 8)
        whole = np.asarray(picture.convert("RGB"))
    for row, episode in enumerate(episodes_of(grid, tmp_path / "a.PNG", 4)):
        top, last = 8 + row * 258, min(len(episode.moments), 6) - 1
        for column, moment in ((0, episode.moments[0]), (last, episode.moments[-1])):
            left = 8 + column * 232
            np.testing.assert_array_equal(whole[top : top + 250, left : left + 224], animation.tile(episode, moment))


def test_an_mp4_can_be_decoded(call: Call, bits: Path, tmp_path: Path) -> None:
    assert call("watch", bits, "--out", tmp_path / "a.mp4", "--fps", 8).code == 0
    gif = episodes_of(bits, tmp_path / "a.gif")
    reader = imageio_ffmpeg.read_frames(str(tmp_path / "a.mp4"))
    about = next(reader)
    pictures = [np.frombuffer(data, np.uint8).reshape(*about["size"][::-1], 3) for data in reader]
    expected = [frame[: len(frame) // 2 * 2] for frame in animation.frames(gif)]
    assert len(pictures) == len(expected) + 8  # and a second on top
    assert about["fps"] == 8
    assert np.abs(pictures[-1].astype(int) - expected[-1]).mean() < 3


@pytest.mark.parametrize("ending", ["gif", "png", "mp4"])
def test_the_same_call_gives_the_same_file(call: Call, bits: Path, tmp_path: Path, ending: str) -> None:
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        assert call("watch", bits, "--seed", seed, "--out", tmp_path / f"{name}.{ending}").code == 0
    one, two, other = ((tmp_path / f"{name}.{ending}").read_bytes() for name in ("one", "two", "other"))
    assert one == two
    assert one != other


@pytest.mark.parametrize("name", ["grid", "plain_grid"])
def test_arrows_are_the_policys_moves(request: pytest.FixtureRequest, name: str) -> None:
    directory = RunDirectory(request.getfixturevalue(name))
    agent = load_policy(directory, directory.read_config())
    environment = GridWorldVectorEnv(4, size=8, n_obstacles=6)
    seen, _ = environment.reset(seed=1)
    moves = grid_world.greedy_moves(agent, predictor(agent), seen)
    free = np.argwhere(moves >= 0)
    assert {tuple(place) for place in free} == {
        (index, row, column)
        for index, row, column in np.argwhere(seen["observation"][:, 0] == 0).tolist()
        if [row, column] != seen["desired_goal"][index].tolist()
    }
    for index, row, column in np.random.default_rng(0).choice(free, 20, replace=False).tolist():
        alone = np.zeros((8, 8), np.uint8)
        alone[row, column] = 1
        observation = {
            "observation": np.stack([seen["observation"][index, 0], alone])[None],
            "achieved_goal": np.array([[row, column]]),
            "desired_goal": seen["desired_goal"][[index]],
        }
        assert moves[index, row, column] == predictor(agent)(observation)[0]


def test_the_way_is_drawn_behind_the_agent(grid: Path, tmp_path: Path) -> None:
    (episode,) = episodes_of(grid, tmp_path / "a.gif", 1, only="successes")
    trails = [
        (np.abs(moment.picture.astype(int) - grid_world.PATH).max(axis=2) < 12).sum() for moment in episode.moments
    ]
    assert trails[-1] > trails[0] + 50


def test_of_a_long_episode_some_steps_are_shown(grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = episodes_of(grid, tmp_path / "a.gif", 4)
    monkeypatch.setattr(episodes, "MOST_PICTURES", 3)  # of 12 steps
    for whole, thinned in zip(every, episodes_of(grid, tmp_path / "a.gif", 4), strict=True):
        last = whole.moments[-1].step
        assert [moment.step for moment in thinned.moments] == sorted({*range(0, last + 1, 4), last})
        for moment in thinned.moments:  # and the way has no gaps
            np.testing.assert_array_equal(moment.picture, whole.moments[moment.step].picture)


@pytest.mark.parametrize("only", ["successes", "failures"])
def test_only_some_episodes(call: Call, run: Path, tmp_path: Path, only: str) -> None:
    outcomes = evaluate_run(RunDirectory(run), 200, SEED).final_success
    expected = np.flatnonzero(outcomes == (only == "successes"))[:3].tolist()
    assert len(expected) == 3
    shown = episodes_of(run, tmp_path / "a.gif", 3, only=only)
    assert [episode.number for episode in shown] == expected
    assert {episode.success for episode in shown} == {only == "successes"}


def test_only_what_ends_so_as_it_is_drawn(tmp_path: Path) -> None:
    """On Fetch, the rounding of sums in a batch of another size is enough for an episode to end otherwise."""
    run = train(tmp_path, "WatchShy-v0", "--method", "hid", "--episodes", 40, *QUICK)
    unseen = np.flatnonzero(evaluate_run(RunDirectory(run), 50, SEED).final_success).tolist()
    shown = episodes_of(run, tmp_path / "a.gif", 4, only="successes")
    numbers = [episode.number for episode in shown]
    assert all(episode.success for episode in shown)
    assert len(numbers) == 4
    assert set(numbers) < set(unseen)
    assert numbers != unseen[:4]


@pytest.fixture
def walled(tmp_path: Path) -> Path:
    """Three maps with a wall between start and goal, and steps to walk: none, five, or as many as there are."""
    obstacle = np.ones((3, 8, 8), int)
    obstacle[:, 1:7, 1:7] = 0
    obstacle[:, :, 4] = 1
    np.savez(tmp_path / "maps.npz", obstacle=obstacle, start=[[1, 1]] * 3, goal=[[6, 6]] * 3, budget=[0, 5, 12])
    return tmp_path / "maps.npz"


def test_given_maps_are_played_as_given(call: Call, grid: Path, walled: Path, tmp_path: Path) -> None:
    shown = episodes_of(grid, tmp_path / "a.gif", 6, maps=walled)
    assert [episode.limit for episode in shown] == [0, 5, 12]
    assert [episode.moments[-1].step for episode in shown] == [0, 5, 12]
    assert all(episode.moments[-1].over and not episode.success for episode in shown)
    words = ("watch", grid, "--maps", walled, "--out", tmp_path / "b.gif")
    assert call(*words, "--only", "failures", "--episodes", 2).out.endswith("0 of 2 episodes reached the goal\n")
    assert_refused(call(*words, "--only", "successes"), "none of the first 3 episodes")


def test_users_environments_are_drawn_by_themselves(call: Call, tmp_path: Path) -> None:
    run = train(tmp_path, "WatchLine-v0", "--method", "hid", "--episodes", 3, "--updates-per-episode", 2, *QUICK)
    outcomes = evaluate_run(RunDirectory(run), 4, SEED)
    shown = episodes_of(run, tmp_path / "a.gif", 4)
    assert [episode.success for episode in shown] == outcomes.final_success.tolist()
    for episode in shown:  # it goes on at the goal, and each picture tells whether it holds
        assert [moment.step for moment in episode.moments] == list(range(7))
        blue = [(np.abs(moment.picture.astype(int) - (0, 0, 255)).max(axis=2) < 60).any() for moment in episode.moments]
        assert all(blue)
    reached = [[moment.reached for moment in episode.moments] for episode in shown]
    assert [any(flags) for flags in reached] == outcomes.any_success.tolist()
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == 7  # type: ignore[attr-defined]


def test_what_cannot_be_drawn_is_refused(call: Call, tmp_path: Path) -> None:
    for name, sentence in (
        ("UserLine-v0", "'UserLine-v0' cannot be watched"),
        ("WatchNothing-v0", "gives no pictures"),
    ):
        (tmp_path / name).mkdir()
        words = (name, "--method", "hid", "--episodes", 2, "--updates-per-episode", 1, *QUICK)
        run = train(tmp_path / name, *words)
        assert_refused(call("watch", run, "--out", tmp_path / "a.gif"), sentence, "rgb_array")
        assert not (tmp_path / "a.gif").exists()


def test_wrong_calls_get_one_line(call: Call, bits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent, gif = tmp_path / "absent", tmp_path / "a.gif"
    # The ending is looked at first: not even the run needs to exist.
    for out in ("a.webm", "a"):
        assert_refused(call("watch", absent, "--out", tmp_path / out), ".gif, .mp4 or .png", out)
    assert_refused(call("watch", absent, "--out", gif), "absent", "config.json")
    for out in (bits.parent, bits / "config.json"):
        folder = tmp_path / "is.gif" if out == bits.parent else out / "a.gif"
        folder.mkdir() if out == bits.parent else None
        assert_refused(call("watch", bits, "--out", folder), "cannot be written")
    (tmp_path / "is.gif").rmdir()
    assert_refused(call("watch", bits, "--out", gif, "--seed", -1), "--seed is -1")
    assert_refused(call("watch", bits), "no display", "--out")  # matplotlib writes files in tests
    assert_refused(call("watch", bits, "Hanoi-v0", "--out", gif), "BitFlip-v0", "Hanoi-v0")
    assert_refused(call("watch", bits, "--out", gif, "--episodes", 0), "at least 1")
    assert_refused(call("watch", bits, "--out", gif, "--fps", 0), "between 1 and 50")
    assert_refused(call("watch", bits, "--out", gif, "--only", "wins"), "wins")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert_refused(call("watch", absent, "--out", tmp_path / "a.mp4"), "pip install 'pchid[video]'")
    assert not list(tmp_path.iterdir())


def test_maps_of_another_size_are_for_policies_that_plan(
    call: Call, grid: Path, plain_grid: Path, tmp_path: Path
) -> None:
    obstacle = np.zeros((2, 11, 11), int)
    np.savez(tmp_path / "maps.npz", obstacle=obstacle, start=[[1, 1], [9, 2]], goal=[[1, 2], [8, 8]])
    shown = episodes_of(grid, tmp_path / "a.gif", 2, maps=tmp_path / "maps.npz")
    assert [episode.limit for episode in shown] == [12, 12]
    refused = call("watch", plain_grid, "--maps", tmp_path / "maps.npz", "--out", tmp_path / "b.gif")
    assert_refused(refused, "size 11", "size 8")


def test_maps_are_for_grid_world(call: Call, bits: Path, walled: Path, tmp_path: Path) -> None:
    assert_refused(call("watch", bits, "--maps", walled, "--out", tmp_path / "a.gif"), "GridWorld", "BitFlip-v0")


def test_a_window_shows_the_same_pictures(bits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib import pyplot

    seen = []

    def look() -> None:  # what a display would get to see first
        canvas: Any = pyplot.gcf().canvas
        canvas.draw()
        seen.append(np.asarray(canvas.buffer_rgba())[:, :, :3].copy())
        pyplot.close()

    monkeypatch.setattr(pyplot, "show", look)
    shown = episodes_of(bits, tmp_path / "a.gif", 2)
    animation.show(shown, fps=4)
    np.testing.assert_array_equal(seen[0], next(animation.frames(shown)))


@pytest.mark.parametrize(
    ("count", "shape", "columns"), [(6, (1, 1), 3), (4, (1, 1), 2), (1, (1, 1), 1), (6, (4, 1), 2)]
)
def test_tiles_fill_a_screen(count: int, shape: tuple[int, int], columns: int) -> None:
    assert animation.columns_for(count, *shape) == columns


def test_strokes_cover_their_length_and_width() -> None:
    canvas = Canvas(40, 40, (0, 0, 0))
    canvas.line((10, 20), (30, 20), 4, (255, 255, 255))
    white = canvas.pixels[:, :, 0] / 255
    assert white[18:22, 10:30].min() == 1.0
    assert white[:16].max() == white[24:].max() == white[:, :7].max() == white[:, 33:].max() == 0.0
    assert white.sum() == pytest.approx(20 * 4 + np.pi * 2**2, rel=0.05)  # its ends are round
    canvas.arrow((10, 5), (10, 35), 2, (255, 255, 255), head=5)
    assert canvas.pixels[6:34, 10].min() > 0


@pytest.mark.slow
def test_fetch_is_drawn_without_a_display(tmp_path: Path) -> None:
    run = train(tmp_path, "FetchReach-v4", "--method", "hid", "--episodes", 1, "--updates-per-episode", 40, *QUICK)
    out = tmp_path / "reach.gif"
    # In a process of its own: what other tests have loaded for drawing cannot be exchanged.
    named = {"MUJOCO_GL", "PYOPENGL_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY"}
    words = [sys.executable, "-m", "pchid.cli", "watch", str(run), "--out", str(out), "--episodes", "2"]
    environment = {name: value for name, value in os.environ.items() if name not in named}
    ended = subprocess.run(words, env=environment, capture_output=True, text=True)
    if ended.returncode == 2 and "libosmesa6" in ended.stderr:
        pytest.skip("neither EGL nor OSMesa can be loaded")
    outcomes = evaluate_run(RunDirectory(run), 2, SEED)
    assert ended.stdout == f"{out}\n{int(outcomes.final_success.sum())} of 2 episodes reached the goal\n", ended.stderr
    with Image.open(out) as gif:
        assert gif.n_frames == 51  # type: ignore[attr-defined]
        assert gif.size == (2 * 328 + 8, 320 + 26 + 16)
        pictures = []
        for index in (0, 50):
            gif.seek(index)
            pictures.append(np.asarray(gif.convert("RGB")).astype(int)[34:-8])
    red = (pictures[0][:, :, 0] > 150) & (pictures[0][:, :, 1:] < 60).all(axis=2)
    assert red.any()  # the goal
    assert np.abs(pictures[1] - pictures[0]).max() > 100
    refused = subprocess.run(words, env={**environment, "MUJOCO_GL": "glfw"}, capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("pchid: MuJoCo cannot draw here by MUJOCO_GL=glfw")
