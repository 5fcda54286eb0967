"""The command line: `pchid train`, `evaluate` and the others of `COMMANDS`.

In: words. Out: exit code 0 (done), 1 (the run failed) or 2 (the call was wrong), and one clear line for each error.
"""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import tyro

from pchid.commands.evaluate import Evaluate
from pchid.commands.experiments import Reproduce, Sweep
from pchid.commands.export import Export
from pchid.commands.fit import Fit
from pchid.commands.plot import Plot
from pchid.commands.report import Report
from pchid.commands.train import Train
from pchid.commands.watch import Watch
from pchid.config import OPTION_GROUPS
from pchid.errors import InputError, RunError


class Command(Protocol):
    """What words become."""

    def run(self) -> None:
        """Do it."""


COMMANDS: dict[str, Callable[..., Command]] = {
    "train": Train,
    "fit": Fit,
    "evaluate": Evaluate,
    "watch": Watch,
    "export": Export,
    "plot": Plot,
    "reproduce": Reproduce,
    "sweep": Sweep,
    "report": Report,
}
RESUMED_BY = {"train": "pchid train --resume --out DIR", **dict.fromkeys(("reproduce", "sweep"), "the same call")}
"""How one goes on with what was stopped; the other commands are quick, or begin anew."""


def main(arguments: list[str] | None = None) -> int:
    """The entry point; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            return _main(words)
        finally:
            sys.stdout.flush()  # here and not when the interpreter ends, so that a closed pipe can still be dealt with
    except BrokenPipeError:
        # Whoever read the output has enough of it, as `| head` has: the rest goes nowhere, and nobody is told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _main(words: list[str]) -> int:
    if words == ["--version"]:
        print(f"pchid {version('pchid')}")
        return 0
    if not {"", str(Path.cwd())} & set(sys.path):
        # `python -m` finds a user's module in the current folder, a console script does not. Last, to hide nothing.
        sys.path.append("")
    debug = "--debug" in words
    try:
        parse([word for word in words if word != "--debug"]).run()
    except KeyboardInterrupt as stop:
        resumed_by = RESUMED_BY.get(words[0]) if words else None
        onward = str(stop) or (f"`{resumed_by}` goes on from the last checkpoint" if resumed_by else "")
        print("\nstopped" + (f"; {onward}" if onward else ""), file=sys.stderr)
        return 1
    except BrokenPipeError:
        raise
    except (InputError, RunError, OSError, ValueError) as error:
        if debug:
            raise
        print(f"pchid: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


def parse(words: list[str]) -> Command:
    """The command that the words ask for; what is wrong with them becomes one line."""
    options: dict[str, dict[str, Any]] = {}
    for group in OPTION_GROUPS:
        words, options[group] = split_options(f"--{group}.", words)
    command = parse_plain(words)
    for group, found in options.items():
        if hasattr(command, f"{group}_options"):
            setattr(command, f"{group}_options", found)
        elif found:
            raise InputError(f"--{group}.NAME goes with pchid train; a run remembers it")
    return command


def parse_plain(words: list[str]) -> Command:
    """The same without the options that go elsewhere."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            command: Command = tyro.extras.subcommand_cli_from_dict(
                COMMANDS,
                args=words,
                prog="pchid",
                description="Goal-conditioned control by supervised self-imitation (PCHID). --debug shows tracebacks, "
                "--version the version.",
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(condense(complaint.getvalue())) from None
    return command


def condense(complaint: str) -> str:
    """The parser's box of text as one sentence: its first paragraph, and the option that was perhaps meant."""
    lines = [line.strip("│╭╮╰╯ ") for line in complaint.splitlines()[1:]]
    paragraph = " ".join(itertools.takewhile(lambda line: line and not line.startswith("─"), lines)).rstrip(".")
    meant = [after for line, after in itertools.pairwise(lines) if line.startswith("Perhaps you meant")]
    hint = f"; perhaps you meant {meant[0].split()[0]}" if meant else "; --help tells what there is"
    return paragraph[:1].lower() + paragraph[1:] + hint


def split_options(start: str, words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Take `--env.NAME VALUE` (or `--env.NAME=VALUE`) out of the words; values are Python literals or text."""
    rest: list[str] = []
    options: dict[str, Any] = {}
    remaining = iter(words)
    for word in remaining:
        if not word.startswith(start):
            rest.append(word)
            continue
        name, _, value = word.removeprefix(start).partition("=")
        value = value or next(remaining, "")
        if not name or not value or value.startswith("--"):
            raise InputError(f"{word} needs a name and a value, as in --env.n_bits 50")
        try:
            options[name.replace("-", "_")] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name.replace("-", "_")] = value
    return rest, options


if __name__ == "__main__":
    sys.exit(main())
