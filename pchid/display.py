"""What a person sees while a run trains: a live line with K, success and both step counts, and a table at the end.

In: the algorithm and its newest row. Out: text on the terminal.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from pchid.distillation import RandomNetworkDistillation
from pchid.goals import attribute
from pchid.runs import Row
from pchid.solvability import AcceptAll, GroundTruth, Interaction

TESTS: dict[type, str] = {
    Interaction: "TEST by interaction",
    RandomNetworkDistillation: "TEST by RND",
    GroundTruth: "TEST by ground truth",
    AcceptAll: "no TEST: every piece is learned from",
}


WIDE = 1000
"""Columns of what is no terminal: a file or a pipe cuts nothing."""


def make_console(quiet: bool = False) -> Console:
    """Where a command prints to."""
    console = Console(quiet=quiet)
    if not console.is_terminal:
        console.width = WIDE
    return console


class Display:
    """A progress bar on a terminal; elsewhere, a line for each evaluation."""

    def __init__(self, unit: str, budget: int, title: str, quiet: bool = False) -> None:
        self.console = make_console(quiet)
        self._says_test = True
        self.unit = unit
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn(unit),
            TextColumn("K [cyan]{task.fields[K]}[/]  success [green]{task.fields[success]}[/]"),
            TextColumn("steps {task.fields[env_steps]:,} + {task.fields[test_steps]:,} TEST"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        fields: dict[str, Any] = {"K": 1, "success": "–", "env_steps": 0, "test_steps": 0}
        self._task = self._progress.add_task(title, total=budget, **fields)

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, agent: Any, row: Row | None) -> None:
        """Show where the agent is, the first time with its TEST; `row` is a new evaluation."""
        if self._says_test:
            self._says_test = False
            if line := line_about_test(agent):
                self.console.print(line, highlight=False, soft_wrap=True)
        done = agent.episodes if self.unit == "episodes" else agent.num_timesteps
        fields: dict[str, Any] = {
            "K": agent.K or "–",
            "env_steps": agent.num_timesteps,
            "test_steps": agent.test_steps,
        }
        if row is not None:
            fields["success"] = f"{row['final_success']:.2f}"
            if not self.console.is_terminal:
                self.console.print(
                    f"episodes {row['episodes']:,}  K {row['K'] or '–'}  final success {row['final_success']:.3f}  "
                    f"return {row['mean_return']:.2f}  steps {row['env_steps']:,} + {row['test_steps']:,} TEST",
                    highlight=False,
                )
        self._progress.update(self._task, completed=done, **fields)


def line_about_test(agent: Any) -> str | None:
    """How TEST is done and, where `auto` chose it, why; None without hindsight, or where one length is learned."""
    hindsight = getattr(agent, "module", agent)
    if hindsight is None or hindsight.K_max < 2 * hindsight.K_step:
        return None
    name = TESTS[type(hindsight.learner.test)]
    if hindsight.test != "auto":
        return name
    if isinstance(hindsight.learner.test, Interaction):
        return f"{name} (the environment can be restored)"
    vector = getattr(agent, "model", agent).get_env().unwrapped.vector
    single = getattr(vector, "envs", [vector])[0]
    missing = [method for method in ("get_state", "set_state", "observe") if attribute(single, method) is None]
    listed = " and ".join(", ".join(missing).rsplit(", ", 1))
    reason = f": {listed} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""
    return f"{name} (the environment cannot be restored{reason})"


def summary_table(row: dict[str, Any]) -> Table:
    """The figures of a run or of an evaluation."""
    table = Table(box=None, header_style="bold")
    cells = []
    for name, title, form in (
        ("episodes", "episodes", "{:,}"),
        ("env_steps", "env steps", "{:,}"),
        ("test_steps", "TEST steps", "{:,}"),
        ("final_success", "final success", "{:.3f}"),
        ("any_success", "any success", "{:.3f}"),
        ("mean_return", "return", "{:.2f}"),
        ("steps_to_goal", "steps to goal", "{:.2f}"),
        ("wall_seconds", "seconds", "{:.1f}"),
    ):
        if name in row:
            table.add_column(title, justify="right")
            cells.append(form.format(row[name]))
    table.add_row(*cells)
    return table
