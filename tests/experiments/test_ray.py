"""The Ray engine: the same results as the local one, also when its workers, or itself, are killed."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_engines import (
    HERE,
    MISCHIEF,
    Assassin,
    Reports,
    go_on,
    holder,
    job_on,
    jobs_in,
    results_of,
    starts,
    stop_in_the_middle,
)
from test_resume import result

from pchid.errors import InputError, RunError
from pchid.experiments import ray_engine
from pchid.experiments.engines import LocalEngine, make_engine
from pchid.experiments.ray_engine import RayEngine

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def own_token() -> Iterator[None]:
    """Otherwise Ray keeps one in the home folder, and two processes that test would make one each at the same time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN", uuid.uuid4().hex)
        yield


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of the experiment as the local engine makes them."""
    folder = tmp_path_factory.mktemp("undisturbed")
    LocalEngine(2).run(jobs_in(folder), Reports())
    return folder


@pytest.mark.slow
def test_with_a_worker_killed_the_results_are_those_of_the_local_engine(tmp_path: Path, undisturbed: Path) -> None:
    jobs, reports = jobs_in(tmp_path / "runs"), Reports()
    assassin = Assassin(jobs[1].directory)
    RayEngine(2, None).run(jobs, reports)
    assert assassin.killed
    assert not ray.is_initialized()
    assert [reports.about(job) for job in jobs] == [["running", "done"]] * 4
    assert [starts(job) for job in jobs] == [1, 2, 1, 1]
    assert [holder(job.directory) for job in jobs] == [None] * 4
    for job, other in zip(jobs, jobs_in(undisturbed), strict=True):
        assert result(job.directory) == result(other.directory)
    assert results_of(tmp_path / "runs", tmp_path / "out") == results_of(undisturbed, tmp_path / "expected")


@pytest.mark.slow
def test_runs_that_fail_are_reported_with_the_reason_and_the_others_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mischief.py").write_text(MISCHIEF)
    for folder in (tmp_path, HERE.parent):  # known to this process alone, not through PYTHONPATH
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(ray_engine, "ATTEMPTS", 2)
    killed, raising, good = (
        job_on(f"mischief:{name}-v0", tmp_path / "runs" / name) for name in ("Killed", "Raising", "Good")
    )
    wrong = job_on("BitFlip-v0", tmp_path / "runs" / "wrong", "--no-such-option", "1")
    jobs, reports = [killed, raising, wrong, good], Reports()
    RayEngine(2, None).run(jobs, reports)
    assert [reports.about(job) for job in jobs] == [["running", "failed"]] * 3 + [["running", "done"]]
    in_flight = itertools.accumulate(1 if state == "running" else -1 for _, state in reports)
    assert max(in_flight) == 2
    assert killed.log.read_text() == "pchid: the run was started 2 times, and each time its worker died\n"
    assert "Traceback" in raising.log.read_text()
    assert raising.log.read_text().endswith("ArithmeticError: out of luck\n")
    assert wrong.log.read_text().count("\n") == 1
    assert "no-such-option" in wrong.log.read_text()
    assert good.log.read_text() == ""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_an_engine_that_is_stopped_takes_its_runs_along_and_they_go_on_later(
    tmp_path: Path, undisturbed: Path, how: signal.Signals
) -> None:
    stop_in_the_middle(tmp_path, "ray", how)
    go_on(tmp_path)
    for job, other in zip(jobs_in(tmp_path, 1), jobs_in(undisturbed, 1), strict=True):
        assert result(job.directory) == result(other.directory)


@pytest.mark.slow
def test_a_cluster_that_is_joined_stays(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    memory = ray_engine.OBJECT_STORE_BYTES
    cluster = Cluster(True, head_node_args={"num_cpus": 1, "object_store_memory": memory, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1, object_store_memory=memory)
        cluster.wait_for_nodes()
        engine, reports = RayEngine(None, cluster.address), Reports()
        assert engine.workers == 2
        job = job_on("BitFlip-v0", tmp_path / "run")
        engine.run([job], reports)
        assert reports.about(job) == ["running", "done"]
        assert not ray.is_initialized()
        with ray_engine.joined(cluster.address, None):
            assert sum(node["Alive"] for node in ray.nodes()) == 2
    finally:
        cluster.shutdown()


@pytest.mark.slow
def test_nothing_runs_if_a_machine_does_not_see_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def elsewhere(folder: Path) -> Iterator[Path]:
        yield folder / "on another disk"

    monkeypatch.setattr(ray_engine, "marker_in", elsewhere)
    job, reports = job_on("BitFlip-v0", tmp_path / "runs" / "run"), Reports()
    with pytest.raises(RunError, match=rf"does not see {tmp_path}/runs: choose --runs on storage that all machines"):
        RayEngine(1, None).run([job], reports)
    assert reports == []
    assert not job.directory.exists()
    assert not ray.is_initialized()


def test_the_mark_that_machines_look_for_is_taken_away(tmp_path: Path) -> None:
    with ray_engine.marker_in(tmp_path) as marker:
        assert list(tmp_path.iterdir()) == [marker]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
        ("ray://127.0.0.1:1", "no Ray cluster answers at ray://127.0.0.1:1"),
        ("127.0.0.1:99999", "no Ray cluster answers"),
        ("somewhere", "'somewhere' is no address of a Ray cluster"),
        ("http://127.0.0.1:1", "is no address of a Ray cluster"),
    ],
)
def test_a_wrong_address_is_refused_at_once(address: str, complaint: str) -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match=complaint) as refused:
        RayEngine(None, address)
    assert "\n" not in str(refused.value)
    assert time.monotonic() - began < 10


def test_workers_are_one_at_least_and_by_default_as_many_as_cores() -> None:
    assert RayEngine(None, None).workers == len(os.sched_getaffinity(0))
    with pytest.raises(InputError, match="at least 1"):
        make_engine("ray", 0, None)


def test_workers_look_for_modules_where_this_process_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(HERE)
    folders = ray_engine.import_path().split(os.pathsep)
    assert folders[0] == str(HERE)
    assert folders[-2:] == [str(tmp_path), "${PYTHONPATH}"]
    assert not [folder for folder in folders if "site-packages" in folder or Path(folder, "argparse.py").exists()]
