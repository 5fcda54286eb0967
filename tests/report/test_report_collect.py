"""What is read from a folder of results, and what is said when something is wrong with it."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pages import RESULTS, claims_on, write_made_up
from PIL import Image
from support import Outcome

from pchid.envs.grid_world import MOVES
from pchid.errors import InputError
from pchid.experiments.figures import EXPERIMENTS
from pchid.experiments.plots import Panel, curve
from pchid.networks.planning import PlanningNetwork, ValueIterationNetwork
from pchid.networks.symmetric import SymmetricNetwork
from pchid.policies import GoalMlp
from pchid.report.animations import animations
from pchid.report.collect import collect, read_experiment
from pchid.report.curves import chart, comparable, measures_of
from pchid.report.policies import best_policies, export, playground
from pchid.report.speed import benchmarks

CURVES = {"a": [[0.0, 0.25], [0.0, 0.5], [0.1, 0.75]], "b": [[0.1, 0.7], [0.2, 0.8], [0.3, 0.9]]}
Call = Callable[..., Outcome]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return write_made_up(tmp_path / "results", CURVES, claims=claims_on("b", 0.5, 0.95))


def test_experiments_come_in_the_order_of_the_paper_and_others_after_them(tmp_path: Path) -> None:
    for name in ("zebra", "ou", "fig5", "alpha", "fig1a"):
        write_made_up(tmp_path, CURVES, name=name)
    found = collect(tmp_path)
    assert [one.name for one in found] == ["fig1a", "fig5", "ou", "alpha", "zebra"]
    assert [one.declared for one in found] == [True, True, True, False, False]


def test_everything_about_an_experiment_is_read(results: Path) -> None:
    (found,) = collect(results)
    assert [verdict.verdict for verdict in found.verdicts] == ["better", "not reproduced"]
    assert found.results.values("a", "final_success") == [0.25, 0.5, 0.75]
    assert [points[0]["final_success"] for points in found.results.curves["b"]] == [0.1, 0.2, 0.3]
    assert found.results.commands["a"] == "pchid train BitFlip-v0 --method hid --episodes 2"
    assert (found.quick, found.missing_runs, found.versions) == (False, 0, {"pchid": "0"})


def test_a_quick_version_and_missing_runs_are_told(tmp_path: Path) -> None:
    write_made_up(tmp_path, CURVES, name="one", quick=True)
    write_made_up(tmp_path, CURVES, name="two", claims=claims_on("a", 0.5), missing=3)
    one, two = collect(tmp_path)
    assert (one.quick, one.missing_runs) == (True, 0)
    assert (two.quick, two.missing_runs) == (False, 3)
    assert two.verdicts[0].verdict == "not judged"


def test_an_experiment_says_what_it_showed_when_it_ran(tmp_path: Path) -> None:
    write_made_up(tmp_path, CURVES, name="fig5", shows="an older figure")
    assert collect(tmp_path)[0].results.experiment.shows == "an older figure"
    assert EXPERIMENTS["fig5"].shows != "an older figure"


def test_a_missing_folder_is_one_sentence(call: Call, tmp_path: Path) -> None:
    outcome = call("report", "--results", tmp_path / "nowhere", "--out", tmp_path / "report.html")
    assert outcome.code == 2
    assert outcome.err.startswith(f"pchid: there is no folder {tmp_path / 'nowhere'}")
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_a_folder_without_results_is_one_sentence(call: Call, tmp_path: Path) -> None:
    outcome = call("report", "--results", tmp_path)
    assert outcome.code == 2
    assert "holds no results" in outcome.err


def damage(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "no JSON": ("verdict.json", lambda folder: (folder / "verdict.json").write_text("{")),
    "a list": ("verdict.json", lambda folder: (folder / "verdict.json").write_text("[]")),
    "bytes": ("verdict.json", lambda folder: (folder / "verdict.json").write_bytes(b"\xff\xfe")),
    "no claims": ("verdict.json", lambda folder: damage(folder / "verdict.json", lambda all_: all_.pop("claims"))),
    "a strange verdict": (
        "verdict.json",
        lambda folder: damage(folder / "verdict.json", lambda all_: all_["claims"][0].update(verdict="perhaps")),
    ),
    "half a claim": (
        "verdict.json",
        lambda folder: damage(folder / "verdict.json", lambda all_: all_["claims"][0].pop("why")),
    ),
    "a drawing that is none": ("drawn.png", lambda folder: (folder / "drawn.png").write_bytes(b"PNG")),
    "no runs": ("runs.csv", lambda folder: (folder / "runs.csv").unlink()),
    "a word for a number": (
        "runs.csv, line 2",
        lambda folder: (folder / "runs.csv").write_text((folder / "runs.csv").read_text().replace("0.25", "high", 1)),
    ),
    "a column less": (
        "curves.csv",
        lambda folder: (folder / "curves.csv").write_text(
            (folder / "curves.csv").read_text().replace("env_steps", "e")
        ),
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_broken_file_is_named(results: Path, call: Call, tmp_path: Path, what: str) -> None:
    name, break_it = DAMAGES[what]
    break_it(results / "made-up")
    outcome = call("report", "--results", results, "--out", tmp_path / "report.html")
    assert outcome.code == 2
    assert str(results / "made-up" / name) in outcome.err
    assert not (tmp_path / "report.html").exists()


def test_curves_are_those_of_every_other_plot(results: Path) -> None:
    (found,) = collect(results)
    row = chart(found.results)["rows"][0]
    for axis in ("env_steps", "all_steps", "episodes"):
        expected = curve(found.results.curves["a"], axis, "final_success")
        line = row["curves"]["final_success"][axis]
        for name, numbers in zip(("x", "centre", "low", "high"), expected, strict=True):
            np.testing.assert_allclose(line[name], numbers, rtol=1e-4)
    end = found.results.estimate("a", "final_success")
    assert end.low < end.iqm < end.high
    ours = [row["curves"]["final_success"]["episodes"][name][-1] for name in ("centre", "low", "high")]
    np.testing.assert_allclose(ours, (end.iqm, end.low, end.high), rtol=1e-4)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_curve_that_cannot_be_drawn_is_named(results: Path) -> None:
    path = results / "made-up" / "curves.csv"
    path.write_text(path.read_text().replace("0.25", "inf", 1))
    with pytest.raises(InputError, match=r"curves\.csv, row a: inf"):
        chart(collect(results)[0].results)


def test_measures_that_no_run_has_are_left_out(results: Path) -> None:
    assert list(measures_of([chart(collect(results)[0].results)])) == [
        *("final_success", "any_success", "mean_return", "steps_to_goal")
    ]


def test_what_the_paper_reports_is_in_the_chart() -> None:
    published = chart(read_experiment(RESULTS / "fig5").results)["published"]
    assert {"name": "paper, PCHID-5", "measure": "any_success", "axis": "episodes"}.items() <= published[1].items()
    assert [100, 0.74] in published[1]["points"]


def test_only_what_figures_leave_out_cannot_be_compared() -> None:
    two = (Panel("mean_return", labels=("a",)), Panel("mean_return", labels=("b",)), Panel("final_success"))
    assert comparable(two) == {"mean_return": ["a", "b"]}
    assert comparable((Panel("mean_return", labels=("a",)), Panel("mean_return"))) == {}


def test_the_policy_that_ended_best_is_taken(tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "gridworld", tmp_path / "gridworld")
    runs = (tmp_path / "gridworld" / "runs.csv").read_text().splitlines()
    chosen = next(line.split(",") for line in runs if line.startswith("8x8,4,"))
    better = [*chosen[:5], "2.0", *chosen[6:]]  # more than any other has
    rows = [",".join(better) if line.startswith("8x8,4,") else line for line in runs]
    (tmp_path / "gridworld" / "runs.csv").write_text("\n".join(rows))
    path, success, seeds = best_policies(collect(tmp_path)[0])["8x8"]
    assert (path.name, success, seeds) == ("8x8-4", 2.0, 10)
    (eight, *_) = playground(collect(tmp_path))["grid"]
    assert (eight["size"], eight["n_obstacles"], eight["horizon"]) == (8, 30, 50)
    assert eight["from"] == "gridworld, row 8x8, seed 4"


def test_without_kept_policies_there_is_no_playground(results: Path) -> None:
    assert playground(collect(results)) == {}


def unpacked(array: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(array["float32"]), "<f4").reshape(array["shape"])


@pytest.mark.parametrize("network", [SymmetricNetwork(7), ValueIterationNetwork(len(MOVES), 5, 10, 7, shifts=True)])
def test_a_planning_network_is_exported_whole(network: PlanningNetwork) -> None:
    exported = export(network)
    assert exported["iterations"] == 7
    for name, expected in zip(("folded", "of_reward", "of_value"), network.weights(), strict=True):
        np.testing.assert_array_equal(unpacked(exported[name]), expected.detach().numpy())
    q = torch.randn(3, exported["of_value"]["shape"][0])
    read = q.numpy() @ unpacked(exported["readout"]).T
    np.testing.assert_allclose(read, network.read(q).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_a_perceptron_is_exported_whole() -> None:
    network = GoalMlp(6, 6, 4, (5, 3), agreement=True)
    network.normalise_by(torch.rand(20, 6), torch.rand(20, 6))
    exported = export(network)
    seen, wanted = torch.rand(6), torch.rand(6)

    def normalised(inputs: torch.Tensor, by: dict[str, Any]) -> np.ndarray:
        return np.clip((inputs.numpy() - by["mean"]) / by["deviation"], -by["clip"], by["clip"])

    one, two = normalised(seen, exported["observation"]), normalised(wanted, exported["goal"])
    values = np.concatenate([one, two, one * two])
    for depth, layer in enumerate(exported["layers"]):
        values = unpacked(layer["weight"]) @ values + unpacked(layer["bias"])
        values = np.maximum(values, 0) if depth < 2 else values
    np.testing.assert_allclose(values, network(seen[None], wanted[None])[0].detach().numpy(), rtol=1e-4, atol=1e-5)


def test_another_network_is_refused() -> None:
    with pytest.raises(InputError, match="Linear cannot be shown"):
        export(torch.nn.Linear(2, 2))


def test_animations_come_with_their_captions_and_first_pictures(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue")]
    for name in ("one", "two"):
        frames[0].save(tmp_path / f"{name}.gif", save_all=True, append_images=frames[1:])
    (tmp_path / "captions.json").write_text(json.dumps({"one": "The first."}))
    one, two = animations(tmp_path)
    assert (one.caption, two.caption) == ("The first.", "two")
    assert (one.width, one.height) == (40, 30)
    assert base64.b64decode(one.gif.removeprefix("data:image/gif;base64,")) == (tmp_path / "one.gif").read_bytes()
    (tmp_path / "still.png").write_bytes(base64.b64decode(one.still.removeprefix("data:image/png;base64,")))
    assert Image.open(tmp_path / "still.png").convert("RGB").getpixel((5, 5))[0] > 200
    assert animations(tmp_path / "nowhere") == []
    (tmp_path / "three.gif").write_bytes(b"GIF89a")
    with pytest.raises(InputError, match=r"three\.gif"):
        animations(tmp_path)


def test_every_committed_benchmark_is_read() -> None:
    found = {one.title: one for one in benchmarks(RESULTS)}
    assert len(found) == len(list(RESULTS.glob("*.json")))
    (table,) = found["FetchReach, until no evaluation episode fails"].tables
    written = json.loads((RESULTS / "time_to_goal.json").read_text())
    assert [row[0] for row in table.rows] == list(written["means"])
    assert table.rows[0][2].startswith(f"{written['means']['pchid']['seconds']['mean']:.1f}")
    stepping, testing = found["The Fetch simulator"].tables
    assert {len(row) for row in stepping.rows} == {len(stepping.heads)}
    assert {len(row) for row in testing.rows} == {len(testing.heads)}


def test_a_broken_benchmark_is_named(tmp_path: Path) -> None:
    (tmp_path / "vin.json").write_text('[{"what": "forward"}]')
    with pytest.raises(InputError, match=r"vin\.json is not what benchmarks/vin\.py writes"):
        benchmarks(tmp_path)
