"""Where runs happen: processes of this machine, or the workers of a Ray cluster.

In: jobs, each a call of `pchid train` with its directory. Out: finished run directories; what happens on the way is
reported job by job. A worker that dies is retried from the run's last checkpoint; a run that fails leaves its log and
lets the others finish.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from pchid.errors import at_least
from pchid.experiments.worker import ENGINE
from pchid.runs import RunDirectory

ATTEMPTS = 4
"""How often a run is started if its worker is killed each time."""
State = Literal["running", "again", "done", "failed"]


@dataclass(frozen=True)
class Job:
    """A run and where it happens."""

    label: str
    words: tuple[str, ...]
    """What follows `pchid train`, without --out and --resume."""
    directory: Path

    @property
    def log(self) -> Path:
        """What the run printed."""
        return self.directory / "log.txt"

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return RunDirectory(self.directory).finished


Report = Callable[[Job, State], None]


class Engine(Protocol):
    """Runs jobs, several at a time."""

    workers: int

    def run(self, jobs: Sequence[Job], report: Report) -> None:
        """Return when each job is done or has failed."""


class LocalEngine:
    """Each run in a process of its own, with one thread."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._stopping = threading.Event()

    def run(self, jobs: Sequence[Job], report: Report) -> None:
        """Return when each job is done or has failed; an interrupt stops the processes first."""
        with ThreadPoolExecutor(self.workers) as pool:
            futures = [pool.submit(self._work, job, report) for job in jobs]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self._stopping.set()
                for process in tuple(self._processes):
                    process.terminate()
                raise

    def _work(self, job: Job, report: Report) -> None:
        for attempt in range(ATTEMPTS):
            if self._stopping.is_set():
                return
            report(job, "again" if attempt else "running")
            code = self._attempt(job)
            if code >= 0:  # otherwise a signal ended it
                break
        if not self._stopping.is_set():
            report(job, "done" if job.finished else "failed")

    def _attempt(self, job: Job) -> int:
        job.directory.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "pchid.experiments.worker", str(job.directory), *job.words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", ENGINE: str(os.getpid())}
        with job.log.open("ab") as log:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
            self._processes.add(process)
            try:
                return process.wait()
            finally:
                self._processes.discard(process)


def make_engine(name: str, workers: int | None, address: str | None) -> Engine:
    """The engine of the given name, with as many workers as cores if nobody says."""
    at_least(1, **{"--workers": workers})
    if name == "ray":
        from pchid.experiments.ray_engine import RayEngine

        return RayEngine(workers, address)
    return LocalEngine(workers or len(os.sched_getaffinity(0)))
