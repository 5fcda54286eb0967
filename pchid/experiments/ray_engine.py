"""Runs on Ray: a cluster that is there already, or one on this machine that is started for the purpose.

In: jobs whose directories lie where every machine of the cluster sees them. Out: finished run directories, the same as
those of the LocalEngine. Ray starts a run again when its worker dies, and the run goes on from its last checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pchid.errors import InputError, RunError
from pchid.experiments.engines import ATTEMPTS, Job, Report
from pchid.experiments.worker import train_in
from pchid.runs import RunDirectory

ANSWER_SECONDS = 5
"""How long the address of a cluster may take to answer."""
CHECK_SECONDS = 180
"""How long a machine of the cluster may take to start a worker and import pchid."""
ARRIVAL_SECONDS = 90
"""How long network storage may take to show a file that another machine wrote: NFS remembers for a minute."""
OBJECT_STORE_BYTES = 80 * 2**20
"""Ray's least; runs exchange files, not objects."""


class RayEngine:
    """Each run is a task of one CPU, in a process of its own with one thread."""

    def __init__(self, workers: int | None, address: str | None) -> None:
        """`address` is auto, HOST:PORT or ray://HOST:PORT; without one, Ray is started on this machine."""
        self.address = address
        import_ray()
        if workers is None and address is not None:
            with joined(address, None) as ray:
                workers = max(1, int(ray.cluster_resources().get("CPU", 0)))
        self.workers = workers or len(os.sched_getaffinity(0))

    def run(self, jobs: Sequence[Job], report: Report) -> None:
        """Return when each job is done or has failed; an interrupt ends the workers first."""
        if not jobs:
            return
        with joined(self.address, self.workers) as ray:
            environment = {"env_vars": {"OMP_NUM_THREADS": "1", "PYTHONPATH": import_path()}}
            for folder in dict.fromkeys(job.directory.absolute().parent for job in jobs):
                check_shared(ray, folder, environment)
            train = ray.remote(num_cpus=1, max_calls=1, max_retries=ATTEMPTS - 1, runtime_env=environment)(_train)
            waiting, running = deque(jobs), dict[Any, Job]()
            try:
                while waiting or running:
                    while waiting and len(running) < self.workers:
                        job = waiting.popleft()
                        running[train.remote(str(job.directory.absolute()), list(job.words))] = job
                        report(job, "running")
                    (ended,), _ = ray.wait(list(running), num_returns=1)
                    job = running.pop(ended)
                    report(job, "done" if _is_finished(ray, ended, job) else "failed")
            except BaseException:
                for task in running:
                    ray.cancel(task, force=True)
                raise


def import_ray() -> Any:
    """Ray, which only those who use it need to install; it sends nothing home."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise InputError("--engine ray needs Ray: pip install 'pchid[ray]'") from None
    return ray


@contextlib.contextmanager
def joined(address: str | None, workers: int | None) -> Iterator[Any]:
    """Ray, connected; at the end it is left as it was found."""
    ray = import_ray()
    if ray.is_initialized():  # by the caller, to whom it belongs
        yield ray
        return
    settings: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        # "local" rather than nothing: otherwise Ray would join any cluster that it finds.
        settings |= {"address": "local", "num_cpus": workers, "include_dashboard": False}
        settings |= {"object_store_memory": OBJECT_STORE_BYTES}
    else:
        check_answers(address)
        settings |= {"address": address}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        try:
            ray.init(**settings)
        except Exception as error:
            if address is None:
                raise RunError(f"Ray does not start: {_last_line(error)}") from None
            hint = "" if address == "auto" else "; if it asks for a token, set RAY_AUTH_MODE=token here too"
            raise RunError(f"cannot join the Ray cluster at {address}: {_last_line(error)}{hint}") from None
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray's own would abort this process with a trace
        yield ray
    finally:
        ray.shutdown()


def check_answers(address: str) -> None:
    """Complain at once about an address where nobody is; Ray would try for minutes."""
    place = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    if place == "auto":
        return  # Ray looks on this machine
    host, _, port = place.removeprefix("ray://").rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise InputError(f"'{place}' is no address of a Ray cluster: auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray cluster answers at {place} ({error}); is it running, and the port right?") from None


def check_shared(ray: Any, folder: Path, environment: dict[str, Any]) -> None:
    """Complain if a machine of the cluster does not see the folder or cannot import pchid."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_calls=1, runtime_env=environment)(_sees)
    folder.mkdir(parents=True, exist_ok=True)
    with marker_in(folder) as marker:
        answers = []
        for node in ray.nodes():
            if node["Alive"] and node["Resources"].get("CPU"):
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                task = look.options(scheduling_strategy=there).remote(str(marker))
                answers.append((node["NodeManagerHostname"], task))
        for host, task in answers:
            try:
                seen = ray.get(task, timeout=CHECK_SECONDS)
            except ray.exceptions.RayError as error:
                raise RunError(f"no run can start on {host}: {_last_line(error)}") from None
            if not seen:
                raise RunError(f"{host} does not see {folder}: choose --runs on storage that all machines share")


@contextlib.contextmanager
def marker_in(folder: Path) -> Iterator[Path]:
    """A file that nothing else can be mistaken for, as long as the block lasts."""
    with tempfile.NamedTemporaryFile(prefix=".shared-", dir=folder) as marker:
        yield Path(marker.name)


def import_path() -> str:
    """Where this process finds modules, besides Python's own and installed ones; a worker looks there first.

    So an environment named module:id works there as it does here, from the current folder too.
    """
    own = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
    folders = dict.fromkeys(Path(entry).absolute() for entry in [*sys.path, ""])
    mine = [
        str(folder)
        for folder in folders
        if folder.is_dir()
        and not str(folder).startswith(own)
        and not {"site-packages", "dist-packages"} & {*folder.parts}
    ]
    return os.pathsep.join([*mine, "${PYTHONPATH}"])  # Ray fills in what the machine itself has


def _is_finished(ray: Any, task: Any, job: Job) -> bool:
    """Whether a task that has ended left a finished run here; if not, the log says why."""
    try:
        if not ray.get(task):
            return False
    except ray.exceptions.WorkerCrashedError:
        _note(job, f"the run was started {ATTEMPTS} times, and each time its worker died")
        return False
    except ray.exceptions.RayError as error:
        _note(job, _last_line(error))
        return False
    until = time.monotonic() + ARRIVAL_SECONDS
    while not job.finished:
        if time.monotonic() > until:
            _note(job, "the run is finished, but not here; are the runs on storage that all machines share?")
            return False
        time.sleep(0.5)
    return True


def _note(job: Job, complaint: str) -> None:
    job.directory.mkdir(parents=True, exist_ok=True)
    with job.log.open("a") as log:
        log.write(f"pchid: {complaint}\n")


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1].rstrip(".") if lines else type(error).__name__


# What follows happens in the workers.


def _sees(marker: str) -> bool:
    return Path(marker).exists()


def _train(directory: str, words: list[str]) -> bool:
    """The run, in this process, so that it ends when Ray ends the worker; returns whether it is finished."""
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    with (path / "log.txt").open("ab") as log:
        # Also what libraries print goes to the log; the process ends with the run, so nothing needs to be put back.
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
    try:
        train_in(path, words)
    except (Exception, SystemExit):
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return RunDirectory(path).finished
