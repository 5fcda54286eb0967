"""`pchid report`: the results as one page, with a playground.

In: a folder of results. Out: an HTML file that needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Report:
    """Write the results as one HTML page, which opens from disk: claims, curves, tables and a playground."""

    results: Path = Path("results")
    """The folder that pchid reproduce and pchid sweep have written."""
    out: Path = Path("report.html")
    """The page."""

    def run(self) -> None:
        """Write it."""
        from pchid.report import write_report

        size = write_report(self.results, self.out)
        print(f"{self.out} ({size / 1e6:.1f} MB)")
