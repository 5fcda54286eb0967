"""A run directory: config, metrics, checkpoints, policy and summary, whole at every moment.

In: the progress of an algorithm, seen by a Stable-Baselines3 callback. Out: the files that `pchid evaluate`,
`pchid plot` and other people's scripts read. Each is replaced atomically, so a kill or a full disk leaves the last
good state.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback

from pchid.checkpoint import load_checkpoint, numbers, save_checkpoint, write_atomically
from pchid.config import wrong_setting
from pchid.errors import InputError, RunError
from pchid.evaluation import Measures

Row = dict[str, float | int | None]
SNAPSHOT = "steps-*.safetensors"
WRITTEN = (
    *("config.json", "metrics.csv", "policy/agent.safetensors", f"policy/{SNAPSHOT}"),
    *("tensorboard/events.out.tfevents.*", ".lock"),
)
"""What a run has written before its first checkpoint; the lock comes last, because it keeps others out."""


class RunDirectory:
    """The files of one run; only one process at a time may train in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoint"
        self.metrics = path / "metrics.csv"
        self.policy = path / "policy" / "agent.safetensors"

    @property
    def exists(self) -> bool:
        """Whether a run was started here, or a policy fitted to a log."""
        return any((self.path / name).exists() for name in ("config.json", "fit.json"))

    @property
    def finished(self) -> bool:
        """Whether the run has used up its budget."""
        return (self.path / "summary.json").exists()

    @contextlib.contextmanager
    def lock(self) -> Iterator[bool]:
        """Keep others from training here until the block or the process ends; says whether the directory is new."""
        new = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(f"someone is training in {self.path} already; wait or choose another --out") from None
            yield new

    def snapshot(self, steps: int) -> Path:
        """Where the policy after so many environment steps is, if it was kept."""
        return self.policy.parent / SNAPSHOT.replace("*", f"{steps:09d}")

    def withdraw(self) -> None:
        """Remove what a run wrote that has no checkpoint yet; other files stay, and the folders that hold them."""
        for file in [file for pattern in WRITTEN for file in self.path.glob(pattern)]:
            file.unlink()
        for folder in (self.policy.parent, self.checkpoints, self.path / "tensorboard", self.path):
            with contextlib.suppress(OSError):  # it is not there, or not empty
                folder.rmdir()

    def read_config(self) -> dict[str, Any]:
        """The settings of the run."""
        config: dict[str, Any] = self._read_json("config.json")
        wrong = wrong_setting(config)
        if wrong:
            raise InputError(f"{self.path / 'config.json'} is not the config of a run: {wrong}")
        return config

    def read_acting(self) -> dict[str, Any]:
        """What its policy needs to act again, of a run or of `pchid fit`: env, env_options, threads and device."""
        if (self.path / "config.json").exists() or not (self.path / "fit.json").exists():
            return self.read_config()
        found: dict[str, Any] = self._read_json("fit.json")
        kinds = {"env": (str, type(None)), "env_options": dict, "threads": int, "device": str}
        for name, kind in kinds.items():
            if not isinstance(found, dict) or not isinstance(found.get(name), kind):  # type: ignore[arg-type]
                raise InputError(f"{self.path / 'fit.json'} is not what pchid fit wrote: '{name}' is missing or wrong")
        return found

    def write_fit(self, found: dict[str, Any]) -> None:
        """Write fit.json, the sign of a policy that was fitted to a log."""
        self._write_json("fit.json", found)

    def write_config(self, config: dict[str, Any]) -> None:
        """Settle what this run is."""
        self._write_json("config.json", config)

    def read_metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv; an empty cell is NaN."""
        try:
            text = self.metrics.read_text()
        except OSError as error:
            raise InputError(f"{self.path} holds no metrics.csv ({error.strerror}); is it a run directory?") from None
        rows = csv.DictReader(io.StringIO(text))
        return [{name: float(cell) if cell else math.nan for name, cell in row.items()} for row in rows]

    def write_metrics(self, rows: list[Row]) -> None:
        """Write all rows; an unknown value is an empty cell."""
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: "" if value is None else repr(value) for name, value in row.items()})
        write_atomically(self.metrics, text.getvalue().encode())

    def forget_summary(self) -> None:
        """The run is not finished any more."""
        (self.path / "summary.json").unlink(missing_ok=True)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json, the sign of a finished run."""
        self._write_json("summary.json", summary)

    def read_summary(self) -> dict[str, Any]:
        """The last row and what the run was."""
        summary: dict[str, Any] = self._read_json("summary.json")
        return summary

    def save_checkpoint(self, tree: dict[str, Any]) -> None:
        """Write the next checkpoint."""
        found = numbers(self.checkpoints)
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        save_checkpoint(self.checkpoints, found[-1] + 1 if found else 1, tree)

    def load_checkpoint(self, number: int | None = None) -> dict[str, Any] | None:
        """The newest checkpoint (or the given one); None if the run was stopped before its first."""
        if number is None and not numbers(self.checkpoints):
            return None
        return load_checkpoint(self.checkpoints, number)

    def _write_json(self, name: str, value: dict[str, Any]) -> None:
        write_atomically(self.path / name, (json.dumps(value, indent=2) + "\n").encode())

    def _read_json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text())
        except OSError as error:
            raise InputError(f"{self.path} is not a finished run: {name}: {error.strerror}") from None
        except ValueError:
            raise InputError(f"{self.path / name} is not valid JSON; was it edited?") from None


def versions() -> dict[str, str]:
    """What exactness depends on: versions, machine type and thread count."""
    packages = ("pchid", "torch", "numpy", "gymnasium", "stable-baselines3", "mujoco", "gymnasium-robotics")
    found = {name: version(name) for name in packages}
    return {**found, "python": platform.python_version(), "machine": platform.machine()}


@dataclass(frozen=True)
class Schedule:
    """When a run evaluates and writes checkpoints."""

    unit: str
    """"episodes" or "steps": what the budget counts."""
    budget: int
    eval_every: int
    checkpoint_seconds: float
    snapshots: bool = False
    """Whether the policy of every evaluation is kept."""


class RunCallback(BaseCallback):
    """Evaluates an algorithm between its rounds, keeps the rows, and writes them and the checkpoints."""

    def __init__(
        self,
        directory: RunDirectory,
        schedule: Schedule,
        evaluate: Callable[[bool], Measures],
        show: Callable[[Any, Row | None], None],
        agent: Any,
    ) -> None:
        """`evaluate(last)` measures the policy of `agent`, more thoroughly the last time; `show` displays progress."""
        super().__init__()
        self.agent = agent
        self.directory, self.schedule, self.evaluate, self.show = directory, schedule, evaluate, show
        self.rows: list[Row] = []
        self.next_evaluation = 0
        self.finished_budget = 0
        self._elapsed = 0.0
        self._started = self._written = time.monotonic()

    def progress(self) -> int:
        """How much of the budget is used."""
        done: int = self.agent.episodes if self.schedule.unit == "episodes" else self.agent.num_timesteps
        return done

    def seconds(self) -> float:
        """Wall-clock time of the run, over all its resumptions."""
        return self._elapsed + time.monotonic() - self._started

    def _on_rollout_start(self) -> None:
        # Between two rounds everything is settled: the policy is updated and nothing is half collected but what the
        # recorder holds. Only here can a checkpoint be exact.
        if self.progress() >= self.next_evaluation:
            self._evaluate(last=False)
            every = self.schedule.eval_every
            self.next_evaluation = (self.progress() // every + 1) * every
            self._write_checkpoint()
        elif time.monotonic() - self._written >= self.schedule.checkpoint_seconds:
            self._write_checkpoint()
        self.show(self.agent, None)

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self.finished_budget == self.schedule.budget:
            return  # stopped after its last evaluation: what is left is the summary
        if self.rows and self.rows[-1]["env_steps"] == self.agent.num_timesteps:
            self.rows.pop()  # the last evaluation is the thorough one
        self._evaluate(last=True)
        self.finished_budget = self.schedule.budget
        self._write_checkpoint()

    def _evaluate(self, last: bool) -> None:
        agent = self.agent
        measures = self.evaluate(last)
        row: dict[str, Any] = {
            "episodes": agent.episodes,
            "env_steps": agent.num_timesteps,
            "test_steps": agent.test_steps,
            "wall_seconds": round(self.seconds(), 3),
            **asdict(measures),
            **agent.diagnostics(),
        }
        row = {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
        self.rows.append(row)
        self.directory.write_metrics(self.rows)
        agent.save(self.directory.policy)
        if self.schedule.snapshots:
            agent.save(self.directory.snapshot(agent.num_timesteps))
        for name, value in row.items():
            if value is not None:
                self.logger.record(f"evaluation/{name}", value)
        self.logger.dump(step=agent.num_timesteps)
        self.show(agent, row)

    def _write_checkpoint(self) -> None:
        self.directory.save_checkpoint({"algorithm": self.agent.state(), "run": self.state()})
        self._written = time.monotonic()

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "rows": self.rows,
            "next_evaluation": self.next_evaluation,
            "finished_budget": self.finished_budget,
            "seconds": self.seconds(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """From a checkpoint; rows that were written after it are taken back."""
        self.rows, self.next_evaluation = state["rows"], state["next_evaluation"]
        self.finished_budget = state["finished_budget"]
        self._elapsed, self._started = state["seconds"], time.monotonic()
        if self.rows:
            self.directory.write_metrics(self.rows)


def set_threads(threads: int) -> None:
    """Torch with more threads than cores is many times slower, so their number is always set."""
    torch.set_num_threads(threads)
