"""`pchid plot`: learning curves.

In: run directories. Out: a picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from pchid.errors import InputError


@dataclass
class Plot:
    """Draw the learning curves of one or more runs; runs that differ only in their seed are averaged."""

    run_directories: Annotated[list[Path], tyro.conf.Positional]
    """The directories of the runs."""
    out: Path = Path("curves.png")
    """The picture."""
    axis: Literal["env_steps", "all_steps", "episodes"] = "env_steps"
    """What to plot against: environment steps, environment and TEST steps together, or episodes."""

    def run(self) -> None:
        """Plot."""
        from pchid.experiments.plots import plot_runs

        if not self.run_directories:
            raise InputError("name at least one run directory")
        print(plot_runs(self.run_directories, self.out, self.axis))
