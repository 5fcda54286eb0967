"""`pchid evaluate`: the measures of a trained policy on fresh episodes.

In: a run directory. Out: a table, and perhaps a JSON file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from pchid.errors import at_least


@dataclass
class Evaluate:
    """Measure the policy of a run on fresh episodes."""

    run_directory: Annotated[Path, tyro.conf.Positional]
    """The directory of the run."""
    env: Annotated[str | None, tyro.conf.Positional] = None
    """For a run on module:id, the id again, so that the module may be imported; for a policy of pchid fit with no
    environment known, one to play in."""
    episodes: int = 1000
    """How many episodes."""
    seed: int = 7
    """Decides their starts and goals."""
    maps: Path | None = None
    """For GridWorld: an .npz file with obstacle (M, size, size), start (M, 2), goal (M, 2), optionally budget (M,)."""
    json: Path | None = None
    """Also write the measures to this file."""

    def run(self) -> None:
        """Evaluate, print and perhaps write."""
        import json

        from pchid.checkpoint import write_atomically
        from pchid.display import make_console, summary_table
        from pchid.runs import RunDirectory
        from pchid.training import evaluate_run

        at_least(1, **{"--episodes": self.episodes})
        at_least(0, **{"--seed": self.seed})
        outcomes = evaluate_run(RunDirectory(self.run_directory), self.episodes, self.seed, self.env, self.maps)
        result: dict[str, Any] = {"episodes": len(outcomes.final_success), **outcomes.measures().as_dict()}
        make_console().print(summary_table(result))
        if self.json is not None:
            result |= {"seed": self.seed, "run": str(self.run_directory)}
            write_atomically(self.json, (json.dumps(result, indent=2) + "\n").encode())
