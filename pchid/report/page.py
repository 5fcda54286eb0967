"""The page itself: data and assets become one HTML file.

In: a folder of results. Out: a file in which everything is inlined: it loads nothing, and its own policy (CSP) lets
the browser refuse if anything tried to.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from pchid import __version__
from pchid.checkpoint import write_atomically
from pchid.experiments.plots import AXES
from pchid.report import sections
from pchid.report.animations import Animation, animations
from pchid.report.collect import Found, collect
from pchid.report.curves import chart, measures_of
from pchid.report.markup import Html, escaped, joined, script_data
from pchid.report.policies import playground
from pchid.report.speed import Benchmark, benchmarks

SCRIPTS = (
    *("shared.js", "page.js", "axes.js", "curves.js"),
    *("vin.js", "grid_rules.js", "grid_view.js", "grid.js", "perceptron.js", "hanoi_rules.js", "hanoi.js"),
)
"""In the order in which they are read: each uses only what stands before it."""
STYLES = ("style.css", "play.css", "results.css")
"""The last one also says what is different on a phone and on paper."""


def write_report(results: Path, out: Path) -> int:
    """Write the page; returns how many bytes it has."""
    experiments = collect(results)
    content = page(
        experiments,
        playground(experiments),
        animations(results / "animations"),
        benchmarks(results),
    ).encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, content)
    return len(content)


def page(
    experiments: Sequence[Found],
    policies: dict[str, Any],
    shown: Sequence[Animation] = (),
    measured: Sequence[Benchmark] = (),
) -> str:
    """The page as one string."""
    charts = [chart(found.results) for found in experiments if found.results.curves]
    data = {"charts": charts, "axes": AXES, "measures": measures_of(charts), **policies}
    style, script = "\n".join(map(asset, STYLES)), "\n".join(map(asset, SCRIPTS))
    parts = {
        "play": joined(Html(asset(f"{kind}.html")) for kind in ("grid", "hanoi") if kind in policies),
        "rollouts": sections.rollouts(shown),
        "experiments": joined(map(sections.experiment, experiments)),
        "speed": sections.speed(measured),
    }
    present = {name: HEADS[name] for name, part in parts.items() if part}
    return Template(asset("page.html")).substitute(
        style=style,
        style_hash=content_hash(style),
        script=script,
        script_hash=content_hash(script),
        version=escaped(__version__),
        contents=contents(present, experiments),
        summary=sections.summary(experiments),
        body=joined(section(name, head, lead, parts[name]) for name, (head, lead) in present.items()),
        data=script_data(data),
    )


HEADS = {
    "play": ("Playground", "Trained policies, computed on this page as you change what they see."),
    "rollouts": ("Rollouts", "Trained policies on episodes that they have never seen."),
    "experiments": (
        "Experiments",
        "Lines are interquartile means over seeds, bands their 95 % bootstrap intervals; the policy is deterministic "
        "and the goals are fresh. Final success: the goal holds at the last step of an episode; any success: at some "
        "step. TEST steps are simulator steps inside TEST, beside those of the environment.",
    ),
    "speed": ("Speed", "Ratios are what counts; both sides of each ran on the same machine."),
}
"""The sections in their order, with what is said at the top of each."""


def section(name: str, head: str, lead: str, content: Html) -> Html:
    """A part of the page with its heading."""
    words = f'<p class="lead">{escaped(lead)}</p>\n' if lead else ""
    return Html(
        f'<section id="{name}" aria-labelledby="{name}-head">\n<h2 id="{name}-head">{head}</h2>\n'
        f"{words}{content}</section>\n"
    )


def contents(present: dict[str, tuple[str, str]], experiments: Sequence[Found]) -> Html:
    """The list of sections, with the experiments under theirs."""
    inner = joined(
        Html(f'<li><a href="#{sections.identifier(found.name)}">{escaped(found.name)}</a></li>')
        for found in experiments
    )
    items = [Html('<li><a href="#summary">Summary</a></li>')]
    for name, (head, _) in present.items():
        below = f"<ul>{inner}</ul>" if name == "experiments" else ""
        items.append(Html(f'<li><a href="#{name}">{head}</a>{below}</li>'))
    return joined(items, "\n")


def asset(name: str) -> str:
    """A file that comes with the package."""
    return files("pchid.report").joinpath("assets", name).read_text(encoding="utf-8")


def content_hash(text: str) -> str:
    """What a content security policy knows an inline script or style by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
