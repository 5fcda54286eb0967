"""TEST by random network distillation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support import Scrambled

from pchid.checkpoint import join, split
from pchid.distillation import RandomNetworkDistillation
from pchid.errors import InputError
from pchid.hindsight import HindsightPairs

POLICY = Scrambled(2)


def pairs_around(place: float, k: int, count: int, seed: int = 0) -> HindsightPairs:
    rng = np.random.default_rng(seed)
    return HindsightPairs(
        observation=(place + 0.3 * rng.standard_normal((count, 3))).astype(np.float32),
        achieved=np.full((count, 2), place, np.float32),
        goal=(place + 0.3 * rng.standard_normal((count, 2))).astype(np.float32),
        action=rng.integers(2, size=count),
        k=np.full(count, k),
    )


def trained(steps: int = 300, **settings: float) -> RandomNetworkDistillation:
    test = RandomNetworkDistillation(hidden_size=32, output_size=16, **settings)  # type: ignore[arg-type]
    for step in range(steps):
        pairs = pairs_around(0.0, 1, 64, seed=step)
        test(pairs, POLICY, pairs.k)
        test.learn(pairs)
    return test


def test_one_step_pairs_are_always_kept() -> None:
    pairs = pairs_around(0.0, 1, 50, seed=999)
    assert trained(20)(pairs, POLICY, pairs.k).all()


def test_pairs_unlike_those_known_are_kept_and_pairs_like_them_mostly_are_not() -> None:
    test = trained(quantile=0.9)
    like = pairs_around(0.0, 2, 300, seed=999)
    unlike = pairs_around(3.0, 2, 300, seed=999)
    assert test(like, POLICY, like.k).mean() < 0.25
    assert test(unlike, POLICY, unlike.k).mean() > 0.9
    assert test.steps == 0


def test_what_of_the_known_is_let_through_is_set_by_the_quantile() -> None:
    like = pairs_around(0.0, 2, 500, seed=999)
    shares = [trained(100, quantile=quantile)(like, POLICY, like.k).mean() for quantile in (0.2, 0.9)]
    assert shares[0] > 0.5 > shares[1]


def test_without_anything_known_everything_is_kept() -> None:
    pairs = pairs_around(0.0, 3, 10)
    assert RandomNetworkDistillation()(pairs, POLICY, pairs.k).all()


def test_longer_pairs_than_those_tested_are_not_learned() -> None:
    test = trained(50)
    before = {name: value.clone() for name, value in test.state()["networks"].items()}
    test.learn(pairs_around(5.0, 2, 64))  # 2 is the shortest k that can be tested, so no known pair has it
    assert all(torch.equal(value, before[name]) for name, value in test.state()["networks"].items())


def test_a_reloaded_test_decides_and_learns_alike() -> None:
    original = trained(30)
    copy = RandomNetworkDistillation(hidden_size=32, output_size=16, seed=5)
    copy.load_state(join(*split(original.state())))
    for step in range(5):
        batch = pairs_around(0.5, 1, 64, seed=1000 + step)
        original.learn(batch)
        copy.learn(batch)
    pairs = pairs_around(0.7, 2, 200)
    np.testing.assert_array_equal(original(pairs, POLICY, pairs.k), copy(pairs, POLICY, pairs.k))


def test_its_networks_come_from_its_seed_alone() -> None:
    pairs = pairs_around(0.0, 1, 4)
    states = []
    for global_seed, seed in ((0, 1), (5, 1), (0, 2)):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        test = RandomNetworkDistillation(seed=seed)
        test(pairs, POLICY, pairs.k)
        assert torch.equal(torch.get_rng_state(), before)
        states.append(test.state()["networks"]["fixed.0.weight"])
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


@pytest.mark.parametrize("quantile", [-0.1, 1.0])
def test_the_threshold_is_a_quantile(quantile: float) -> None:
    with pytest.raises(InputError, match="quantile"):
        RandomNetworkDistillation(quantile=quantile)
