"""Results to make pages of, and pages taken apart again, for the tests of the report."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from pchid.experiments.claims import Claim, reaches
from pchid.experiments.declaration import Experiment, Run
from pchid.experiments.results import Results, write_results

RESULTS = Path(__file__).parents[2] / "results"
EMPTY_ELEMENTS = {"meta", "link", "img", "input", "br"}
Curve = Sequence[float]


def write_made_up(
    folder: Path,
    curves: Mapping[str, Sequence[Curve]],
    *,
    name: str = "made-up",
    shows: str = "nothing",
    claims: Sequence[Claim] = (),
    quick: bool = False,
    missing: int = 0,
) -> Path:
    """Results that no run has made, with these curves of final success, written as `pchid reproduce` writes them."""
    experiment = Experiment(name, shows, rows=(), seeds=2, minutes=1.0, claims=tuple(claims), panels=())
    results = Results(experiment, folder / name)
    results.missing = [Run("a", "BitFlip-v0", "hid", {}, seed) for seed in range(missing)]
    for label, seeds in curves.items():
        results.curves[label] = [[evaluation(i, value) for i, value in enumerate(curve)] for curve in seeds]
        results.summaries[label] = [
            {**points[-1], "seed": seed, "wall_seconds": 60.0, "versions": {"pchid": "0"}}
            for seed, points in enumerate(results.curves[label])
        ]
        results.commands[label] = f"pchid train BitFlip-v0 --method hid --episodes {len(seeds[0])}"
    write_results(results, quick)
    return folder


def evaluation(index: int, success: float) -> dict[str, float]:
    """A row of metrics.csv."""
    counts = {"episodes": 10.0 * index, "env_steps": 100.0 * index, "test_steps": 25.0 * index}
    return {
        **counts,
        "final_success": success,
        "any_success": success,
        "mean_return": 10.0 * (success - 1.0),
        "steps_to_goal": 9.0,
    }


def claims_on(label: str, *values: float) -> list[Claim]:
    """That a row reaches each of the values."""
    return [Claim(f"{label} reaches {value}", reaches(label, value), quick=True) for value in values]


class Page(HTMLParser):
    """A page as a list of elements, each with its attributes and the text in it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[dict[str, Any]] = []
        self._open: list[dict[str, Any]] = []
        self.feed(html)
        self.close()
        assert not self._open, f"never closed: {[element['tag'] for element in self._open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = {"tag": tag, "text": "", "inside": [outer["tag"] for outer in self._open], **dict(attrs)}
        self.elements.append(element)
        if tag not in EMPTY_ELEMENTS:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY_ELEMENTS:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop()["tag"] == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element["text"] += data

    def all(self, *tags: str) -> list[dict[str, Any]]:
        """The elements with these names."""
        return [element for element in self.elements if element["tag"] in tags]

    def of_class(self, name: str) -> list[dict[str, Any]]:
        """The elements of a class."""
        return [element for element in self.elements if name in (element.get("class") or "").split()]

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script reads."""
        found: dict[str, Any] = json.loads(next(one["text"] for one in self.all("script") if one.get("id") == "data"))
        return found

    @property
    def style(self) -> str:
        """The style sheet."""
        text: str = self.all("style")[0]["text"]
        return text


def colours(style: str, dark: bool) -> dict[str, tuple[float, float, float]]:
    """The named colours of a style sheet, from 0 to 1."""
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", style)
    chosen = {name: pair[dark] for name, *pair in pairs}
    return {name: tuple(int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)) for name, code in chosen.items()}  # type: ignore[misc]


def contrast(one: tuple[float, float, float], two: tuple[float, float, float]) -> float:
    """The contrast of two colours, as the accessibility guidelines (WCAG) define it."""
    bright, dim = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: tuple[float, float, float]) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
