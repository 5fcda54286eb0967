"""Learning curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pchid.config import new_config
from pchid.errors import InputError
from pchid.experiments.plots import COLOURS, Panel, curve, draw_panels, plot_runs
from pchid.experiments.statistics import estimate
from pchid.runs import RunDirectory


def write_run(path: Path, seed: int, success: list[float], method: str = "pchid", every: int = 10) -> Path:
    directory = RunDirectory(path)
    path.mkdir()
    given = {"env": "BitFlip-v0", "method": method, "seed": seed, "env_options": {}, "policy_options": {}}
    directory.write_config(new_config(given))
    directory.write_metrics(
        [
            {
                "episodes": index,
                "env_steps": every * index,
                "test_steps": index,
                "final_success": value,
                "mean_return": -value,
                "loss": None,
            }
            for index, value in enumerate(success)
        ]
    )
    return path


def test_a_curve_is_the_interquartile_mean_over_seeds_with_its_interval(tmp_path: Path) -> None:
    values = np.array([[0.0, 0.5, 1.0], [0.2, 0.3, 0.9], [0.1, 0.1, 0.8], [0.9, 0.2, 0.7]])
    paths = [write_run(tmp_path / str(i), i, value) for i, value in enumerate(values.tolist())]
    runs = [RunDirectory(path).read_metrics() for path in paths]
    x, centre, low, high = curve(runs, "env_steps", "final_success")
    np.testing.assert_array_equal(x, [0, 10, 20])
    np.testing.assert_allclose(centre, [(0.1 + 0.2) / 2, (0.2 + 0.3) / 2, (0.8 + 0.9) / 2])
    for column in range(3):
        found = estimate(values[:, column].tolist())
        assert (low[column], high[column]) == pytest.approx((found.low, found.high))


@pytest.mark.parametrize(("axis", "places"), [("env_steps", [0, 10]), ("all_steps", [0, 11]), ("episodes", [0, 1])])
def test_steps_of_test_count_on_the_axis_that_says_so(tmp_path: Path, axis: str, places: list[int]) -> None:
    rows = RunDirectory(write_run(tmp_path / "one", 0, [0.0, 1.0])).read_metrics()
    np.testing.assert_array_equal(curve([rows], axis, "final_success")[0], places)


def test_runs_are_compared_on_their_common_steps(tmp_path: Path) -> None:
    short = RunDirectory(write_run(tmp_path / "short", 0, [0.0, 1.0], every=10)).read_metrics()
    long = RunDirectory(write_run(tmp_path / "long", 1, [0.0, 0.2, 0.4, 0.6], every=5)).read_metrics()
    x, centre, _, _ = curve([short, long], "env_steps", "final_success")
    np.testing.assert_array_equal(x, [0, 5, 10])
    np.testing.assert_allclose(centre, [0.0, 0.35, 0.7])


def test_one_run_has_no_interval(tmp_path: Path) -> None:
    rows = RunDirectory(write_run(tmp_path / "one", 0, [0.0, 1.0])).read_metrics()
    _, centre, low, high = curve([rows], "episodes", "mean_return")
    assert centre.tolist() == low.tolist() == high.tolist() == [0.0, -1.0]


def test_a_measure_that_is_not_known_yet_leaves_a_gap(tmp_path: Path) -> None:
    rows = RunDirectory(write_run(tmp_path / "one", 0, [0.0, 1.0])).read_metrics()
    rows = [{**row, "test_recall": value} for row, value in zip(rows, (np.nan, 0.5), strict=True)]
    _, centre, low, high = curve([rows, rows], "episodes", "test_recall")
    np.testing.assert_array_equal([centre, low, high], [[np.nan, 0.5]] * 3)


@pytest.mark.parametrize("axis", ["env_steps", "all_steps", "episodes"])
def test_a_picture_is_written(tmp_path: Path, axis: str) -> None:
    runs = [write_run(tmp_path / f"run{i}", i, [0.1 * i, 0.5]) for i in range(8)]
    methods = ("id", "hid", "pehid", "dqn", "dqn+her", "ppo", "ppo+pchid", "dqn+her+hid")
    runs += [write_run(tmp_path / method, 0, [0.1, 0.5], method=method) for method in methods]
    out = plot_runs(runs, tmp_path / "pictures" / "curves.png", axis)
    assert out.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_published_points_and_chosen_curves_are_drawn(tmp_path: Path) -> None:
    rows = RunDirectory(write_run(tmp_path / "one", 0, [0.0, 1.0])).read_metrics()
    pictures = []
    for published in ({}, {"paper": [(0.0, 0.2), (1.0, 0.8)]}):
        panels = [Panel(axis="episodes", labels=("a",), published=published), Panel("mean_return", "all_steps")]
        pictures.append(draw_panels({"a": [rows], "b": [rows, rows]}, panels, "t", tmp_path / "p.png").read_bytes())
    assert pictures[0] != pictures[1]


def test_curves_of_one_name_look_alike_in_all_panels(tmp_path: Path) -> None:
    rows = RunDirectory(write_run(tmp_path / "one", 0, [0.0, 1.0])).read_metrics()
    tasks = ("push", "slide")
    panels = [Panel(labels=(f"ours, {task}",), title=task, names={f"ours, {task}": "ours"}) for task in tasks]
    curves = {f"ours, {task}": [rows] for task in tasks}
    drawing = draw_panels(curves, panels, "t", tmp_path / "p.svg").read_text()
    assert [drawing.count(f"<!-- {text} -->") for text in (*tasks, "ours", "ours, push")] == [1, 1, 1, 0]
    assert COLOURS[0] in drawing and COLOURS[1] not in drawing
    apart = draw_panels(curves, [Panel(), Panel()], "t", tmp_path / "p.svg").read_text()
    assert "<!-- ours, slide (1 seed) -->" in apart and COLOURS[1] in apart


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (4, 4), (5, 3), (6, 3)])
def test_many_panels_stand_in_rows(tmp_path: Path, count: int, columns: int) -> None:
    rows = RunDirectory(write_run(tmp_path / "one", 0, [0.0, 1.0])).read_metrics()
    panels = [Panel(title=f"panel {number}") for number in range(count)]
    drawing = draw_panels({"a": [rows]}, panels, "t", tmp_path / "p.svg").read_text()
    assert f'width="{columns * 360}pt"' in drawing
    assert [drawing.count(f"<!-- panel {number} -->") for number in range(count + 1)] == [1] * count + [0]


def test_runs_without_common_steps_are_refused(tmp_path: Path) -> None:
    one = [{"env_steps": 50.0, "y": 1.0}]
    other = [{"env_steps": 0.0, "y": 1.0}]
    with pytest.raises(InputError, match="no step in common"):
        curve([one, one, other][1:], "env_steps", "y")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json"):
        plot_runs([tmp_path], tmp_path / "x.png")
    write_run(tmp_path / "half", 0, [0.0])
    (tmp_path / "half" / "metrics.csv").unlink()
    with pytest.raises(InputError, match=r"metrics\.csv"):
        plot_runs([tmp_path / "half"], tmp_path / "x.png")
