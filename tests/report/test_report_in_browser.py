"""The page in a real browser: it opens from disk, asks nobody for anything, and plays as Python plays."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from pages import RESULTS, write_made_up
from selenium import webdriver
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import pchid.cli
from pchid.envs.grid_world import GridWorldVectorEnv
from pchid.envs.hanoi import HanoiVectorEnv, moves_between
from pchid.envs.randomness import uniform
from pchid.report import write_report
from pchid.report.collect import collect
from pchid.report.policies import best_policies
from pchid.runs import RunDirectory
from pchid.training import load_policy
from pchid.watch.grid_world import greedy_moves

pytestmark = pytest.mark.slow

CHROMIUM, CHROMEDRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
CURVES = {"a": [[0.0, 0.25, 0.5], [0.0, 0.5, 0.75]], "b": [[0.1, 0.7, 0.9], [0.2, 0.8, 1.0]]}
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
DESK = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
DISCS = 4


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    missing = [str(path) for path in (CHROMIUM, CHROMEDRIVER) if not path.exists()]
    if missing and os.environ.get("PCHID_BROWSER") == "required":
        pytest.fail(f"PCHID_BROWSER=required, but there is no {missing[0]}")
    if missing:
        pytest.skip(f"there is no {missing[0]}; PCHID_BROWSER=required makes this a failure")
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(CHROMEDRIVER)))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed GridWorld policies, a Hanoi policy that knows single moves, and curves that are easy to read."""
    folder = tmp_path_factory.mktemp("results")
    for name in ("gridworld", "animations"):
        shutil.copytree(RESULTS / name, folder / name)
    write_made_up(folder, CURVES)
    write_made_up(folder, {"single moves": [[0.0, 0.06]]}, name="towers")
    run, kept = folder / "run", folder / "towers" / "policies" / "single moves-0"
    words = ("train", "Hanoi-v0", "--method", "hid", "--episodes", 600, "--policy.hidden_sizes", "[64]", "--quiet")
    assert pchid.cli.main([str(word) for word in (*words, "--out", run)]) == 0
    shutil.copytree(run / "policy", kept / "policy")
    shutil.copy(run / "config.json", kept)
    return folder


@pytest.fixture(scope="module")
def report(results: Path) -> Path:
    write_report(results, results / "report.html")
    return results / "report.html"


@pytest.fixture
def page(browser: webdriver.Chrome, report: Path) -> webdriver.Chrome:
    """The page, freshly opened on a desk in light colours."""
    look(browser, DESK)
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
    )
    browser.get(report.as_uri())
    browser.execute_script("localStorage.clear()")
    browser.get(report.as_uri())
    return browser


def look(browser: webdriver.Chrome, screen: dict[str, Any]) -> None:
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)


def text(page: webdriver.Chrome, identifier: str) -> str:
    return page.find_element(By.ID, identifier).text


def wait_for(page: webdriver.Chrome, identifier: str, words: str) -> str:
    WebDriverWait(page, 60).until(lambda _: words in text(page, identifier))
    return text(page, identifier)


def centre(page: webdriver.Chrome, cell: tuple[int, int], size: int) -> tuple[int, int]:
    """Where a cell of the map is, from the middle of the map."""
    width = page.find_element(By.ID, "grid-map").size["width"]
    return tuple(round((part + 0.5) / size * width - width / 2) for part in reversed(cell))  # type: ignore[return-value]


def drag(page: webdriver.Chrome, size: int, *cells: tuple[int, int]) -> None:
    """Press on the first cell, pass the others, let go."""
    board = page.find_element(By.ID, "grid-map")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", board)
    actions = ActionChains(page, duration=20).move_to_element_with_offset(board, *centre(page, cells[0], size))
    actions.click_and_hold()
    for cell in cells[1:]:
        actions.move_to_element_with_offset(board, *centre(page, cell, size))
    actions.release().perform()


def grid_state(page: webdriver.Chrome) -> dict[str, Any]:
    script = (
        "const {obstacle, start, goal, size} = pchid.grid.state; return {obstacle: [...obstacle], start, goal, size}"
    )
    state: dict[str, Any] = page.execute_script(script)
    return state


def test_the_page_opens_from_disk_without_a_word_of_complaint(page: webdriver.Chrome) -> None:
    page.get_log("performance")
    page.get_log("browser")
    page.refresh()
    page.execute_script("for (const part of document.querySelectorAll('details')) part.open = true")
    for figure in page.find_elements(By.CSS_SELECTOR, ".rollout button"):
        page.execute_script("arguments[0].click()", figure)
    page.execute_cdp_cmd("Page.printToPDF", {})
    assert page.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    assert any(address.startswith("file://") and address.endswith("report.html") for address in asked)
    assert {address.split(":")[0] for address in asked} <= {"file", "data", "blob"}


def test_the_browser_would_refuse_to_ask(page: webdriver.Chrome) -> None:
    answer = page.execute_async_script(
        "const done = arguments[0]; fetch('https://example.org/').then(() => done('loaded'), () => done('refused'))"
    )
    assert answer == "refused"
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))


@pytest.mark.parametrize(("size", "maps"), [(16, 60), (8, 20), (28, 20)])
def test_the_policy_of_the_page_is_that_of_python(page: webdriver.Chrome, results: Path, size: int, maps: int) -> None:
    path = best_policies(next(one for one in collect(results) if one.name == "gridworld"))[f"{size}x{size}"][0]
    config = RunDirectory(path).read_config()
    agent: Any = load_policy(RunDirectory(path), config)
    env = GridWorldVectorEnv(maps, autoreset_mode=AutoresetMode.DISABLED, **config["env_options"])
    observations, _ = env.reset(seed=100 + size)
    obstacle, goal = observations["observation"][:, 0], observations["desired_goal"]
    moves = greedy_moves(agent, agent.policy.act, observations)
    ours = [
        page.execute_script("return pchid.plan(...arguments).moves", obstacle[i].tolist(), goal[i].tolist())
        for i in range(maps)
    ]
    np.testing.assert_array_equal(ours, moves)
    ways, lengths = [observations["achieved_goal"]], env.distance(env.get_state(), goal)
    for _ in range(env.horizon):
        observations, *_ = env.step(agent.policy.act(observations))
        ways.append(observations["achieved_goal"])
    reached = 0
    for i in range(maps):
        walked = page.execute_script(
            "return pchid.walk(...arguments)", obstacle[i].tolist(), ways[0][i].tolist(), goal[i].tolist()
        )
        way = [place[i].tolist() for place in ways]
        end = way.index(goal[i].tolist()) if goal[i].tolist() in way else env.horizon
        assert walked == {"way": way[: end + 1], "best": lengths[i]}
        reached += end < env.horizon
    assert reached > 0.8 * maps


def test_on_an_empty_map_only_ties_may_be_broken_otherwise(page: webdriver.Chrome, results: Path) -> None:
    path = best_policies(next(one for one in collect(results) if one.name == "gridworld"))["16x16"][0]
    agent: Any = load_policy(RunDirectory(path), RunDirectory(path).read_config())
    obstacle = np.ones((1, 16, 16), np.uint8)
    obstacle[:, 1:-1, 1:-1] = 0
    goal = [8, 8]  # in the middle, where most cells have two moves that are as good
    with torch.no_grad():
        scores = agent.policy.acting.table(torch.as_tensor(obstacle), torch.tensor([goal]))[0].numpy()
    plan = page.execute_script("return pchid.plan(...arguments)", obstacle[0].tolist(), goal)
    np.testing.assert_allclose(plan["values"], scores.max(axis=0), rtol=1e-5)
    for row, column in np.argwhere(obstacle[0] == 0):
        if [row, column] != goal:
            chosen = scores[plan["moves"][row][column], row, column]
            assert chosen >= scores[:, row, column].max() - 1e-3


def test_random_maps_are_drawn_as_the_environment_draws_them(page: webdriver.Chrome) -> None:
    env, keys = GridWorldVectorEnv(1), np.arange(40, dtype=np.uint64)
    states, found = env._propose(keys, 0)
    numbers = uniform(keys, 4 + 4 * env.n_obstacles, stream=0)
    assert 0 < found.sum() < len(keys)
    for i in range(len(keys)):
        drawn = page.execute_script("return pchid.propose(...arguments)", numbers[i].tolist(), 16, env.n_obstacles)
        assert (drawn is not None) == found[i]
        if drawn is not None:
            assert [*divmod(drawn["start"], 16), *divmod(drawn["goal"], 16)] == states[i, 1:5].tolist()
            np.testing.assert_array_equal(drawn["obstacle"], env._observation(states[i : i + 1])[0, 0])


def test_a_wall_drawn_by_pointer_changes_the_path(page: webdriver.Chrome) -> None:
    page.find_element(By.ID, "grid-clear").click()
    drag(page, 16, divmod(grid_state(page)["start"], 16), (8, 2))
    drag(page, 16, divmod(grid_state(page)["goal"], 16), (8, 13))
    state = grid_state(page)
    assert (divmod(state["start"], 16), divmod(state["goal"], 16)) == ((8, 2), (8, 13))
    straight = text(page, "grid-says")
    assert straight == "The policy reaches the goal in 11 moves, and no path is shorter."
    before = page.find_element(By.CSS_SELECTOR, ".map .policy").get_attribute("d")
    drag(page, 16, (3, 7), (14, 7))  # from the third row down to the last: the way round is above
    assert [cell // 16 for cell, blocked in enumerate(grid_state(page)["obstacle"]) if blocked and cell % 16 == 7][
        1:-1
    ] == [*range(3, 15)]
    assert text(page, "grid-says") != straight
    assert text(page, "grid-shortest") == "12 moves"  # six rows up to the gap, on five columns
    assert page.find_element(By.CSS_SELECTOR, ".map .policy").get_attribute("d") != before
    drag(page, 16, (1, 7), (3, 7))
    assert text(page, "grid-says") == "No path leads to the goal, so no policy can reach it."
    drag(page, 16, (8, 7), (8, 7))  # a press erases
    assert text(page, "grid-says") == straight


def test_a_wall_can_be_drawn_by_touch(page: webdriver.Chrome) -> None:
    look(page, PHONE)
    page.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        page.refresh()
        page.execute_script("document.getElementById('grid-clear').click()")
        page.execute_script("document.getElementById('grid-map').scrollIntoView({block: 'center'})")
        box = page.execute_script(
            "const b = document.getElementById('grid-map').getBoundingClientRect(); return [b.x, b.y, b.width]"
        )
        places = [{"x": box[0] + (c + 0.5) / 16 * box[2], "y": box[1] + 5.5 / 16 * box[2]} for c in (3, 6, 9)]
        for kind, points in (
            ("touchStart", places[:1]),
            ("touchMove", places[1:2]),
            ("touchMove", places[2:]),
            ("touchEnd", []),
        ):
            page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        state = grid_state(page)
        drawn = [cell % 16 for cell in range(5 * 16 + 1, 5 * 16 + 15) if state["obstacle"][cell]]
        assert drawn == [cell for cell in range(3, 10) if 5 * 16 + cell not in (state["start"], state["goal"])]
    finally:
        page.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_the_map_can_be_edited_by_keys_alone(page: webdriver.Chrome) -> None:
    page.find_element(By.ID, "grid-clear").click()
    board = page.find_element(By.ID, "grid-map")
    page.execute_script("pchid.grid.begin({obstacle: pchid.grid.state.obstacle, start: 8 * 16 + 4, goal: 8 * 16 + 12})")
    page.execute_script("arguments[0].focus()", board)
    board.send_keys(Keys.ARROW_RIGHT * 2, Keys.SPACE)
    assert grid_state(page)["obstacle"][8 * 16 + 6] == 1
    board.send_keys(Keys.SPACE)
    assert grid_state(page)["obstacle"][8 * 16 + 6] == 0
    board.send_keys(Keys.ARROW_UP, "s")
    assert divmod(grid_state(page)["start"], 16) == (7, 6)
    board.send_keys(Keys.ARROW_DOWN * 3, Keys.ARROW_LEFT, "g")
    assert divmod(grid_state(page)["goal"], 16) == (10, 5)
    assert text(page, "grid-says") == "The policy reaches the goal in 3 moves, and no path is shorter."
    board.send_keys(Keys.ARROW_UP)
    wait_for(page, "spoken", "Row 9, column 5: free, the policy goes south")
    board.send_keys(Keys.ARROW_LEFT * 20)  # the border holds the cursor
    wait_for(page, "spoken", "Row 9, column 1")


def test_the_keyboard_gets_everywhere(page: webdriver.Chrome) -> None:
    body = page.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    assert page.switch_to.active_element.get_attribute("class") == "skip"
    page.switch_to.active_element.send_keys(Keys.ENTER)
    assert page.execute_script("return document.activeElement.id") == "main"
    met: list[str | None] = []
    while len(met) < 200:
        page.switch_to.active_element.send_keys(Keys.TAB)
        active = page.switch_to.active_element
        if active.tag_name == "body":
            break  # that was the last one
        met.append(active.get_attribute("id") or active.get_attribute("class"))
        outline = active.value_of_css_property("outline-style")
        unseen = active.get_attribute("type") == "radio"  # the words beside it carry the outline
        assert unseen or outline != "none", met[-1]
    for control in ("grid-map", "grid-random", "grid-clear", "grid-arrows", "peg", "hanoi-solve", "player"):
        assert control in met
    assert met.index("grid-map") < met.index("hanoi-solve") < met.index("made-up-measure") < met.index("made-up-place")


def test_what_is_shown_can_be_chosen(page: webdriver.Chrome) -> None:
    for toggle, drawn in (("arrows", ".arrows"), ("way", ".shortest")):
        path = page.find_element(By.CSS_SELECTOR, f".map {drawn}")
        assert path.get_attribute("d")
        page.find_element(By.ID, f"grid-{toggle}").click()
        assert not path.get_attribute("d")
    assert page.find_elements(By.CSS_SELECTOR, ".map .shaded")
    page.find_element(By.ID, "grid-values").click()
    assert not page.find_elements(By.CSS_SELECTOR, ".map .shaded")
    page.execute_script("document.querySelector('#grid-sizes input[value=\"8\"]').click()")
    assert grid_state(page)["size"] == 8
    page.find_element(By.ID, "grid-random").click()
    assert len(grid_state(page)["obstacle"]) == 64
    assert "8x8" in text(page, "grid-origin")


def hanoi_policy(results: Path) -> Any:
    experiment = next(one for one in collect(results) if one.name in ("towers", "hanoi"))
    path = max(best_policies(experiment).values(), key=lambda kept: kept[1])[0]  # as the page chooses
    agent: Any = load_policy(RunDirectory(path), RunDirectory(path).read_config())
    return agent.policy


def test_the_hanoi_policy_of_the_page_is_that_of_python(page: webdriver.Chrome, results: Path) -> None:
    positions = np.array(list(itertools.product(range(3), repeat=DISCS)))
    pairs = [(one, two) for one in positions for two in positions if (one != two).any()]
    env = HanoiVectorEnv(1, n_discs=DISCS)
    seen, wanted = (env._one_hot(np.array(side)) for side in zip(*pairs, strict=True))
    scores = hanoi_policy(results).acting(torch.as_tensor(seen), torch.as_tensor(wanted)).detach().numpy()
    ours = page.execute_script("return pchid.hanoiMoves(arguments[0])", [[a.tolist(), b.tolist()] for a, b in pairs])
    best = np.sort(scores, axis=1)
    clear = best[:, -1] - best[:, -2] > 1e-4  # sums of many terms: nobody says in which order torch adds them
    assert clear.mean() > 0.99
    np.testing.assert_array_equal(np.array(ours)[clear], scores.argmax(axis=1)[clear])
    fewest = page.execute_script(
        "return arguments[0].map(([a, b]) => pchid.fewestMoves(a, b))",
        [[a.tolist(), b.tolist()] for a, b in pairs[::40]],
    )
    expected = moves_between(*(np.array(side) for side in zip(*pairs[::40], strict=True)))
    np.testing.assert_array_equal(fewest, expected)


def played(policy: Any, position: list[int], goal: list[int]) -> int | None:
    """In how many moves Python's policy solves a task, or None."""
    env = HanoiVectorEnv(1, autoreset_mode=AutoresetMode.DISABLED, n_discs=DISCS)
    env.reset(seed=0)
    env.set_state(np.array([[0, *position, *goal]]))
    for count in range(1, env.horizon + 1):
        _, _, over, *_ = env.step(policy.act(env.observe()))
        if over[0]:
            return count
    return None


def test_hanoi_is_set_by_taps_and_solved(page: webdriver.Chrome, results: Path) -> None:
    goal = page.find_elements(By.CSS_SELECTOR, "#hanoi-goal .peg")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", goal[0])
    page.execute_script("pchid.hanoi.begin([0, 0, 0, 0], [0, 0, 0, 0])")
    assert not page.find_element(By.ID, "hanoi-solve").is_enabled()
    goal[0].click()
    assert "its top disc is lifted" in goal[0].get_attribute("aria-label")
    goal[2].click()
    assert page.execute_script("return pchid.hanoi.goal.position") == [2, 0, 0, 0]
    goal[0].click()
    goal[2].click()  # the second disc does not fit on the first
    assert page.execute_script("return pchid.hanoi.goal.position") == [2, 0, 0, 0]
    assert text(page, "hanoi-fewest") == "1 move"
    assert (
        played(hanoi_policy(results), [0, 0, 0, 0], [2, 0, 0, 0]) == 1
    )  # single moves are what this policy has learned
    page.find_element(By.ID, "hanoi-solve").click()
    assert wait_for(page, "hanoi-says", "Solved") == "Solved in 1 move; the fewest possible are 1."
    assert page.execute_script("return pchid.hanoi.now.position") == [2, 0, 0, 0]
    assert text(page, "hanoi-moves").endswith("disc 1 → peg 3")


def test_hanoi_by_keys_ends_as_in_python(page: webdriver.Chrome, results: Path) -> None:
    page.execute_script("pchid.hanoi.begin([0, 0, 0, 0], [0, 0, 0, 0])")
    page.execute_script("document.querySelector('#hanoi-now .peg').focus()")
    for key in "131232":
        page.switch_to.active_element.send_keys(key)
    assert page.execute_script("return pchid.hanoi.now.position") == [1, 1, 0, 0]
    expected = played(hanoi_policy(results), [1, 1, 0, 0], [0, 0, 0, 0])
    page.execute_script("document.getElementById('hanoi-solve').focus()")
    page.switch_to.active_element.send_keys(Keys.ENTER)
    wait_for(page, "hanoi-says", "olved")
    sentence = text(page, "hanoi-says")
    assert sentence == (
        "Not solved in 30 moves; 3 would do."
        if expected is None
        else f"Solved in {expected} moves; the fewest possible are 3."
    )


@pytest.mark.skipif(not (RESULTS / "hanoi" / "policies").exists(), reason="no Hanoi policy is committed")
def test_the_committed_hanoi_policy_solves_its_tasks(browser: webdriver.Chrome, tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "hanoi", tmp_path / "hanoi")
    write_report(tmp_path, tmp_path / "report.html")
    browser.get((tmp_path / "report.html").as_uri())
    tasks = np.random.default_rng(0).integers(3, size=(50, 2, DISCS)).tolist()
    ours = browser.execute_script("return arguments[0].map((task) => pchid.movesTaken(...task))", tasks)
    policy = hanoi_policy(tmp_path)
    assert ours == [0 if start == goal else played(policy, start, goal) for start, goal in tasks]
    assert sum(moves is not None for moves in ours) > 40
    start, goal = next(task for task, moves in zip(tasks, ours, strict=True) if moves)
    browser.execute_script("pchid.hanoi.begin(...arguments)", start, goal)
    browser.execute_script("document.getElementById('hanoi-solve').click()")
    assert wait_for(browser, "hanoi-says", "olved").startswith(f"Solved in {played(policy, start, goal)} move")


def chart(page: webdriver.Chrome) -> Any:
    figure = page.find_element(By.CSS_SELECTOR, "figure[data-chart='made-up']")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", figure)
    return figure


def values(figure: Any) -> list[str]:
    return [cell.text for cell in figure.find_elements(By.CSS_SELECTOR, "td.value")]


def test_values_are_read_from_curves_by_pointer_and_by_keys(page: webdriver.Chrome) -> None:
    figure = chart(page)
    assert values(figure) == ["0.625", "0.950"]  # the end: means of two seeds
    drawing = figure.find_element(By.CSS_SELECTOR, ".drawing")
    ActionChains(page).move_to_element_with_offset(drawing, 18, 0).perform()  # the middle of the axis
    assert values(figure) == ["0.375", "0.750"]
    assert "100 environment steps" in figure.find_element(By.CSS_SELECTOR, "thead").text
    ActionChains(page).move_to_element(page.find_element(By.CSS_SELECTOR, "h1")).perform()
    assert values(figure) == ["0.625", "0.950"]
    slider = figure.find_element(By.CSS_SELECTOR, "input[type=range]")
    slider.send_keys(Keys.ARROW_LEFT)
    assert values(figure) == ["0.375", "0.750"]
    spoken = wait_for(page, "spoken", "environment steps")
    assert spoken == "final success against environment steps, at 100 environment steps: a 0.375; b 0.750."
    slider.send_keys(Keys.HOME)
    assert values(figure) == ["0.000", "0.150"]
    assert slider.get_attribute("aria-valuetext") == "at 0 environment steps"


def test_rows_measures_and_axes_can_be_chosen(page: webdriver.Chrome) -> None:
    figure = chart(page)
    drawing = figure.find_element(By.CSS_SELECTOR, ".drawing")
    assert len(figure.find_elements(By.CSS_SELECTOR, ".curve .band")) == 2
    figure.find_element(By.CSS_SELECTOR, "tbody input").click()
    assert len(figure.find_elements(By.CSS_SELECTOR, ".curve")) == 1
    assert "a 0." not in drawing.get_attribute("aria-label")
    figure.find_element(By.CSS_SELECTOR, "select[name=measure] option[value=mean_return]").click()
    assert values(figure) == ["-3.8", "-0.5"]
    figure.find_element(By.CSS_SELECTOR, "select[name=axis] option[value=all_steps]").click()
    assert "environment + TEST steps" in drawing.text
    assert "250" in drawing.text  # two evaluations later: 200 steps and 50 of TEST


def test_an_animation_stands_still_until_it_is_played(page: webdriver.Chrome) -> None:
    figure = page.find_element(By.CSS_SELECTOR, ".rollout")
    picture, button = figure.find_element(By.TAG_NAME, "img"), figure.find_element(By.TAG_NAME, "button")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    assert picture.get_attribute("src").startswith("data:image/png")
    button.click()
    assert picture.get_attribute("src").startswith("data:image/gif")
    assert (button.get_attribute("aria-pressed"), button.text.split()[0]) == ("true", "Stop")
    button.click()
    assert picture.get_attribute("src").startswith("data:image/png")


@pytest.mark.parametrize("folded", [True, False])
def test_a_phone_never_scrolls_sideways(page: webdriver.Chrome, folded: bool) -> None:
    look(page, PHONE)
    page.refresh()
    if not folded:
        page.execute_script("for (const part of document.querySelectorAll('details')) part.open = true")
    for size in (8, 16, 28):
        page.execute_script('document.querySelector(`#grid-sizes input[value="${arguments[0]}"]`).click()', size)
        wide, room = page.execute_script("return [document.scrollingElement.scrollWidth, innerWidth]")
        assert room == 390
        assert wide <= room


def test_colours_follow_the_system_until_someone_chooses(page: webdriver.Chrome) -> None:
    def ground() -> str:
        colour: str = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        return colour

    light, button = ground(), page.find_element(By.ID, "theme")
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    dark = ground()
    assert light != dark
    wait_for(page, "theme", "Light colours")  # the page is told at its next frame
    button.click()
    assert ground() == light
    page.refresh()
    assert ground() == light  # remembered
    button = page.find_element(By.ID, "theme")
    button.click()
    assert (ground(), button.text) == (dark, "Light colours")
