"""`pchid export`: a trained policy as an ONNX file.

In: a run directory, that of `pchid fit`, or an agent's file. Out: the file, and how well it agrees with the policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass
class Export:
    """Write a trained policy as an ONNX file, which runs where there is neither pchid nor torch."""

    source: Annotated[Path, tyro.conf.Positional]
    """The directory of a run or of pchid fit, or an agent's file."""
    env: Annotated[str | None, tyro.conf.Positional] = None
    """For a run on module:id, the id again, so that the module may be imported."""
    out: Path = Path("policy.onnx")
    """The file to write."""
    hold: bool = True
    """With --no-hold, leave out the null action that a policy of hold_goal plays where the goal holds."""

    def run(self) -> None:
        """Export, and say what was written."""
        from rich.console import Console

        from pchid.export import export_policy

        found = export_policy(self.source, self.out, self.env, self.hold)
        console = Console(highlight=False, soft_wrap=True)
        console.print(f"{found.path}  {found.size / 1000:,.0f} kB")
        for name, side in (("inputs", found.inputs), ("outputs", found.outputs)):
            console.print(f"{name:8} {', '.join(f'{one} {kind}' for one, kind in side.items())}")
        ties = f", {found.ties} ties" if found.ties else ""
        console.print(
            f"checked  {found.compared:,} observations in onnxruntime and torch, largest difference "
            f"{found.difference:.2g}{ties}"
        )
