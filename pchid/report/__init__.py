"""The results as one HTML page that needs nothing else, with a playground for the trained policies.

In: the folder that `pchid reproduce` writes. Out: report.html, which opens from disk.
"""

from pchid.report.page import write_report

__all__ = ["write_report"]
