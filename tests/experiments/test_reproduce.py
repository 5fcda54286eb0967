"""Experiments from beginning to end: run, stopped, failed, called again."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from support import Outcome
from synthetic import constant, results_of

from pchid.display import make_console
from pchid.errors import InputError
from pchid.experiments import figures, progress
from pchid.experiments.claims import Claim, reaches
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.engines import Job, Report
from pchid.experiments.progress import RunsDisplay
from pchid.experiments.reproduce import Plan, reproduce, show
from pchid.experiments.results import CLOCK
from pchid.experiments.worker import train_in
from pchid.runs import RunDirectory

Call = Callable[..., Outcome]
SMALL = {
    "env.n_bits": 3,
    "episodes": 6,
    "eval_every": 3,
    "eval_episodes": 4,
    "final_episodes": 8,
    "batch_size": 16,
    "policy.hidden_sizes": [8],
}
HID, PCHID = Row("one step", "BitFlip-v0", "hid", SMALL), Row("more steps", "BitFlip-v0", "pchid", SMALL)
BROKEN = Row("broken", "BitFlip-v0", "hid", {**SMALL, "env.n_bits": 0})
CLAIMS = (
    Claim("one step is enough", reaches("one step", 0.0)),
    Claim("one step is enough, in little time", reaches("one step", 0.0), quick=True),
)


class SameProcess:
    """The simplest engine: one run after the other, here."""

    workers = 1

    def __init__(self) -> None:
        self.done: list[str] = []

    def run(self, jobs: Sequence[Job], report: Report) -> None:
        for job in jobs:
            self.done.append(job.label)
            report(job, "running")
            train_in(job.directory, list(job.words))
            report(job, "done" if job.finished else "failed")


def experiment(name: str, *rows: Row, **fields: Any) -> Experiment:
    return Experiment(
        **{"name": name, "shows": f"what {name} shows", "rows": rows, "seeds": 2, "minutes": 90, **fields}
    )


def carry_out(folder: Path, *experiments: Experiment, **plan: Any) -> tuple[list[Job], list[str], str]:
    """Reproduce in this process: what failed, what ran, what was printed."""
    engine, printed = SameProcess(), io.StringIO()
    console = Console(file=printed, width=400)
    failed = reproduce(experiments, Plan(engine, folder / "runs", folder / "results", **plan), console)
    return failed, engine.done, printed.getvalue()


def marks(runs: Path) -> dict[str, tuple[int, int]]:
    """What would change if a finished run were written again."""
    found = {path: path.stat() for path in runs.glob("*/summary.json")}
    return {str(path.parent.name): (stat.st_mtime_ns, stat.st_ino) for path, stat in found.items()}


def contents(folder: Path) -> dict[str, Any]:
    """What must not depend on how the runs came about."""
    with (folder / "runs.csv").open() as file:
        rows = [{name: cell for name, cell in row.items() if name != CLOCK} for row in csv.DictReader(file)]
    return {"runs": rows, **{name: (folder / name).read_bytes() for name in ("curves.csv", "verdict.json")}}


def verdicts(folder: Path) -> list[str]:
    return [claim["verdict"] for claim in json.loads((folder / "verdict.json").read_text())["claims"]]


def test_all_runs_are_made_and_their_results_written(tmp_path: Path) -> None:
    failed, ran, printed = carry_out(tmp_path, experiment("both", HID, PCHID, claims=CLAIMS))
    assert failed == []
    assert ran == [f"{label}, seed {seed}" for seed in (0, 1) for label in ("one step", "more steps")]
    assert len(marks(tmp_path / "runs")) == 4
    assert set(verdicts(tmp_path / "results" / "both")) <= {"reproduced", "better"}
    assert len(contents(tmp_path / "results" / "both")["runs"]) == 4
    assert "4 of 4 done, 0 running, 0 failed; nothing left" in printed
    assert "what both shows" in printed
    assert f"written to {tmp_path / 'results' / 'both'}" in printed


def test_finished_runs_are_never_repeated(tmp_path: Path) -> None:
    both = experiment("both", HID, PCHID, claims=CLAIMS)
    carry_out(tmp_path, both, seeds=1)
    before, results = marks(tmp_path / "runs"), contents(tmp_path / "results" / "both")
    assert carry_out(tmp_path, both, seeds=1)[1] == []
    assert contents(tmp_path / "results" / "both") == results
    assert carry_out(tmp_path, both)[1] == ["one step, seed 1", "more steps, seed 1"]
    after = marks(tmp_path / "runs")
    assert len(after) == 4
    assert {name: after[name] for name in before} == before


def test_two_figures_share_their_runs(tmp_path: Path) -> None:
    again = Row("PCHID-1", HID.env, HID.method, dict(reversed(SMALL.items())))
    _, ran, _ = carry_out(tmp_path, experiment("first", HID), experiment("second", again, PCHID), seeds=1)
    assert ran == ["one step, seed 0", "more steps, seed 0"]
    first, second = (contents(tmp_path / "results" / name)["runs"] for name in ("first", "second"))
    assert second[0] == {**first[0], "label": "PCHID-1"}


def test_rows_that_are_the_same_run_are_run_once(tmp_path: Path) -> None:
    again = Row("the same", HID.env, HID.method, SMALL)
    _, ran, _ = carry_out(tmp_path, experiment("twice", HID, again), seeds=1)
    assert ran == ["the same, seed 0"]
    assert [row["label"] for row in contents(tmp_path / "results" / "twice")["runs"]] == ["one step", "the same"]


def test_a_run_that_fails_is_named_and_the_others_finish(tmp_path: Path) -> None:
    claims = (CLAIMS[0], Claim("it works broken", reaches("broken", 0.0)))
    failed, ran, printed = carry_out(tmp_path, experiment("some", BROKEN, HID, claims=claims), seeds=1)
    assert ran == ["broken, seed 0", "one step, seed 0"]
    assert [job.label for job in failed] == ["broken, seed 0"]
    assert f"(log: {failed[0].log})" in printed
    assert "1 of 2 done, 0 running, 1 failed; nothing left" in printed
    assert verdicts(tmp_path / "results" / "some") == ["better", "not judged"]
    assert json.loads((tmp_path / "results" / "some" / "verdict.json").read_text())["missing_runs"] == 1
    assert [row["label"] for row in contents(tmp_path / "results" / "some")["runs"]] == ["one step"]


@pytest.mark.parametrize("line", ["[/] is no folder", "[bold]", "ended by [/home/me]"])
def test_the_last_line_of_a_log_is_shown_as_it_is(tmp_path: Path, line: str) -> None:
    broken = experiment("some", BROKEN)
    log = broken.runs()[0].directory(tmp_path / "runs") / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text(f"much\n{line}\n")
    assert f"broken, seed 0: {line} (log: {log})" in carry_out(tmp_path, broken, seeds=1)[2]


def test_what_failed_is_tried_again_and_the_rest_is_not(tmp_path: Path) -> None:
    both = experiment("both", HID, PCHID, claims=CLAIMS)
    with RunDirectory(both.runs()[0].directory(tmp_path / "runs")).lock():  # as if somebody trained there
        failed, _, _ = carry_out(tmp_path, both, seeds=1)
    assert [job.label for job in failed] == ["one step, seed 0"]
    before = marks(tmp_path / "runs")
    failed, ran, _ = carry_out(tmp_path, both, seeds=1)
    assert (failed, ran) == ([], ["one step, seed 0"])
    assert before.items() < marks(tmp_path / "runs").items()
    assert "not judged" not in verdicts(tmp_path / "results" / "both")


def test_what_is_wrong_with_the_last_is_known_before_the_first_runs(tmp_path: Path) -> None:
    wrong = experiment("wrong", Row("wrong", "BitFlip-v0", "hid", {"episodes": 0}))
    with pytest.raises(InputError, match="at least 1"):
        carry_out(tmp_path, experiment("right", HID), wrong)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("seeds", [0, -2])
def test_at_least_one_seed_is_needed(tmp_path: Path, seeds: int) -> None:
    with pytest.raises(InputError, match=f"--seeds is {seeds}"):
        carry_out(tmp_path, experiment("right", HID), seeds=seeds)


@pytest.mark.slow
def test_the_order_of_runs_does_not_matter(tmp_path: Path) -> None:
    both = experiment("both", HID, PCHID, claims=CLAIMS)
    carry_out(tmp_path / "straight", both)
    carry_out(tmp_path / "other", experiment("first", PCHID))
    carry_out(tmp_path / "other", both)
    one, other = (contents(tmp_path / name / "results" / "both") for name in ("straight", "other"))
    assert one == other


# On the command line.


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small experiments in place of the paper's."""
    quick = {"quick": {"episodes": 3}, "quick_seeds": 1, "claims": CLAIMS}
    found = [
        experiment("first", HID, **quick),
        experiment("second", HID, PCHID, **quick),
        experiment("bad", BROKEN, HID),
    ]
    monkeypatch.setattr(figures, "EXPERIMENTS", {each.name: each for each in found})


@pytest.mark.usefixtures("declared")
def test_the_list_says_what_each_shows_and_claims_and_how_long_it_takes(call: Call) -> None:
    outcome = call("reproduce", "--list")
    text = " ".join(re.sub(r"[│┃]", " ", outcome.out).split())
    assert outcome.code == 0
    for name in ("first", "second", "bad"):
        assert f"what {name} shows" in text
    assert "one step is enough" in text
    assert "90 min" in text
    assert "what second shows" not in call("reproduce", "first", "--list").out


def test_the_list_of_the_paper_is_complete(call: Call) -> None:
    text = call("reproduce", "--list").out
    for name, found in figures.EXPERIMENTS.items():
        assert name in text
        assert found.claims[0].says.split()[0] in text


@pytest.mark.usefixtures("declared")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "name an experiment: first, second, bad, or all"),
        (("nope",), "unknown experiment 'nope'"),
        (("first", "nope"), "unknown experiment 'nope'"),
        (("nope", "--list"), "unknown experiment 'nope'"),
        (("first", "--seeds", 0), "--seeds is 0"),
        (("first", "--seeds", 1.5), "--seeds"),
        (("first", "--workers", 0), "--workers is 0"),
        (("first", "--engine", "magic"), "magic"),
        (("first", "--foo"), "--foo"),
        (("first", "--env.n_bits", 3), "--env.NAME"),
    ],
)
def test_a_wrong_call_is_one_line_and_runs_nothing(
    call: Call, tmp_path: Path, words: tuple[object, ...], complaint: str
) -> None:
    outcome = call("reproduce", *words, "--runs", tmp_path / "runs", "--out", tmp_path / "results")
    assert outcome.code == 2
    assert outcome.err.startswith("pchid: ")
    assert outcome.err.count("\n") == 1
    assert complaint in outcome.err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("declared")
def test_the_quick_version_has_folders_of_its_own(call: Call, tmp_path: Path) -> None:
    words = ("--runs", tmp_path / "runs", "--out", tmp_path / "results", "--workers", 2)
    quick = call("reproduce", "first", "second", "--quick", *words)
    assert quick.code == 0, quick.err
    small = marks(tmp_path / "runs")
    assert len(small) == 2
    assert {path.name for path in (tmp_path / "results").iterdir()} == {"quick"}
    assert verdicts(tmp_path / "results" / "quick" / "second")[0] == "not judged"
    assert verdicts(tmp_path / "results" / "quick" / "second")[1] != "not judged"
    assert "not judged: one step is enough (the quick version is too small" in " ".join(quick.out.split())
    before = contents(tmp_path / "results" / "quick" / "first")
    assert call("reproduce", "first", "--seeds", 1, *words).code == 0
    assert verdicts(tmp_path / "results" / "first")[0] != "not judged"
    assert contents(tmp_path / "results" / "quick" / "first") == before
    assert small.items() < marks(tmp_path / "runs").items()


@pytest.mark.slow
@pytest.mark.usefixtures("declared")
def test_a_failed_run_leaves_its_log_and_the_exit_code_is_one(call: Call, tmp_path: Path) -> None:
    words = ("--runs", tmp_path / "runs", "--out", tmp_path / "results", "--workers", 2, "--seeds", 1)
    outcome = call("reproduce", "bad", "second", *words)
    assert outcome.code == 1
    assert outcome.err == "pchid: 1 run failed; call again to go on with what is left\n"
    printed = " ".join(outcome.out.split())
    assert "failed: broken, seed 0: pchid: n_bits must be at least 1" in printed
    log = next(path for path in (tmp_path / "runs").glob("*/log.txt") if not (path.parent / "summary.json").exists())
    assert "n_bits must be at least 1" in log.read_text()
    assert len(marks(tmp_path / "runs")) == 2
    assert verdicts(tmp_path / "results" / "second")[0] != "not judged"


# Stopped, and called again.

SWEEP = (
    *("sweep", "BitFlip-v0", "--methods", "hid", "pchid", "--seeds", "3", "--workers", "2", "--set"),
    *("env.n_bits=6", "episodes=240", "eval_every=60", "eval_episodes=8", "final_episodes=16", "batch_size=16"),
    *("policy.hidden_sizes=(16,16)", "checkpoint_seconds=0.5"),
)
RUNS = 6


def start(folder: Path) -> subprocess.Popen[str]:
    """The sweep as a person starts it, in a terminal of its own."""
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "pchid.cli", *SWEEP],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 600
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
def test_a_sweep_that_is_stopped_and_killed_loses_no_run_and_repeats_none(tmp_path: Path) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    output, _ = (process := start(straight)).communicate(timeout=900)
    assert process.returncode == 0, output

    runs = stopped / "runs" / "experiments"
    seen: dict[str, tuple[int, int]] = {}

    def under_way() -> set[str]:
        return {path.parents[1].name for path in runs.glob("*/checkpoint/0*")} - set(marks(runs))

    for least, stop, code in ((1, signal.SIGINT, 1), (3, signal.SIGKILL, -signal.SIGKILL)):
        process = start(stopped)
        wait_for(lambda least=least: len(marks(runs)) >= least and bool(under_way()), process)  # type: ignore[misc]
        if stop is signal.SIGINT:
            os.killpg(process.pid, stop)  # Ctrl-C reaches everybody at the terminal
        else:
            process.send_signal(stop)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == code, output
        if stop is signal.SIGINT:
            assert "stopped; `the same call` goes on" in output
            assert "Traceback" not in output
        found = marks(runs)
        assert len(found) < RUNS
        assert seen.items() <= found.items()
        seen = found

    output, _ = (process := start(stopped)).communicate(timeout=900)
    assert process.returncode == 0, output
    assert f"{RUNS} of {RUNS} done, 0 running, 0 failed" in " ".join(output.split())
    assert len(marks(runs)) == RUNS
    assert seen.items() <= marks(runs).items()
    assert contents(stopped / "results" / "sweep") == contents(straight / "results" / "sweep")


@pytest.mark.slow
def test_runs_end_with_an_engine_that_is_killed_while_they_start(tmp_path: Path) -> None:
    process = start(tmp_path)
    runs = tmp_path / "runs" / "experiments"
    wait_for(lambda: len(list(runs.glob("*/log.txt"))) == 2, process)
    process.kill()
    process.communicate(timeout=60)

    def left() -> list[str]:
        found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        return [line for line in found.splitlines() if "pchid.experiments.worker" in line and str(runs) in line]

    until = time.monotonic() + 60
    while left() and time.monotonic() < until:
        time.sleep(0.2)
    assert left() == []


# What a person sees meanwhile.


def jobs_in(folder: Path, count: int) -> list[Job]:
    return [Job(f"run {number}", (), folder / str(number)) for number in range(count)]


def finish(job: Job) -> None:
    job.directory.mkdir(parents=True)
    RunDirectory(job.directory).write_summary({"final_success": 0.5})


def test_the_display_counts_and_tells_the_time_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(progress, "time", clock)
    printed = io.StringIO()
    jobs = jobs_in(tmp_path, 8)
    finish(jobs[0])
    with RunsDisplay("figure", jobs, 2, Console(file=printed, width=300)) as display:
        assert display.left() == "time left not known yet"
        display.report(jobs[1], "running")
        display.report(jobs[2], "running")
        clock.now = 120.0
        finish(jobs[1])
        display.report(jobs[1], "done")
        assert "run 1: final success 0.500; 2 of 8 done, 1 running, 0 failed; about 6 min left" in printed.getvalue()
        display.report(jobs[2], "failed")
        assert "run 2: failed; 2 of 8 done, 0 running, 1 failed; about 5 min left" in printed.getvalue()
        display.report(jobs[3], "running")
        display.report(jobs[3], "again")
        assert "run 3: its worker died; starting again; 2 of 8 done, 1 running, 1 failed" in printed.getvalue()
        for job in jobs[3:]:
            finish(job)
            display.report(job, "running")
            display.report(job, "done")
    assert printed.getvalue().endswith("7 of 8 done, 0 running, 1 failed; nothing left\n")


def test_on_a_terminal_it_is_one_line_that_changes(tmp_path: Path) -> None:
    printed = io.StringIO()
    jobs = jobs_in(tmp_path, 3)
    with RunsDisplay("figure", jobs, 2, Console(file=printed, width=200, force_terminal=True)) as display:
        display.report(jobs[0], "running")
        finish(jobs[0])
        display.report(jobs[0], "done")
        display.report(jobs[1], "running")
        display.report(jobs[1], "failed")
        display.report(jobs[2], "running")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed.getvalue())
    assert "1 of 3 done, 1 running, 1 failed" in text
    assert "less than a minute left" in text
    assert "2/3" in text


LONG = "sac+her+pchid BitFlip-v0 learning_rate=0.0001 policy.hidden_sizes=[256, 256]"


def test_what_is_no_terminal_gets_the_table_uncut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(results_of({LONG: constant(0.5, 0.5)}, tmp_path), [], make_console())
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "sac" in line]
    assert LONG in row
    assert "0.500 [0.500, 0.500]" in row


def test_a_narrow_terminal_cuts_nothing_either(tmp_path: Path) -> None:
    printed = io.StringIO()
    show(results_of({LONG: constant(0.5, 0.5)}, tmp_path), [], Console(file=printed, width=60, force_terminal=True))
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed.getvalue())
    first_column = "".join(line[:7] for line in text.splitlines())
    assert "".join(LONG.split()) in "".join(first_column.split())


def test_results_keep_finished_runs_which_need_not_run_again_elsewhere(tmp_path: Path) -> None:
    """The folder of runs is lost; what the results keep is taken up, and only what they do not keep runs again."""
    kept = experiment("kept", HID, PCHID, policies=("one step",))
    carry_out(tmp_path, kept)
    before = (tmp_path / "results/kept/curves.csv").read_bytes()
    shutil.rmtree(tmp_path / "runs")
    _, done, _ = carry_out(tmp_path, kept, resume=True)
    assert sorted(done) == ["more steps, seed 0", "more steps, seed 1"]
    assert (tmp_path / "results/kept/curves.csv").read_bytes() == before
    shutil.rmtree(tmp_path / "runs")
    assert len(carry_out(tmp_path, kept)[1]) == 4  # unless it is asked for, everything is reproduced


def test_an_experiment_that_lasts_keeps_every_run_but_only_the_policies_that_are_wanted(tmp_path: Path) -> None:
    lasting = experiment("long", HID, PCHID, policies=("one step",), lasting=True)
    carry_out(tmp_path, lasting)
    before = (tmp_path / "results/long/runs.csv").read_bytes()
    folder = tmp_path / "results/long"
    assert sorted(path.name for path in folder.glob("policies/*/policy/*")) == ["agent.safetensors"] * 2
    assert sorted(path.name for path in folder.glob("figures/*")) == ["more steps-0", "more steps-1"]
    assert [path for path in folder.glob("figures/**/*") if path.suffix == ".safetensors"] == []
    shutil.rmtree(tmp_path / "runs")
    assert carry_out(tmp_path, lasting, resume=True)[1] == []
    assert (folder / "runs.csv").read_bytes() == before


def test_a_kept_run_of_other_settings_is_not_taken_up(tmp_path: Path) -> None:
    carry_out(tmp_path, experiment("kept", HID, policies=("one step",)))
    shutil.rmtree(tmp_path / "runs")
    other = Row("one step", "BitFlip-v0", "hid", {**SMALL, "learning_rate": 0.5})
    assert len(carry_out(tmp_path, experiment("kept", other, policies=("one step",)), resume=True)[1]) == 2


def test_what_is_finished_so_far_can_be_written(tmp_path: Path) -> None:
    whole = experiment("some", HID, PCHID)
    carry_out(tmp_path, experiment("some", HID))
    _, done, printed = carry_out(tmp_path, whole, so_far=True)
    assert done == []
    assert "one step" in printed and "more steps" not in printed
    assert json.loads((tmp_path / "results/some/verdict.json").read_text())["missing_runs"] == 2
