"""The code blocks of a Markdown page, and what a hidden comment before a block says about running it in a test.

- `<!-- test: OLD -> NEW -->` replaces text in the block, whole words, to make it short.
- `<!-- test: skip, REASON -->` leaves the block out; `<!-- test: skip "START", REASON -->` only lines that begin so.
- `<!-- test: output -->` says that the block is what the block before it printed.
- `<!-- test: file NAME -->` writes the block to a file; so does a first line `# NAME.py` of a Python block.
- `<!-- test: setup`, code blocks and `-->`: blocks that only the test sees.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```[ ]*$", re.S | re.M)
COMMENT = re.compile(r"<!--(?P<comment>.*?)-->", re.S)
EITHER = re.compile(f"{COMMENT.pattern}|{FENCE.pattern}", re.S | re.M)
COUNTED = ("Python blocks ran", "shell lines ran", "shell lines checked", "outputs compared", "skipped with a reason")
"""What is counted over all pages."""
SKIP = re.compile(r'skip(?: "(?P<start>[^"]+)")?, (?P<reason>.+)', re.S)


@dataclass(frozen=True)
class Block:
    """One code block."""

    language: str
    text: str
    line: int
    hidden: bool = False
    skipped: str | None = None
    """Why the whole block is left out."""
    skipped_lines: tuple[str, ...] = ()
    """How lines begin that are left out."""
    is_output: bool = False
    file: str | None = None


def read_blocks(path: Path) -> list[Block]:
    """All code blocks of a page, in order, shortened as the comments say."""
    return list(_blocks(path.read_text(), path.name))


def _blocks(page: str, name: str) -> Iterator[Block]:
    waiting: list[str] = []
    end = 0
    for found in EITHER.finditer(page):
        if waiting and page[end : found.start()].strip():
            raise ValueError(f"{name}: the comment 'test: {waiting[-1]}' has no block right after it")
        end = found.end()
        line = page.count("\n", 0, found.start()) + 1
        comment = found["comment"]
        if comment is None:
            yield _block(found, line, waiting)
            waiting = []
            continue
        words = comment.strip()
        if not words.startswith("test:"):
            continue
        directive = words.removeprefix("test:").strip()
        if directive.startswith("setup"):
            yield from _hidden(directive, line, name)
        else:
            waiting.append(directive)
    if waiting:
        raise ValueError(f"{name}: the comment 'test: {waiting[-1]}' has no block after it")


def _hidden(comment: str, line: int, name: str) -> Iterator[Block]:
    inner = list(FENCE.finditer(comment))
    if not inner:
        raise ValueError(f"{name}:{line}: a setup comment holds a code block")
    for found in inner:
        yield Block(found["language"], found["text"], line, hidden=True)


def _block(found: re.Match[str], line: int, directives: list[str]) -> Block:
    indent = len(found["indent"])
    text = "".join(part[indent:] if part.strip() else part for part in found["text"].splitlines(keepends=True))
    named = re.match(r"# (\w+\.py)\n", text)
    skipped, lines, is_output, file = None, [], False, named[1] if named else None
    for directive in directives:
        skip = SKIP.fullmatch(directive)
        if skip and skip["start"]:
            lines.append(skip["start"])
        elif skip:
            skipped = skip["reason"]
        elif directive == "output":
            is_output = True
        elif directive.startswith("file "):
            file = directive.removeprefix("file ").strip()
        else:
            text = replaced(text, directive, line)
    for start in lines:
        if not any(part.startswith(start) for part in text.splitlines()):
            raise ValueError(f"line {line}: no line of the block begins with '{start}'")
    return Block(found["language"], text, line, False, skipped, tuple(lines), is_output, file)


def replaced(text: str, directive: str, line: int) -> str:
    """The text after `OLD -> NEW`; OLD must be there, or the comment has outlived its block."""
    old, arrow, new = (part.strip() for part in directive.partition(" -> "))
    if not arrow or not has(text, old):
        raise ValueError(f"line {line}: '{directive}' is no directive, or its text is not in the block")
    return replace(text, old, new)


def has(text: str, old: str) -> bool:
    """Whether the words are there, and not only as a part of others."""
    return re.search(_words(old), text) is not None


def replace(text: str, old: str, new: str) -> str:
    """Other words in the place of these."""
    return re.sub(_words(old), lambda _: new, text)


def _words(old: str) -> str:
    return rf"(?<!\w){re.escape(old)}(?!\w)"


def shell_lines(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a shell block, each as it is written and as words without comments."""
    joined = text.replace("\\\n", " ")
    return [(line, words) for line in joined.splitlines() if (words := shlex.split(line, comments=True))]
