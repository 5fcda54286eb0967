"""The page as HTML: nothing in it comes from elsewhere, nothing escapes, and everybody can find their way."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from pages import RESULTS, Page, claims_on, colours, contrast, write_made_up

from pchid.experiments.claims import Claim
from pchid.report import write_report
from pchid.report.collect import WORDS, collect
from pchid.report.markup import Html, escaped, script_data
from pchid.report.page import SCRIPTS, STYLES, asset, page
from pchid.report.sections import options_of

CURVES = {"a": [[0.0, 0.25], [0.0, 0.5]], "b": [[0.1, 0.7], [0.2, 0.8]]}
NASTY = '</script><script>alert("1")</script><img src=x onerror=alert(2)> & \'"'


def page_of(results: Path) -> Page:
    return Page(page(collect(results), {}))


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a part of the committed results that has everything in it."""
    folder = tmp_path_factory.mktemp("committed")
    for path in RESULTS.iterdir():
        if path.name in ("ou", "gridworld", "animations") or path.suffix == ".json":
            (folder / path.name).symlink_to(path)
    write_made_up(folder, CURVES, name="mine", claims=claims_on("a", 0.5), quick=True, missing=2)
    write_report(folder, folder / "out" / "report.html")
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def whole(committed: Path) -> Page:
    return Page(committed.read_text())


def test_nothing_that_a_file_says_becomes_markup(tmp_path: Path) -> None:
    plain = len(page_of(write_made_up(tmp_path / "plain", CURVES, claims=claims_on("b", 0.5))).elements)
    nasty = {f"a{NASTY.replace('/', '')}": CURVES["a"], "b": CURVES["b"]}
    claims = [Claim(NASTY, lambda results: ("reproduced", NASTY))]
    found = page_of(write_made_up(tmp_path / "nasty", nasty, shows=NASTY, claims=claims))
    assert len(found.elements) == plain
    assert NASTY in {one["text"] for one in found.all("p")}
    assert found.data["charts"][0]["rows"][0]["label"] == f"a{NASTY.replace('/', '')}"


def test_data_inside_a_script_cannot_end_it() -> None:
    value = {"<!--": ["</script>", "&amp;", "\u2028", "ä"]}
    text = script_data(value)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_data(float("nan"))


def test_html_is_escaped_once() -> None:
    assert escaped("a < b") == "a &lt; b"
    assert escaped(escaped("a < b")) == "a &lt; b"
    assert escaped(Html("<b>")) == "<b>"


def test_nothing_is_loaded_from_elsewhere(whole: Page) -> None:
    sources = [one[name] for one in whole.elements for name in ("src", "srcset", "poster", "data-gif") if one.get(name)]
    assert sources
    assert {source.split(":")[0] for source in sources} == {"data"}
    assert {one["href"].split(":")[0] for one in whole.all("link")} == {"data"}
    assert {one["href"][0] for one in whole.all("a")} == {"#"}
    assert not re.search(r"@import|url\(", whole.style)
    scripts = "".join(one["text"] for one in whole.all("script") if one.get("id") != "data")
    for way_out in ("fetch(", "XMLHttpRequest", "import(", "import ", "WebSocket", "sendBeacon", "eval(", "innerHTML"):
        assert way_out not in scripts
    assert set(re.findall(r"https?://[^\"'\s]+", scripts)) == {"http://www.w3.org/2000/svg"}  # a name, not a place


def test_the_browser_is_told_to_refuse_everything_else(whole: Page) -> None:
    policy = next(one["content"] for one in whole.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data:;")
    for tag in ("style", "script"):
        text = next(one["text"] for one in whole.all(tag) if one.get("id") != "data")
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_every_link_leads_somewhere(whole: Page) -> None:
    identifiers = [one["id"] for one in whole.elements if one.get("id")]
    assert len(identifiers) == len(set(identifiers))
    assert {one["href"][1:] for one in whole.all("a")} <= set(identifiers)
    named = {one[name] for one in whole.elements for name in ("aria-labelledby", "for") if one.get(name)}
    assert named <= set(identifiers)


def test_headings_are_in_order(whole: Page) -> None:
    levels = [int(one["tag"][1]) for one in whole.all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_landmarks_tables_pictures_and_controls_have_names(whole: Page) -> None:
    assert [len(whole.all(tag)) for tag in ("main", "nav", "header", "footer")] == [1, 1, 1, 1]
    assert whole.all("html")[0]["lang"] == "en"
    assert whole.all("a")[0]["href"] == "#main"  # the first stop of the keyboard skips the contents
    tables = [index for index, one in enumerate(whole.elements) if one["tag"] == "table"]
    assert tables
    assert all(whole.elements[index + 1]["tag"] == "caption" for index in tables)
    assert all(whole.elements[index + 1]["text"] for index in tables)
    assert all(one["alt"] for one in whole.all("img"))
    assert all("label" in one["inside"] for one in whole.all("input"))
    assert all(one["text"] or one.get("aria-label") for one in whole.all("button"))
    drawings = [one for one in whole.all("svg") if not one.get("aria-hidden")]
    assert all(one.get("role") and one.get("aria-label") for one in drawings)


def test_verdicts_are_counted_and_said_in_words(whole: Page) -> None:
    found = collect(RESULTS)
    expected = Counter(verdict.verdict for one in found if one.name in ("ou", "gridworld") for verdict in one.verdicts)
    expected["not judged"] += 1  # of the made-up experiment, which misses runs
    numbers = [int(one["text"]) for one in whole.all("dd") if one["text"]]  # others are for the playground
    words = [one["text"].strip() for one in whole.all("dt")][: len(numbers)]
    assert dict(zip(words, numbers, strict=True)) == {word: expected[word] for word in WORDS}
    assert Counter(one["text"].strip() for one in whole.of_class("verdict")) == expected
    assert {"reproduced", "better", "not judged"} <= set(expected)


def test_quick_versions_and_missing_runs_are_marked(whole: Page) -> None:
    notes = " ".join(one["text"] for one in whole.of_class("note"))
    assert "quick version" in notes
    assert "2 of its runs are missing" in notes
    assert [one["text"] for one in whole.of_class("badge")] == ["quick version", "2 runs missing"]


def test_every_experiment_has_its_parts(whole: Page) -> None:
    articles = {one["id"]: one["text"] for one in whole.all("article")}
    assert list(articles) == ["experiment-ou", "experiment-gridworld", "experiment-mine"]
    text = articles["experiment-gridworld"]
    assert "pchid reproduce gridworld" in text
    assert "pchid train GridWorld-v0 --method pchid --episodes 500 --eval-every 50 --test interaction --seed 0" in text
    for part in ("environment steps", "TEST steps", "Run with pchid 0.1.0", "--env.size 28"):
        assert part in text
    assert "pchid reproduce" not in articles["experiment-mine"]  # nobody else has declared it
    assert [one["name"] for one in whole.data["charts"]] == ["ou", "gridworld", "mine"]
    assert {one["text"] for one in whole.all("h2")} >= {"Playground", "Rollouts", "Experiments", "Speed"}


def test_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    found = page_of(write_made_up(tmp_path, CURVES))
    assert [one["text"] for one in found.all("h2")] == ["Experiments"]
    assert "grid" not in found.data


def test_an_experiment_of_which_nothing_has_finished_has_a_page(tmp_path: Path) -> None:
    found = page_of(write_made_up(tmp_path, {}, claims=claims_on("a", 0.5), missing=4))
    assert "No run has finished yet." in found.all("article")[0]["text"]
    assert not found.of_class("chart")


def test_the_page_is_small(committed: Path) -> None:
    assert committed.stat().st_size < 5_000_000


def test_the_same_results_give_the_same_page(tmp_path: Path) -> None:
    folder = write_made_up(tmp_path / "results", CURVES, claims=claims_on("b", 0.5))
    for name in ("one", "two"):
        write_report(folder, tmp_path / f"{name}.html")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


@pytest.mark.parametrize("dark", [False, True])
def test_words_can_be_read_on_every_ground(whole: Page, dark: bool) -> None:
    found = colours(whole.style, dark)
    for ground in ("paper", "sheet", "tint"):
        for words in ("ink", "soft", "accent", "goal"):
            assert contrast(found[words], found[ground]) >= 4.5, (words, ground)
    assert contrast(found["on-accent"], found["accent"]) >= 4.5
    for shape in (*(f"colour-{number}" for number in range(10)), "edge", "good", "bad"):
        assert contrast(found[shape], found["sheet"]) >= 3.0, shape
    assert contrast(found["wall"], found["free"]) >= 3.0


def test_colours_tell_rows_apart_in_the_same_number_everywhere(whole: Page) -> None:
    assert {f"colour-{number}" for number in range(10)} <= set(colours(whole.style, dark=False))
    assert "const COLOURS = 10;" in asset("axes.js")


def test_every_asset_is_used() -> None:
    folder = Path(__file__).parents[2] / "pchid" / "report" / "assets"
    used = {*SCRIPTS, *STYLES, "page.html", "grid.html", "hanoi.html"}
    assert {path.name for path in folder.iterdir()} == used


def test_settings_are_taken_from_a_command() -> None:
    command = "pchid train X-v0 --method pchid --hold-goal --weight -1 --policy.sizes '[8, 8]'"
    assert options_of(command) == ["X-v0", "--method pchid", "--hold-goal", "--weight -1", "--policy.sizes [8, 8]"]
    assert options_of("pchid train 'open") == ["pchid train 'open"]
