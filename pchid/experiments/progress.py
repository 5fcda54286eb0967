"""What a person sees while an experiment runs: runs done, running, failed, and the time left.

In: what the engine reports about its jobs. Out: a live line on a terminal, elsewhere a line for each run that ends.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pchid.experiments.engines import Job, State
from pchid.runs import RunDirectory


class RunsDisplay:
    """Keeps count of an experiment's runs; engines report from several threads."""

    def __init__(self, name: str, jobs: Sequence[Job], workers: int, console: Console) -> None:
        self.name, self.jobs, self.workers, self.console = name, jobs, workers, console
        self.states: dict[Job, State] = {job: "done" for job in jobs if job.finished}
        self._started: dict[Job, float] = {}
        self._seconds: list[float] = []
        self._lock = threading.Lock()
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(name, total=len(jobs), counts="", left="")

    def __enter__(self) -> RunsDisplay:
        self._progress.start()
        self._update()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def report(self, job: Job, state: State) -> None:
        """Take in what an engine says about a job."""
        with self._lock:
            self.states[job] = state
            now = time.monotonic()
            if state in ("running", "again"):
                self._started[job] = now
            else:
                self._seconds.append(now - self._started[job])
            self._update()
            if not self.console.is_terminal and state != "running":
                counts = self._counts()
                line = f"{self.name}: {_outcome(job, state)}; {counts}; {self.left()}"
                self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def left(self) -> str:
        """The time left, from how long runs took so far, in words."""
        remaining = sum(self.states.get(job) not in ("done", "failed") for job in self.jobs)
        if not remaining:
            return "nothing left"
        if not self._seconds:
            return "time left not known yet"
        minutes = remaining * sum(self._seconds) / len(self._seconds) / self.workers / 60
        return f"about {minutes:.0f} min left" if minutes >= 1 else "less than a minute left"

    def _counts(self) -> str:
        found = Counter("running" if state == "again" else state for state in self.states.values())
        return f"{found['done']} of {len(self.jobs)} done, {found['running']} running, {found['failed']} failed"

    def _update(self) -> None:
        ended = sum(state in ("done", "failed") for state in self.states.values())
        self._progress.update(self._task, completed=ended, counts=self._counts(), left=self.left())


def _outcome(job: Job, state: State) -> str:
    if state == "done":
        return f"{job.label}: final success {RunDirectory(job.directory).read_summary()['final_success']:.3f}"
    return f"{job.label}: " + ("its worker died; starting again" if state == "again" else "failed")
