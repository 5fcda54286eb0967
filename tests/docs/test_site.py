"""The documentation is whole: links lead somewhere, on the site and on a code host, and nothing is loaded from afar."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from code_blocks import COMMENT, FENCE

import pchid

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.M)
LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
}
"""What a browser fetches by itself, and by which attribute."""


def prose(path: Path) -> str:
    """A page without its code blocks and comments."""
    return FENCE.sub("", COMMENT.sub("", path.read_text()))


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(prose(path))]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize(
    "page",
    [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")), *PAGES],
    ids=lambda path: path.name,
)
def test_relative_links_lead_to_files(page: Path) -> None:
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", prose(page))):
        target = urlsplit(link)
        if target.scheme:
            continue
        file = (page.parent / unquote(target.path)).resolve() if target.path else page
        assert file.is_relative_to(ROOT) and file.exists(), f"{page.name}: {link} leads nowhere"
        if target.fragment and file.suffix == ".md":
            assert target.fragment in anchors(file), f"{page.name}: {link}: no such heading"


def test_every_page_is_in_a_toctree() -> None:
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```", (ROOT / "docs" / "index.md").read_text(), re.S | re.M)
    lines = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    entries = [re.sub(r".*<(.+)>", r"\1", line) for line in lines]
    assert len(entries) == len(set(entries))
    pages = {path.stem for path in PAGES} - {"index"}
    assert {entry for entry in entries if "/" not in entry} == pages


def test_every_results_folder_is_linked() -> None:
    linked = set(LINK.findall((ROOT / "docs" / "results.md").read_text()))
    for table in (ROOT / "results").glob("*/table.md"):
        assert f"../results/{table.parent.name}" in linked, f"docs/results.md does not name results/{table.parent.name}"


def test_every_claim_that_was_not_reproduced_is_named() -> None:
    section = (ROOT / "docs" / "results.md").read_text().partition("## The paper's claims")[2].partition("\n## ")[0]
    for file in (ROOT / "results").glob("*/verdict.json"):
        verdicts = {claim["verdict"] for claim in json.loads(file.read_text())["claims"]}
        if "not reproduced" in verdicts:
            assert f"(../results/{file.parent.name})" in section, f"docs/results.md is silent about {file.parent.name}"


def test_every_public_name_is_in_the_api() -> None:
    api = (ROOT / "docs" / "api.md").read_text()
    for name in set(pchid.__all__) - {"envs"}:
        home = getattr(pchid, name).__module__
        assert re.search(rf"^\.\. auto\w+:: {re.escape(f'{home}.{name}')}\b", api, re.M), (
            f"docs/api.md lacks {home}.{name}"
        )


def test_pictures_are_small() -> None:
    for path in (ROOT / "docs" / "images").glob("method-*.png"):
        assert path.stat().st_size < 150_000, path.name
    for path in (ROOT / "docs" / "images").glob("docs-*.png"):
        assert path.stat().st_size < 300_000, path.name


class Page(HTMLParser):
    """What a built page names: anchors, links, and resources that a browser loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given:
            self.loaded.append(given[LOADED[tag]])


def complaints(site: Path) -> list[str]:
    """Everything that is wrong with a built site."""
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    found: list[str] = []
    for path, page in pages.items():
        name = path.relative_to(site)
        for address in page.loaded:
            parts = urlsplit(address)
            if parts.scheme not in ("", "data") or parts.netloc:
                found.append(f"{name} loads {address}")
        for link in {*page.links, *page.loaded}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_relative_to(site) or not target.is_file():
                found.append(f"{name}: {link} leads nowhere")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                found.append(f"{name}: {link}: no such place")
    for sheet in site.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", sheet.read_text()):
            found.append(f"{sheet.name} loads {address}")
    return found


def test_complaints_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html">b</a> <a href="#x">x</a> <a id="y" href="#y">y</a> <a href="https://elsewhere">fine</a>'
        '<script src="https://cdn/x.js"></script><img src="missing.png"><link rel="stylesheet" href="//fonts/f.css">'
    )
    (tmp_path / "s.css").write_text("@import url('https://fonts/f.css');")
    by_kind = defaultdict(list)
    for complaint in complaints(tmp_path):
        by_kind[complaint.split()[0].rstrip(":")].append(complaint)
    assert len(by_kind["a.html"]) == 5
    assert len(by_kind["s.css"]) == 1


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_is_whole(tmp_path: Path) -> None:
    site = tmp_path / "html"
    words = [
        "-W",
        "--keep-going",
        "-n",
        "-q",
        "-b",
        "html",
        "-c",
        "docs",
        "-d",
        str(tmp_path / "doctrees"),
        ".",
        str(site),
    ]
    built = subprocess.run([sys.executable, "-m", "sphinx", *words], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr  # libraries may say something else there
    assert complaints(site) == []
    for page in PAGES:
        assert (site / "docs" / f"{page.stem}.html").exists()
