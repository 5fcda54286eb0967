"""It learns, and without hindsight the same budget does not suffice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pchid.cli
from pchid.runs import RunDirectory

SMALL = ("--policy.hidden_sizes", "[64]", "--batch-size", 64, "--quiet")


def learn(out: Path, *words: object) -> list[dict[str, float]]:
    assert pchid.cli.main([str(word) for word in ("train", *words, "--out", out)]) == 0
    return RunDirectory(out).read_metrics()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_bit_flip_needs_hindsight(tmp_path: Path, seed: int) -> None:
    base: tuple[Any, ...] = ("BitFlip-v0", "--env.n_bits", 6, "--episodes", 120, "--seed", seed, *SMALL)
    base += ("--updates-per-episode", 15, "--final-episodes", 200)
    with_hindsight = learn(tmp_path / "hid", *base, "--method", "hid")
    without = learn(tmp_path / "id", *base, "--method", "id")
    assert with_hindsight[-1]["final_success"] >= 0.95
    assert without[-1]["final_success"] <= 0.3


@pytest.mark.slow
def test_hanoi_needs_the_continuation_which_reaches_K_max(tmp_path: Path) -> None:
    base: tuple[Any, ...] = ("Hanoi-v0", "--env.n_discs", 2, "--num-envs", 8, "--episodes", 1500, *SMALL)
    base += ("--updates-per-episode", 2, "--eval-episodes", 50, "--final-episodes", 100)
    rows = learn(tmp_path / "pchid", *base, "--K-max", 3)
    K = [row["K"] for row in rows]
    assert sorted(K) == K
    assert K[0] == 1
    assert K[-1] == 3
    assert rows[-1]["final_success"] >= 0.95
    assert rows[-1]["test_steps"] > 0
    for k in (1, 2, 3):
        assert rows[-1][f"continuation_{k}"] >= 0.9
    one_step = learn(tmp_path / "hid", *base, "--method", "hid")
    assert one_step[-1]["final_success"] <= 0.7


@pytest.mark.slow
def test_a_mastered_step_lets_the_continuation_go_on(tmp_path: Path) -> None:
    # One step of bit flipping has one right action, so its loss falls towards zero and never levels off. That must
    # not keep K at 1 when the policy has long been perfect.
    rows = learn(
        *(tmp_path / "run", "BitFlip-v0", "--env.n_bits", 5, "--K-max", 3, "--episodes", 300, *SMALL),
        *("--updates-per-episode", 10, "--eval-episodes", 50, "--final-episodes", 100),
    )
    assert rows[-1]["final_success"] == 1.0
    assert rows[-1]["K"] == 3


@pytest.mark.slow
def test_evolution_learns_hanoi(tmp_path: Path) -> None:
    base: tuple[Any, ...] = ("Hanoi-v0", "--env.n_discs", 2, "--num-envs", 8, "--episodes", 1000, *SMALL)
    base += ("--updates-per-episode", 2, "--eval-episodes", 50, "--final-episodes", 100, "--method", "pehid")
    rows = learn(tmp_path / "pehid", *base, "--K-max", 3)
    assert {row["K"] for row in rows} == {3.0}
    assert rows[-1]["final_success"] >= 0.75
    assert rows[-1]["final_success"] >= rows[0]["final_success"] + 0.4


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_fetch_reach_takes_five_episodes_and_hindsight(tmp_path: Path, seed: int) -> None:
    base = ("FetchReach-v4", "--episodes", 5, "--seed", seed, "--quiet")
    base += ("--eval-every", 5, "--eval-episodes", 1, "--final-episodes", 20)
    rows = learn(tmp_path / "pchid", *base)
    assert rows[-1]["env_steps"] == 250
    assert rows[-1]["final_success"] == 1.0
    assert learn(tmp_path / "id", *base, "--method", "id")[-1]["final_success"] <= 0.3


@pytest.mark.slow
def test_grid_world_is_learned_by_value_iteration(tmp_path: Path) -> None:
    words = ("GridWorld-v0", "--env.size", 8, "--episodes", 80, "--K-max", 3, "--batch-size", 64, "--quiet")
    words += ("--updates-per-episode", 3, "--eval-every", 40, "--eval-episodes", 100, "--final-episodes", 200)
    rows = learn(tmp_path / "run", *words)
    assert rows[-1]["final_success"] >= 0.6
    assert rows[-1]["final_success"] >= rows[0]["final_success"] + 0.2
    without = learn(tmp_path / "id", *words[:5], "--method", "id", *words[7:])
    assert without[-1]["final_success"] <= rows[-1]["final_success"] - 0.2
