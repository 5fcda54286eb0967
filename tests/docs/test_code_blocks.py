"""Every code block of README.md and docs/*.md runs, page by page, in a folder of its own.

Python blocks of a page share a namespace, as a reader would type them. Of a shell block each line is run: `pchid` in
this process; of `make`, `pip` and `python FILE` it is checked that the target, the extra or the file exists. Whole
reproductions and clusters are only parsed. What makes blocks short stands in the pages (see `code_blocks.py`), or below
for pages that stay free of such comments.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from code_blocks import COUNTED, Block, has, read_blocks, replace, shell_lines

import pchid.cli
from pchid.commands.experiments import Reproduce
from pchid.experiments.engines import Job, LocalEngine, Report
from pchid.experiments.figures import EXPERIMENTS
from pchid.experiments.worker import train_in

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
SLOW = {"README.md"} | {
    f"docs/{name}.md"
    for name in (
        "combinations",
        "export",
        "getting_started",
        "offline",
        "own_environment",
        "pehid",
        "report",
        "reproduce",
        "sb3",
    )
}
"""Pages whose blocks take more than five seconds."""
QUICK = "--eval-episodes 1 --final-episodes 1"
SHORTENED: dict[str, list[tuple[str, str]]] = {
    "README.md": [
        ("--episodes 10", f"--episodes 2 {QUICK}"),
        ("--episodes 1000", "--episodes 4"),
        ("reach.gif", "reach.gif --episodes 1"),
        ("learn(5_000", "learn(250"),
    ],
    "docs/offline.md": [("range(20)", "range(5)")],
    "docs/combinations.md": [("learn(5_000", "learn(250")],
    "docs/gridworld.md": [
        ("pchid train GridWorld-v0", f"pchid train GridWorld-v0 --episodes 8 {QUICK}"),
        ("--episodes 1000", "--episodes 20"),
        ("rollouts.gif", "rollouts.gif --episodes 1"),
    ],
}
SETUP = {
    ("docs/report.md", 1): "import shutil; shutil.copytree('results/fig5', 'my_results/fig5')",
}
"""What must have happened before a block, counted from 1, of a page that stays free of comments."""


def parameters() -> Iterator[Any]:
    for page in PAGES:
        if re.search("^ *```(python|bash)", (ROOT / page).read_text(), re.M):
            yield pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else [], id=page)


@pytest.mark.parametrize("page", parameters())
def test_blocks_of(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(LocalEngine, "run", run_here)
    reader = Reader(page)
    blocks = read_blocks(ROOT / page)
    for old, _ in SHORTENED.get(page, ()):
        assert any(has(block.text, old) for block in blocks), f"'{old}' is not in {page} any more"
    for folder in ("results", "examples"):
        if any(f"{folder}/" in block.text for block in blocks):  # a copy: what a block writes must not come here
            shutil.copytree(ROOT / folder, tmp_path / folder)
    before = set(sys.modules)
    try:
        for block in blocks:
            reader.read(block)
    finally:  # modules that the page wrote are its own
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]
    for name in COUNTED:
        record_property(name, reader.counts[name])


class Reader:
    """Does what a page says, from its first block to its last."""

    def __init__(self, page: str) -> None:
        self.page = page
        self.namespace: dict[str, Any] = {"__name__": "page"}
        self.printed = ""
        self.counts: Counter[str] = Counter()
        self._blocks = 0

    def read(self, block: Block) -> None:
        if block.skipped is not None:
            self.counts["skipped with a reason"] += 1
            return
        text = block.text
        for old, new in SHORTENED.get(self.page, ()):
            text = replace(text, old, new)
        if block.is_output:
            assert self.printed.strip() == text.strip(), f"{self.page}:{block.line} printed something else"
            self.counts["outputs compared"] += 1
        elif block.file is not None:
            Path(block.file).write_text(text)
        elif block.language in ("python", "bash"):
            self._run(block, text)

    def _run(self, block: Block, text: str) -> None:
        if not block.hidden:
            self._blocks += 1
            exec(SETUP.get((self.page, self._blocks), ""), self.namespace)
        if block.language == "python":
            self._python(block, text)
        else:
            for line, words in shell_lines(text):
                if any(line.startswith(start) for start in block.skipped_lines):
                    self.counts["skipped with a reason"] += 1
                else:
                    self._shell(words, f"{self.page}:{block.line}")

    def _python(self, block: Block, text: str) -> None:
        # Empty lines in front, so that a traceback names the line of the page.
        code = compile("\n" * block.line + text, str(ROOT / self.page), "exec")
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(code, self.namespace)
        self.printed = printed.getvalue()
        self.counts["Python blocks ran"] += not block.hidden

    def _shell(self, words: Sequence[str], where: str) -> None:
        program, *rest = words
        ran = False
        if program == "pchid":
            ran = run_pchid(rest, where)
        elif program == "make":
            check_make(rest, where)
        elif program == "pip":
            check_pip(rest, where)
        elif program == "python" and rest and rest[0].endswith(".py"):
            assert (ROOT / rest[0]).exists(), f"{where}: there is no {rest[0]}"
        else:
            pytest.fail(f"{where}: cannot try '{' '.join(words)}'; skip it with a reason")
        self.counts["shell lines ran" if ran else "shell lines checked"] += 1


def run_pchid(words: list[str], where: str) -> bool:
    """Run the command, or only parse it where it would take hours or a cluster; says which."""
    if words[0] == "reproduce" or "ray" in words:
        command = pchid.cli.parse(words)
        if isinstance(command, Reproduce):
            unknown = set(command.names) - {*EXPERIMENTS, "all"}
            assert not unknown, f"{where}: there is no experiment {unknown}"
        if "--list" not in words:
            return False
    try:
        code = pchid.cli.main(words)
    except SystemExit as stop:  # --help
        code = stop.code or 0  # type: ignore[assignment]
    assert code == 0, f"{where}: 'pchid {' '.join(words)}' ended with {code}"
    return True


def check_make(targets: list[str], where: str) -> None:
    """Each target is there."""
    dry = subprocess.run(["make", "-n", *targets], cwd=ROOT, capture_output=True, text=True)
    assert dry.returncode == 0, f"{where}: {dry.stderr}"


def check_pip(words: list[str], where: str) -> None:
    """What is installed is this package, by its name or from its folder, with extras that it has."""
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    assert words[0] == "install", where
    for word in words[1:]:
        if word.startswith("-"):
            continue
        found = re.fullmatch(r"(?:pchid|\.)(?:\[([\w,]+)\])?", word)
        assert found, f"{where}: pip install {word} is not about this package"
        unknown = set((found[1] or "").split(",")) - extras - {""}
        assert not unknown, f"{where}: there is no extra {unknown}"


def run_here(self: LocalEngine, jobs: Sequence[Job], report: Report) -> None:
    """Runs of a sweep in this process: a process for each would take seconds to start."""
    for job in jobs:
        report(job, "running")
        job.directory.mkdir(parents=True, exist_ok=True)
        train_in(job.directory, list(job.words))
        report(job, "done" if job.finished else "failed")


def test_a_comment_must_have_its_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- test: 5 -> 6 -->\n\nWords.\n\n```python\nx = 5\n```\n")
    with pytest.raises(ValueError, match="no block right after"):
        read_blocks(page)


def test_a_replacement_must_find_its_text(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- test: 7 -> 6 -->\n```python\nx = 5\n```\n")
    with pytest.raises(ValueError, match="not in the block"):
        read_blocks(page)


def test_directives(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- test: setup\n```python\ny = 1\n```\n-->\n<!-- test: 50 -> 5 -->\n```python\nx = 50\n```\n"
        '<!-- test: skip "b", because -->\n```bash\na  # words\nb \\\n  c\n```\n<!-- an ordinary comment -->\n'
        "- in a list\n\n  ```python\n  if x:\n      x\n  ```\n"
    )
    hidden, shortened, shell, indented = read_blocks(page)
    assert hidden.hidden and hidden.text == "y = 1\n"
    assert shortened.text == "x = 5\n"
    assert shell.skipped_lines == ("b",) and [words for _, words in shell_lines(shell.text)] == [["a"], ["b", "c"]]
    assert indented.text == "if x:\n    x\n"


def test_an_unknown_command_does_not_pass() -> None:
    with pytest.raises(pytest.fail.Exception):
        Reader("page").read(Block("bash", "curl something\n", 1))


@pytest.mark.parametrize("line", ["pip install 'pchid[nothing]'", "make nothing", "pchid reproduce fig99"])
def test_what_does_not_exist_does_not_pass(line: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        Reader("page").read(Block("bash", line, 1))


def test_wrong_output_does_not_pass() -> None:
    reader = Reader("page")
    reader.read(Block("python", "print(1)", 1))
    with pytest.raises(AssertionError):
        reader.read(Block("text", "2", 2, is_output=True))
