"""The parts of the page that hold results: what was claimed, what came out, and how to get it again.

In: what `collect` has found. Out: `Html`; only the curves are left to the browser.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from urllib.parse import quote

import numpy as np

from pchid.experiments.claims import Verdict, Word
from pchid.experiments.plots import MEASURES as MEASURE_WORDS
from pchid.experiments.results import CLOCK, COUNTS, MEASURES, Results
from pchid.report.animations import Animation, data_uri, width
from pchid.report.collect import WORDS, Found
from pchid.report.markup import Html, Table, code, escaped, joined, table
from pchid.report.speed import Benchmark

SIGNS: dict[Word, str] = {
    "reproduced": "M4 8.5l2.7 2.7L12 5.5",
    "better": "M4 7l4-3.5L12 7M4 12l4-3.5 4 3.5",
    "not reproduced": "M4.5 4.5l7 7M11.5 4.5l-7 7",
    "not judged": "M4.5 8h7",
}
"""A small drawing for each verdict, in a box of 16 by 16."""


def identifier(name: str) -> str:
    """What links to an experiment point at."""
    return quote(f"experiment-{name}", safe="")


def sign(word: Word) -> Html:
    """The drawing; the word stands beside it."""
    name = word.replace(" ", "-")
    return Html(
        f'<svg class="sign {name}" viewBox="0 0 16 16" aria-hidden="true" focusable="false">'
        f'<circle cx="8" cy="8" r="8"/><path d="{SIGNS[word]}"/></svg>'
    )


def summary(experiments: Sequence[Found]) -> Html:
    """How many claims there are, and what became of them; then each experiment in a row."""
    counts = Counter(verdict.verdict for found in experiments for verdict in found.verdicts)
    tiles = joined(
        Html(f"<div><dt>{sign(word)} {word}</dt><dd>{counts[word]}</dd></div>")
        for word in WORDS
        if counts[word] or word != "not judged"
    )
    rows = [
        (
            Html(f'<a href="#{identifier(found.name)}">{escaped(capital(found.results.experiment.shows))}</a>'),
            Html(f"{tally(found.verdicts)}{mark(found)}"),
        )
        for found in experiments
    ]
    overview = table(
        Table("Every experiment, and what became of its claims", ("experiment", "claims"), rows, words=(0, 1))
    )
    words = f"{sum(counts.values())} claims in {len(experiments)} experiment{'s' * (len(experiments) != 1)}"
    return Html(f'<p class="total">{words}</p>\n<dl class="tiles">{tiles}</dl>\n{overview}')


def tally(verdicts: Sequence[Verdict]) -> Html:
    """The verdicts of an experiment, counted."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    parts = [Html(f'<span class="count">{sign(word)} {counts[word]} {word}</span>') for word in WORDS if counts[word]]
    return joined(parts, " ") if parts else Html('<span class="quiet">none made</span>')


def mark(found: Found) -> Html:
    """What keeps an experiment from being the whole thing, if something does."""
    marks = ["quick version"] if found.quick else []
    marks += [f"{found.missing_runs} runs missing"] if found.missing_runs else []
    return joined(Html(f' <span class="badge">{text}</span>') for text in marks)


def experiment(found: Found) -> Html:
    """Everything about one experiment."""
    results, name = found.results, identifier(found.name)
    notes = ""
    if found.quick:
        notes += (
            '<p class="note">A quick version: small, so that it can show that everything runs, and little more.</p>'
        )
    if found.missing_runs:
        missing = f"{found.missing_runs} of its runs are missing, so that claims about them are not judged."
        notes += f'<p class="note">{missing}</p>'
    return Html(
        f'<article class="experiment" id="{name}" aria-labelledby="{name}-title">\n'
        f'<p class="name">{escaped(found.name)}</p>\n'
        f'<h3 id="{name}-title">{escaped(capital(results.experiment.shows))}</h3>\n{notes}'
        f"{claims(found.verdicts)}\n{pictures(found)}\n{curves(found)}\n"
        f"<h4>At the last evaluation</h4>\n{final_table(results)}\n"
        f"<details><summary>Commands</summary>\n{commands(found)}</details>\n"
        f"<details><summary>Settings and versions</summary>\n{settings_table(results)}{versions(found)}</details>\n"
        "</article>\n"
    )


def claims(verdicts: Sequence[Verdict]) -> Html:
    """Each claim with its verdict, in a word and a sign, and why."""
    items = [
        Html(
            f'<li><span class="verdict">{sign(verdict.verdict)} {escaped(verdict.verdict)}</span>'
            f"<div><p>{escaped(capital(verdict.claim))}</p>"
            f'<p class="why">{escaped(capital(verdict.why))}</p></div></li>'
        )
        for verdict in verdicts
    ]
    return Html(f'<h4>Claims</h4>\n<ul class="claims">\n{joined(items, chr(10))}\n</ul>' if items else "")


def pictures(found: Found) -> Html:
    """What an experiment draws besides learning curves."""
    return joined(
        Html(
            f'<figure class="picture" tabindex="0"><img width="{width(path)}" '
            f'src="{data_uri(path.read_bytes(), "png")}" '
            f'alt="Drawing {escaped(path.stem)}: {escaped(found.results.experiment.shows)}"></figure>\n'
        )
        for path in found.pictures()
    )


def curves(found: Found) -> Html:
    """Where the browser draws the curves."""
    if not found.results.curves:
        return Html("")
    return Html(
        f'<h4>Learning curves</h4>\n<figure class="chart" data-chart="{escaped(found.name)}">'
        "<noscript>The curves need JavaScript; their last points are in the table below.</noscript></figure>"
    )


def final_table(results: Results) -> Html:
    """Interquartile means with their intervals, and both step counts."""
    if not results.summaries:
        return Html("<p>No run has finished yet.</p>")
    rows = []
    for label, summaries in results.summaries.items():
        cells: list[object] = [label, len(summaries)]
        for measure in MEASURES:
            found, digits = results.estimate(label, measure), 3 if "success" in measure else 1
            bounds = Html(f' <span class="interval">[{found.low:.{digits}f}, {found.high:.{digits}f}]</span>')
            cells.append("" if math.isnan(found.iqm) else Html(f"{found.iqm:.{digits}f}{bounds}"))
        cells += [f"{np.mean(results.values(label, name)):,.0f}" for name in COUNTS[1:]]
        cells.append(f"{np.mean(results.values(label, CLOCK)) / 60:.1f}")
        rows.append(cells)
    heads = ["", "seeds", *(MEASURE_WORDS[name] for name in MEASURES), "environment steps", "TEST steps", "minutes"]
    caption = "Interquartile mean over seeds [95 % interval]; steps and minutes are means"
    return table(Table(caption, heads, rows))


def commands(found: Found) -> Html:
    """What one types to get an experiment again, or one of its rows."""
    whole = [f"pchid reproduce {found.name}{' --quick' * found.quick}"] if found.declared else []
    lines = [copyable(command) for command in whole]
    lines += [
        Html(f'<p class="row">{escaped(label)}</p>{copyable(f"{command} --seed 0")}')
        for label, command in found.results.commands.items()
    ]
    return joined(lines, "\n")


def copyable(command: str) -> Html:
    """A command with a button that copies it."""
    return Html(
        f'<div class="command"><pre tabindex="0"><code>{escaped(command)}</code></pre>'
        f'<button type="button" class="copy" aria-label="Copy {escaped(command)}">Copy</button></div>'
    )


def settings_table(results: Results) -> Html:
    """The options that all rows share, and those of each."""
    options = {label: options_of(command) for label, command in results.commands.items()}
    if not options:
        return Html("")
    shared = [option for option in next(iter(options.values())) if all(option in own for own in options.values())]
    rows = [("all rows", shared)] if len(options) > 1 else []
    rows += [
        (label, [option for option in own if len(options) == 1 or option not in shared])
        for label, own in options.items()
    ]
    cells = [(label, joined(map(code, own), " ")) for label, own in rows]
    return table(Table("What differs from the recommended settings", ("row", "options"), cells, words=(0, 1)))


def options_of(command: str) -> list[str]:
    """The environment and the options of a call, each with its value."""
    try:
        words = shlex.split(command)[2:]
    except ValueError:
        return [command]
    found: list[str] = []
    for word in words:
        if word.startswith("--") or not found or " " in found[-1] or not found[-1].startswith("--"):
            found.append(word)
        else:
            found[-1] += f" {word}"
    return found


def versions(found: Found) -> Html:
    """What the runs ran on."""
    parts = [f"{name} {version}" for name, version in found.versions.items()]
    return Html(f'<p class="quiet">Run with {escaped(", ".join(parts))}.</p>' if parts else "")


def rollouts(shown: Sequence[Animation]) -> Html:
    """Animations that stand still until they are played."""
    return joined(
        Html(
            f'<figure class="rollout" data-gif="{one.gif}"><img src="{one.still}" alt="{escaped(one.caption)}" '
            f'width="{one.width}" height="{one.height}">'
            f"<figcaption><p>{escaped(one.caption)}</p>"
            f'<button type="button" class="player" aria-pressed="false">Play<span class="unseen"> {escaped(one.name)}'
            "</span></button></figcaption></figure>\n"
        )
        for one in shown
    )


def speed(found: Sequence[Benchmark]) -> Html:
    """Each benchmark: a sentence, and its tables for who wants to know more."""
    cards = joined(
        Html(
            f'<section class="benchmark"><h3>{escaped(one.title)}</h3><p>{escaped(one.says)}</p>'
            f"<details><summary>Figures<span class='unseen'> of {escaped(one.title)}</span></summary>\n"
            f"{joined(map(table, one.tables))}{copyable(one.command)}</details></section>\n"
        )
        for one in found
    )
    return Html(f'<div class="benchmarks">{cards}</div>' if found else "")


def capital(sentence: str) -> str:
    """The sentence with a capital at its start, unless it begins in the middle."""
    return sentence[:1].upper() + sentence[1:]
