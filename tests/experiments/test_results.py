"""What is written about finished runs."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import a_run, constant, experiment_of, results_of

import pchid.cli
from pchid.experiments.claims import Claim, Verdict, above, judge, reaches
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.plots import Panel
from pchid.experiments.results import CLOCK, Results, read_results, table, verdict_table, write_results

FILES = {"runs.csv", "curves.csv", "table.md", "verdict.json", "made-up.png"}
NASTY = 'RND, quantile 0.5, "hard"'


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@contextlib.contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """As if the disk were nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    claims = (Claim("b gets there", reaches("b", 0.7)), Claim("a gets there", reaches("a", 0.9), "a is slow"))
    curves = {"a": [[0.0, 0.25], [0.0, 0.5]], "b": [[0.1, 0.7], [0.2, 0.8]]}
    return results_of(curves, tmp_path / "out", experiment_of(*curves, claims=claims))


def test_every_file_is_written(results: Results) -> None:
    write_results(results)
    assert {path.name for path in results.folder.iterdir()} == FILES
    assert (results.folder / "made-up.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_there_is_a_row_for_each_run_and_for_each_evaluation(results: Results) -> None:
    write_results(results)
    runs, points = rows_of(results.folder / "runs.csv"), rows_of(results.folder / "curves.csv")
    assert [(row["label"], row["seed"], row["final_success"]) for row in runs] == [
        *(("a", "0", "0.25"), ("a", "1", "0.5")),
        *(("b", "0", "0.7"), ("b", "1", "0.8")),
    ]
    assert {CLOCK} == set(runs[0]) - set(points[0])
    assert len(points) == 8
    assert [float(point["final_success"]) for point in points[:4]] == [0.0, 0.25, 0.0, 0.5]
    assert [float(point["env_steps"]) for point in points[:2]] == [0.0, 100.0]


def test_the_verdict_file_holds_what_was_found(results: Results) -> None:
    verdicts = write_results(results)
    written = json.loads((results.folder / "verdict.json").read_text())
    assert written["claims"] == [vars(verdict) for verdict in verdicts]
    assert [claim["verdict"] for claim in written["claims"]] == ["reproduced", "not reproduced"]
    assert written["claims"][1]["why"].endswith("a is slow")
    assert (written["name"], written["quick"], written["missing_runs"]) == ("made-up", False, 0)
    assert written["commands"] == {"a": "pchid train a", "b": "pchid train b"}
    assert written["versions"] == {"pchid": "0"}


def test_a_quick_version_says_so(results: Results) -> None:
    assert {verdict.verdict for verdict in write_results(results, quick=True)} == {"not judged"}
    assert json.loads((results.folder / "verdict.json").read_text())["quick"] is True


def test_the_table_has_both_counts_of_steps_and_the_seeds(results: Results) -> None:
    lines = [line for line in table(results).splitlines() if line.startswith("|")]
    heads, _, first, second = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    found = dict(zip(heads, first, strict=True))
    assert (found["env steps"], found["TEST steps"], found["seeds"], found["min"]) == ("100", "25", "2", "1.0")
    assert found["final success"] == f"0.375 [{results.estimate('a', 'final_success').low:.3f}, 0.500]"
    assert second[0] == "b"
    assert "- b: `pchid train b`" in table(results)
    rows = tuple(replace(row, note="stopped early") if row.label == "b" else row for row in results.experiment.rows)
    noted = table(replace(results, experiment=replace(results.experiment, rows=rows)))
    assert "- b (stopped early): `pchid train b`" in noted and "- a: `pchid train a`" in noted


def test_what_is_not_known_is_an_empty_cell(results: Results) -> None:
    results.summaries["a"][0] |= {"test_accuracy": None, "test_recall": math.nan}
    del results.summaries["a"][1]["test_recall"]
    results.curves["a"][0][0]["K"] = math.nan
    write_results(results)
    runs = rows_of(results.folder / "runs.csv")
    assert [row["test_accuracy"] for row in runs] == ["", "0.5", "0.7", "0.8"]
    assert [row["test_recall"] for row in runs] == ["", "", "0.7", "0.8"]
    assert [point["K"] for point in rows_of(results.folder / "curves.csv")][:2] == ["", "1"]


def test_what_is_not_known_is_no_reason_to_fail(results: Results) -> None:
    results.summaries["a"][0]["test_accuracy"] = None
    assert [math.isnan(value) for value in results.values("a", "test_accuracy")] == [True, False]


def test_a_claim_about_what_is_not_known_is_not_judged(results: Results) -> None:
    claim = Claim("a is the more accurate", above("a", "b", "test_accuracy"))
    assert judge(claim, results, quick=False).verdict != "not judged"
    results.summaries["a"][0]["test_accuracy"] = None
    verdict = judge(claim, results, quick=False)
    assert (verdict.verdict, verdict.why) == ("not judged", "there is no test accuracy of a at the end")


def test_labels_may_hold_commas_and_quotes(tmp_path: Path) -> None:
    write_results(results_of({NASTY: constant(0.5, 0.6)}, tmp_path))
    for name in ("runs.csv", "curves.csv"):
        assert {row["label"] for row in rows_of(tmp_path / name)} == {NASTY}
        assert {row["seed"] for row in rows_of(tmp_path / name)} == {"0", "1"}


def test_a_full_disk_leaves_the_old_files(results: Results) -> None:
    write_results(results)
    before = {path: path.read_bytes() for path in results.folder.iterdir()}
    results.curves["a"][0][1]["final_success"] = 0.9
    for size in (50, 8_000):  # too little for a table, and for the picture alone
        with no_file_larger_than(size), pytest.raises(OSError, match="too large"):
            write_results(results)
    after = {path: path.read_bytes() for path in results.folder.iterdir()}
    assert set(after) == set(before)
    picture = results.folder / "made-up.png"
    assert after[picture] == before[picture]
    assert after[results.folder / "runs.csv"] == before[results.folder / "runs.csv"]


def test_written_twice_they_are_the_same(results: Results) -> None:
    write_results(results)
    before = {path: path.read_bytes() for path in results.folder.iterdir()}
    write_results(results)
    assert {path: path.read_bytes() for path in results.folder.iterdir()} == before


def test_missing_runs_are_counted_and_the_others_written(results: Results) -> None:
    del results.summaries["b"], results.curves["b"]
    results.missing = [a_run("b")]
    assert [verdict.verdict for verdict in write_results(results)] == ["not judged", "not reproduced"]
    assert json.loads((results.folder / "verdict.json").read_text())["missing_runs"] == 1
    assert {row["label"] for row in rows_of(results.folder / "runs.csv")} == {"a"}


def test_without_any_run_there_is_still_a_verdict(tmp_path: Path) -> None:
    nothing = Results(experiment_of("a", claims=(Claim("it is so", reaches("a", 0.5)),)), tmp_path)
    nothing.missing = [a_run()]
    assert [verdict.verdict for verdict in write_results(nothing)] == ["not judged"]
    assert rows_of(tmp_path / "runs.csv") == []
    assert not (tmp_path / "made-up.png").exists()


def test_a_study_adds_to_the_results_once_all_runs_are_there(results: Results) -> None:
    def study(found: Results, quick: bool) -> None:
        found.study = {"quick": quick, "runs": sum(map(len, found.summaries.values()))}

    results.experiment = experiment_of("a", "b", study=study)
    results.missing = [a_run()]
    write_results(results)
    assert not (results.folder / "study.json").exists()
    results.missing = []
    write_results(results, quick=True)
    assert json.loads((results.folder / "study.json").read_text()) == {"quick": True, "runs": 4}


def test_runs_are_read_from_their_directories(tmp_path: Path) -> None:
    settings = {"env.n_bits": 3, "episodes": 4, "eval_every": 2, "eval_episodes": 4, "final_episodes": 8}
    experiment = Experiment("real", "", (Row("one", "BitFlip-v0", "hid", settings),), 2, 1.0, panels=(Panel(),))
    runs = experiment.runs()
    words = [*runs[0].words(), "--quiet", "--out", str(runs[0].directory(tmp_path))]
    assert pchid.cli.main(["train", *words]) == 0
    results = read_results(experiment, runs, tmp_path, tmp_path / "out")
    assert results.missing == [runs[1]]
    assert results.directories == {"one": [runs[0].directory(tmp_path)]}
    assert [row["episodes"] for row in results.curves["one"][0]] == [0, 2, 4]
    assert results.summaries["one"][0]["seed"] == 0
    assert results.commands == {"one": runs[0].command()}
    write_results(results)
    row = rows_of(tmp_path / "out" / "runs.csv")[0]
    assert (row["episodes"], row["test_accuracy"]) == ("4", "")
    assert float(row["final_success"]) == results.values("one", "final_success")[0]


def test_the_table_tells_the_verdicts_too(results: Results) -> None:
    verdicts = [Verdict("it works", "reproduced", "1.000 against 0.500")]
    assert "| it works | reproduced | 1.000 against 0.500 |" in verdict_table(verdicts)
    assert verdict_table([]) == ""
    written = write_results(results)
    assert verdict_table(written) in (results.folder / "table.md").read_text()
