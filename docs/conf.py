"""The documentation site: `make docs` builds it from README.md, docs/ and the tables in results/.

The source folder is that of the repository, so every relative link leads to the same file here and on a code host.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.inspect import TypeAliasForwardRef

import pchid

ARRAY = re.compile(r"~?numpy\.ndarray\[tuple\[~?typing\.Any, \.\.\.\], ~?numpy\.dtype\[~?(?:\w+\.)*(\w+)\]\]")
ROOT = Path(__file__).resolve().parent.parent

project = "pchid"
author = "The pchid developers"
copyright = "The pchid developers, MIT licence"
release = version = pchid.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
source_suffix = {".md": "markdown"}
include_patterns = [
    "README.md",
    "examples/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/**.md",
    "results/*/table.md",
]
exclude_patterns = ["docs/_build", ".venv", ".git", "runs", "results/quick", "results/*/policies", "**/__pycache__"]
language = "en-GB"
smartquotes = False

myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
ALIASES = ("Array", "ArrayLike", "Floats", "Mask", "Success", "Observations", "Act", "Words", "Maps")
autodoc_type_aliases = {name: name for name in ALIASES}
TypeAliasForwardRef.__repr__ = lambda alias: str(alias.name)  # so that dict[str, Array] reads as it is written
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
default_role = "code"
# Names of ours are checked; those of other packages would need their object lists from the network.
nitpick_ignore_regex = [(r"py:.*", r"(?!pchid\.).*")]

html_theme = "furo"
html_title = "pchid"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = html_favicon = "_static/logo.svg"
html_copy_source = False
html_show_sphinx = False
html_extra_path = ["_front"]
html_theme_options: dict[str, Any] = {
    "light_css_variables": {"color-brand-primary": "#2a62a0", "color-brand-content": "#2a62a0"},
    "dark_css_variables": {"color-brand-primary": "#7fb2ea", "color-brand-content": "#7fb2ea"},
}


def setup(app: Sphinx) -> None:
    """What the pages need besides."""
    app.connect("source-read", without_test_comments)
    app.connect("source-read", links_to_results)
    app.connect("source-read", head_of_table)
    app.connect("autodoc-process-signature", short_types)


def without_test_comments(app: Sphinx, docname: str, source: list[str]) -> None:
    """What comments say to `tests/docs` is no business of a reader."""
    source[0] = re.sub(r"<!-- test:.*?-->\n", "", source[0], flags=re.S)


def links_to_results(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let a link to a results folder lead to its table: on a code host the folder shows itself."""
    here = (ROOT / docname).parent

    def to_table(link: re.Match[str]) -> str:
        return f"]({link[1]}/table.md)" if (here / link[1] / "table.md").exists() else link[0]

    source[0] = re.sub(r"\]\(([\w./-]*results/[\w-]+)/?\)", to_table, source[0])


def head_of_table(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give the table of a results folder a title, its pictures and its other files."""
    if not docname.startswith("results/"):
        return
    folder = (ROOT / docname).parent
    pictures = "".join(f"![{path.stem}]({path.name})\n\n" for path in sorted(folder.glob("*.png")))
    files = [path.name for path in sorted(folder.iterdir()) if path.suffix in (".csv", ".json")]
    listed = ", ".join(f"[{name}]({name})" for name in files)
    source[0] = f"---\norphan: true\n---\n\n# results/{folder.name}\n\n{pictures}Files: {listed}\n\n{source[0]}"


def short_types(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, given: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Show an array as people write it."""

    def short(text: str | None) -> str | None:
        return text and ARRAY.sub(r"NDArray[\1]", text)

    return short(given), short(returned)
