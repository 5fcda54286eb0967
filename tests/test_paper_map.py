"""Every name in docs/paper_map.md exists in the file that it is said to be in."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMES = re.findall(r"`(pchid/[\w/]+\.py):([\w.]+)`", (ROOT / "docs" / "paper_map.md").read_text())


def definitions(path: Path) -> set[str]:
    """The names of a module, and of its classes as Class.name."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        names = [node.name] if hasattr(node, "name") else []
        if isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        found.update(names)
        if isinstance(node, ast.ClassDef):
            found.update(f"{node.name}.{inner.name}" for inner in node.body if hasattr(inner, "name"))
    return found


def test_the_map_is_not_empty() -> None:
    assert len(NAMES) > 30


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMES)))
def test_name_exists(file: str, name: str) -> None:
    assert name in definitions(ROOT / file)
