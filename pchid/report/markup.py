"""Text and tables as HTML; whatever comes from a file is escaped on the way.

In: strings, numbers and rows. Out: `Html`, which is not escaped a second time.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


class Html(str):
    """A string that is HTML already."""


@dataclass(frozen=True)
class Table:
    """Rows under heads, with a sentence that says what they are."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    words: Sequence[int] = (0,)
    """Which columns hold words; numbers, in the others, stand at the right."""


def escaped(value: object) -> Html:
    """As HTML that shows the value, in an attribute too."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def joined(parts: Iterable[str], between: str = "") -> Html:
    """One after the other."""
    return Html(between.join(map(escaped, parts)))


def code(text: str) -> Html:
    """What one types."""
    return Html(f"<code>{escaped(text)}</code>")


def table(content: Table) -> Html:
    """A table that, where it is too wide, scrolls inside its own box, by keyboard too."""
    heads = joined(
        Html(f'<th scope="col"{_kind(index, content.words)}>{escaped(head)}</th>')
        for index, head in enumerate(content.heads)
    )
    rows = joined((_row(row, content.words) for row in content.rows), "\n")
    caption = escaped(content.caption)
    # The words stand outside the box as well, where they need not be scrolled to; a screen reader meets them once.
    return Html(
        f'<p class="caption" aria-hidden="true">{caption}</p>\n'
        f'<div class="wide" role="group" aria-label="{caption}" tabindex="0"><table>\n'
        f'<caption class="unseen">{caption}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>\n"
    )


def _row(cells: Sequence[object], words: Sequence[int]) -> Html:
    first, *rest = cells
    others = joined(Html(f"<td{_kind(index, words)}>{escaped(cell)}</td>") for index, cell in enumerate(rest, 1))
    return Html(f'<tr><th scope="row">{escaped(first)}</th>{others}</tr>')


def _kind(index: int, words: Sequence[int]) -> str:
    return "" if index in words else ' class="number"'


def script_data(value: Any) -> Html:
    """JSON that can stand inside <script>: nothing in it can end the element or open a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(text)
