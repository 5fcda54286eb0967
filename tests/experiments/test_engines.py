"""Engines: what becomes of jobs that end well, fail or are killed, and of an engine that is killed itself."""

from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from test_resume import newest, result

from pchid.errors import InputError
from pchid.experiments import engines
from pchid.experiments.claims import Claim, above
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.engines import Job, LocalEngine, State, make_engine
from pchid.experiments.results import read_results, write_results

HERE = Path(__file__).parent
SMALL = {
    "env.n_bits": 5,
    "updates_per_episode": 4,
    "policy.hidden_sizes": [16],
    "batch_size": 16,
    "eval_episodes": 8,
    "final_episodes": 16,
    "checkpoint_seconds": 0.1,
}
EXPERIMENT = Experiment(
    "bits",
    "A few episodes, or some seconds of them.",
    (
        Row("short", "BitFlip-v0", "hid", {**SMALL, "episodes": 10}),
        Row("long", "BitFlip-v0", "hid", {**SMALL, "episodes": 2000, "eval_every": 500}),
    ),
    seeds=2,
    minutes=1,
    claims=(Claim("More episodes help.", above("long", "short")),),
)
MISCHIEF = """
import os, signal
import gymnasium as gym
from user_envs import Line

class Killed(Line):
    def __init__(self):
        os.kill(os.getpid(), signal.SIGKILL)

class Raising(Line):
    def __init__(self):
        raise ArithmeticError("out of luck")

gym.register("Good-v0", entry_point=Line, max_episode_steps=6)
gym.register("Killed-v0", entry_point=Killed, max_episode_steps=6)
gym.register("Raising-v0", entry_point=Raising, max_episode_steps=6)
"""
"""A user's module of environments; one ends its process, one cannot be made."""


class Reports(list[tuple[str, State]]):
    """What an engine said."""

    def __call__(self, job: Job, state: State) -> None:
        self.append((job.label, state))

    def about(self, job: Job) -> list[State]:
        return [state for label, state in self if label == job.label]


def jobs_in(folder: Path, seeds: int | None = None) -> list[Job]:
    """short 0, long 0, short 1, long 1."""
    runs = EXPERIMENT.runs(seeds)
    return [Job(f"{run.label} {run.seed}", tuple(run.words()), run.directory(folder)) for run in runs]


def job_on(env: str, directory: Path, *words: str) -> Job:
    quick = ("--episodes", "4", "--eval-episodes", "2", "--final-episodes", "2", "--policy.hidden_sizes", "[16]")
    return Job(env, (env, *quick, *words), directory)


def without(text: str, column: str) -> list[list[str]]:
    rows = list(csv.reader(io.StringIO(text)))
    dropped = rows[0].index(column)
    return [row[:dropped] + row[dropped + 1 :] for row in rows]


def results_of(folder: Path, out: Path) -> dict[str, object]:
    """All that is written about the experiment, but for how long it took."""
    results = read_results(EXPERIMENT, EXPERIMENT.runs(), folder, out)
    assert not results.missing
    write_results(results)
    table = (out / "table.md").read_text()
    files = {path.name: path.read_bytes() for path in (out / "curves.csv", out / "verdict.json")}
    metrics = [without((job.directory / "metrics.csv").read_text(), "wall_seconds") for job in jobs_in(folder)]
    return {
        **files,
        "runs.csv": without((out / "runs.csv").read_text(), "wall_seconds"),
        "table.md": re.sub(r"[^|\n]*\|$", "", table, flags=re.MULTILINE),
        "metrics": metrics,
    }


def holder(directory: Path) -> int | None:
    """The process that trains there: the one that has the lock open."""
    lock = directory / ".lock"
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.readlink() == lock:
                return int(link.parts[2])
        except OSError:  # the process has ended meanwhile, or is somebody else's
            continue
    return None


def wait_for(happened: Callable[[], object], seconds: float = 600.0) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.02)


class Assassin(threading.Thread):
    """Kills the process that trains in a directory, once, in the middle of its run."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self.directory, self.killed = directory, 0
        self.start()

    def run(self) -> None:
        wait_for(lambda: newest(self.directory) >= 3)
        self.killed = holder(self.directory) or 0
        os.kill(self.killed, signal.SIGKILL)


def starts(job: Job) -> int:
    """How often the run was begun or gone on with: each time leaves a file of events."""
    return len(list((job.directory / "tensorboard").iterdir()))


def start_engine(folder: Path, maker: str) -> subprocess.Popen[bytes]:
    """An engine in a process of its own, with the two jobs of one seed."""
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from pathlib import Path; import test_engines; from pchid.experiments.engines import make_engine\n"
        f"make_engine({maker!r}, 2, None).run(test_engines.jobs_in(Path({str(folder)!r}), 1), test_engines.Reports())"
    )
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    return subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path})


def stop_in_the_middle(folder: Path, maker: str, how: signal.Signals) -> None:
    """Stop an engine when the short run is finished and the long one in its midst; its processes end with it."""
    short, long = jobs_in(folder, 1)
    with start_engine(folder, maker) as process:
        wait_for(lambda: (short.finished and newest(long.directory) >= 3) or process.poll() is not None)
        process.send_signal(how)
        assert process.wait(60) != 0
    wait_for(lambda: holder(long.directory) is None, seconds=20)
    assert short.finished
    assert not long.finished


def go_on(folder: Path) -> None:
    """The long run is finished from where it was, and the short one left alone."""
    short, long = jobs_in(folder, 1)
    before = (short.directory / "summary.json").stat()
    reports = Reports()
    LocalEngine(2).run([short, long], reports)
    after = (short.directory / "summary.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert [reports.about(job) for job in (short, long)] == [["running", "done"]] * 2
    assert [starts(job) for job in (short, long)] == [1, 2]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of the experiment, to compare with."""
    folder = tmp_path_factory.mktemp("undisturbed")
    LocalEngine(2).run(jobs_in(folder), Reports())
    return folder


def test_a_run_that_fails_is_reported_and_the_others_finish(tmp_path: Path) -> None:
    good, bad = (
        job_on("BitFlip-v0", tmp_path / "good"),
        job_on("GridWorld-v0", tmp_path / "bad", "--no-such-option", "1"),
    )
    reports = Reports()
    LocalEngine(1).run([bad, good], reports)
    assert reports == [(bad.label, "running"), (bad.label, "failed"), (good.label, "running"), (good.label, "done")]
    assert good.finished
    assert good.log.read_text() == ""
    assert "no-such-option" in bad.log.read_text()


@pytest.mark.slow
def test_a_run_whose_worker_dies_each_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mischief.py").write_text(MISCHIEF)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(HERE.parent)]))
    monkeypatch.setattr(engines, "ATTEMPTS", 2)
    killed, raising, good = (
        job_on(f"mischief:{name}-v0", tmp_path / "runs" / name) for name in ("Killed", "Raising", "Good")
    )
    reports = Reports()
    LocalEngine(2).run([killed, raising, good], reports)
    assert reports.about(killed) == ["running", "again", "failed"]
    assert reports.about(raising) == ["running", "failed"]
    assert reports.about(good) == ["running", "done"]
    assert "ArithmeticError: out of luck" in raising.log.read_text()


@pytest.mark.slow
def test_a_run_whose_worker_is_killed_goes_on_as_if_it_had_not_been(tmp_path: Path, undisturbed: Path) -> None:
    jobs, reports = jobs_in(tmp_path / "runs"), Reports()
    assassin = Assassin(jobs[1].directory)
    LocalEngine(2).run(jobs, reports)
    assert assassin.killed
    assert [reports.about(job)[1:] for job in jobs] == [["done"], ["again", "done"], ["done"], ["done"]]
    assert [starts(job) for job in jobs] == [1, 2, 1, 1]
    for job, other in zip(jobs, jobs_in(undisturbed), strict=True):
        assert result(job.directory) == result(other.directory)
    assert results_of(tmp_path / "runs", tmp_path / "out") == results_of(undisturbed, tmp_path / "expected")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_an_engine_that_is_stopped_takes_its_runs_along_and_goes_on_later(
    tmp_path: Path, undisturbed: Path, how: signal.Signals
) -> None:
    stop_in_the_middle(tmp_path, "local", how)
    go_on(tmp_path)
    for job, other in zip(jobs_in(tmp_path, 1), jobs_in(undisturbed, 1), strict=True):
        assert result(job.directory) == result(other.directory)


def test_without_ray_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with pytest.raises(InputError, match=r"^[^\n]*pip install 'pchid\[ray\]'$"):
        make_engine("ray", 2, None)
