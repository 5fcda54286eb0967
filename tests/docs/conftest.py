"""At the end of a session, how many code blocks of the documentation ran."""

from __future__ import annotations

from collections import Counter
from typing import Any

from code_blocks import COUNTED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                counts.update({name: int(n) for name, n in report.user_properties if name in COUNTED})
    if counts:
        terminalreporter.write_line("documentation: " + ", ".join(f"{counts[name]} {name}" for name in COUNTED))
