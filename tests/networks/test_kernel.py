"""The compiled kernel of the value iteration network against the network in plain torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from pchid.envs.grid_world import GridWorldVectorEnv
from pchid.networks import kernel, loops, planning
from pchid.networks.planning import ValueIterationNetwork, shared_maps

# Height and width, q-channels, iterations: 1 to 40, even and odd, and one channel, where nothing is to choose.
CASES = [
    ((8, 8), 10, 1),
    ((8, 8), 9, 12),
    ((8, 8), 1, 7),
    ((16, 16), 10, 0),
    ((16, 16), 10, 2),
    ((16, 16), 10, 20),
    ((16, 16), 13, 40),
    ((28, 28), 8, 3),
    ((28, 28), 10, 40),
    ((5, 11), 3, 6),
    ((17, 4), 2, 25),
]


@pytest.fixture(params=["kernel", "torch"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the kernel, and as where numba is missing."""
    if request.param == "torch":
        monkeypatch.setattr(planning, "compiled_kernel", lambda: None)
    return str(request.param)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def make(channels: int, iterations: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> ValueIterationNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ValueIterationNetwork(8, 6, channels, iterations, shifts=False)
    return network.to(dtype)


def pairs(count: int, shape: tuple[int, int], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random maps, each with an agent and a goal."""
    rng = np.random.default_rng(seed)
    observation = np.zeros((count, 2, *shape), np.uint8)
    observation[:, 0] = rng.random((count, *shape)) < 0.3
    agent, goal = rng.integers(shape, size=(2, count, 2))
    observation[np.arange(count), 1, agent[:, 0], agent[:, 1]] = 1
    return torch.from_numpy(observation), torch.from_numpy(goal)


def results(network: ValueIterationNetwork, scores: Tensor) -> dict[str, Tensor]:
    """The scores, and the gradient of each parameter when they are weighed at random."""
    network.zero_grad()
    generator = torch.Generator().manual_seed(0)
    (scores * torch.randn(scores.shape, generator=generator, dtype=scores.dtype)).sum().backward()
    gradients = {name: value.grad for name, value in network.named_parameters()}
    known = {name: torch.zeros(1) if gradient is None else gradient for name, gradient in gradients.items()}
    return {"scores": scores.detach(), **known}


def assert_alike(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        scale = float(value.abs().max())
        assert float((found[name] - value).abs().max()) <= tolerance * scale, name


@torch.no_grad()
def smallest_gap(network: ValueIterationNetwork, observation: Tensor, goal: Tensor) -> float:
    """How close the two largest channels come in any cell and iteration, relative to the values."""
    q_of_reward = network.q_of_reward(network.reward(network.hidden(network._planes(observation[:, 0], goal))))
    q, gaps = q_of_reward, [1.0]
    for _ in range(network.iterations if q.shape[1] > 1 else 0):
        first, second = q.topk(2, dim=1).values.unbind(dim=1)
        gaps.append(float((first - second).min() / q.abs().max()))
        q = q_of_reward + network.q_of_value(first.unsqueeze(1))
    return min(gaps)


@pytest.mark.parametrize(("shape", "channels", "iterations"), CASES)
def test_outputs_and_gradients_are_the_networks(
    shape: tuple[int, int], channels: int, iterations: int, either_way: str
) -> None:
    network, (observation, goal) = make(channels, iterations), pairs(5, shape)
    expected = results(network, network.forward_reference(observation, goal))
    assert_alike(results(network, network(observation, goal)), expected, 1e-10)


@pytest.mark.parametrize(("shape", "channels", "iterations"), CASES)
def test_in_single_precision_too(shape: tuple[int, int], channels: int, iterations: int, either_way: str) -> None:
    observation, goal = pairs(2, shape)
    for seed in range(100):
        # Channels that differ by less than rounding are taken for one another now and then, by torch as well, and then
        # gradients differ for a reason that says nothing about the kernel.
        if smallest_gap(make(channels, iterations, seed), observation, goal) > 2e-6:
            break
    else:
        pytest.fail("no network without near ties")
    network = make(channels, iterations, seed, torch.float32)
    expected = results(network, network.forward_reference(observation, goal))
    assert expected["scores"].dtype == torch.float32
    assert_alike(results(network, network(observation, goal)), expected, 1e-5)


def test_gradients_are_those_of_finite_differences() -> None:
    network, (observation, goal) = make(4, 5), pairs(3, (5, 6))
    planes = network._planes(observation[:, 0], goal)
    cells = kernel.agent_cells(observation[:, 1], slice(None))
    weights = [weight.detach().requires_grad_() for weight in network.weights()]
    assert torch.autograd.gradcheck(lambda *given: kernel.q_at_cells(planes, *given, cells, 3, 5), weights)


def test_of_equal_channels_the_first_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # Small whole numbers: sums are exact in any order, and there are ties everywhere.
    network, (observation, goal) = make(6, 4), pairs(4, (8, 8))
    with torch.no_grad():
        for layer in (network.hidden, network.reward, network.q_of_reward, network.q_of_value):
            layer.weight.copy_((10 * layer.weight).round().clamp(-1, 1))
        network.hidden.bias.zero_()  # type: ignore[union-attr]
        network.q_of_value.weight[3:] = network.q_of_value.weight[:3]
    assert smallest_gap(network, observation, goal) == 0.0
    found = results(network, network(observation, goal))
    assert torch.equal(found["scores"], network.forward_reference(observation, goal))
    # The reference shares a gradient out among equals; a rule that can be told in one byte is the same on any device.
    monkeypatch.setattr(planning, "compiled_kernel", lambda: None)
    assert_alike(found, results(network, network(observation, goal)), 1e-12)


def test_which_of_equal_channels_is_taken_does_not_matter_before_them(either_way: str) -> None:
    network, (observation, goal) = make(10, 9), pairs(4, (8, 8))
    with torch.no_grad():
        for layer in (network.q_of_reward, network.q_of_value):
            layer.weight[5:] = layer.weight[:5]
    expected = results(network, network.forward_reference(observation, goal))
    found = results(network, network(observation, goal))
    for name in ("q_of_reward.weight", "q_of_value.weight"):
        for gradients in (found, expected):
            gradients[name] = gradients[name][:5] + gradients[name][5:]
    assert_alike(found, expected, 1e-10)


def test_the_same_bits_on_any_number_of_threads(threads: None) -> None:
    network, (observation, goal) = make(10, 12, dtype=torch.float32), pairs(50, (12, 12))
    found = []
    for count in (1, 2, 3, 2):
        torch.set_num_threads(count)
        found.append(results(network, network(observation, goal)))
    for other in found[1:]:
        assert all(torch.equal(other[name], value) for name, value in found[0].items())


def test_a_pair_has_the_same_bits_in_any_batch_and_without_gradients() -> None:
    network, (observation, goal) = make(10, 12, dtype=torch.float32), pairs(20, (16, 16))
    batch = network(observation, goal)
    with torch.no_grad():
        alone = torch.cat([network(observation[i : i + 1], goal[i : i + 1]) for i in range(20)])
    torch.testing.assert_close(alone, batch)  # the readout's matrix product may round differently
    planes = network._planes(observation[:, 0], goal)
    weights = network.weights()
    together = kernel.q_at_cells(planes, *weights, kernel.agent_cells(observation[:, 1], slice(None)), 20, 12)
    for i in range(20):
        cells = kernel.agent_cells(observation[i : i + 1, 1], slice(None))
        with torch.no_grad():
            assert torch.equal(kernel.q_at_cells(planes[i : i + 1], *weights, cells, 1, 12)[0], together[i])


def test_nothing_unwritten_is_ever_read(monkeypatch: pytest.MonkeyPatch) -> None:
    network, (observation, goal) = make(10, 6, dtype=torch.float32), pairs(9, (16, 16))
    expected = results(network, network(observation, goal))

    def poisoned(shape: Any, dtype: Any) -> NDArray[Any]:
        return np.full(shape, 255 if dtype == np.uint8 else np.nan, dtype)

    monkeypatch.setattr(kernel, "np", SimpleNamespace(**{**vars(np), "empty": poisoned}))
    found = results(network, network(observation, goal))
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    with torch.no_grad():
        assert torch.equal(network(observation, goal), expected["scores"])


def test_pairs_with_the_same_map_and_goal_are_computed_once(either_way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, (observation, goal) = make(10, 8), pairs(12, (8, 8))
    observation[4:, 0], goal[4:] = observation[:4, 0].repeat(2, 1, 1), goal[:4].repeat(2, 1)
    goal[11] = 7 - goal[11]  # the map of 3 and 7, but another goal
    computed = []
    planes = network._planes
    monkeypatch.setattr(network, "_planes", lambda *given: computed.append(len(given[0])) or planes(*given))
    expected = results(network, network.forward_reference(observation, goal))
    assert_alike(results(network, network(observation, goal)), expected, 1e-10)
    assert computed == [12, 5]


def test_which_pairs_share_a_map() -> None:
    observation, goal = pairs(6, (8, 8))
    assert shared_maps(observation[:, 0], goal) == (slice(None), slice(None))
    observation[[3, 5], 0], goal[[3, 5]] = observation[1, 0].clone(), goal[1].clone()
    for kind in (torch.uint8, torch.float32, torch.bool):
        first, map_of = shared_maps(observation[:, 0].to(kind), goal.to(torch.float32))
        assert first.tolist() == [0, 1, 2, 4]
        assert map_of.tolist() == [0, 1, 2, 1, 3, 1]


def test_agents_may_be_none_many_or_fractions(either_way: str) -> None:
    network, (observation, goal) = make(9, 5), pairs(5, (8, 8))
    observation = observation.double()
    observation[0, 1] = 0.0
    observation[2, 1, 0, 0] = 0.25
    observation[2, 1, 7, 7] = -2.0
    observation[4, :, :, :], goal[4] = observation[2], goal[2]
    observation[4, 1] *= 3.0
    expected = results(network, network.forward_reference(observation, goal))
    assert_alike(results(network, network(observation, goal)), expected, 1e-10)
    assert not expected["scores"][0].any()


@pytest.mark.parametrize("shape", [(8, 8), (14, 14), (6, 9)])
def test_a_table_holds_the_scores_of_every_cell(shape: tuple[int, int], either_way: str) -> None:
    network, (maps, goals) = make(10, 7), pairs(3, shape)
    cells = shape[0] * shape[1]
    everywhere = torch.zeros(3, cells, 2, *shape, dtype=torch.uint8)
    everywhere[:, :, 0] = maps[:, None, 0]
    everywhere[:, torch.arange(cells), 1] = torch.eye(cells, dtype=torch.uint8).view(cells, *shape)
    from_each = network.forward_reference(everywhere.flatten(0, 1), goals.repeat_interleave(cells, dim=0))
    expected = results(network, from_each.view(3, *shape, 8).permute(0, 3, 1, 2))
    table = network.table(maps[:, 0], goals)
    assert table.shape == (3, 8, *shape)
    assert_alike(results(network, table), expected, 1e-10)


def test_an_empty_batch_has_no_scores(either_way: str) -> None:
    observation, goal = pairs(3, (8, 8))
    assert make(10, 4)(observation[:0], goal[:0]).shape == (0, 8)
    assert make(10, 4).table(observation[:0, 0], goal[:0]).shape == (0, 8, 8, 8)


def test_observations_may_have_gradients_too() -> None:
    network, (observation, goal) = make(10, 4), pairs(3, (8, 8))
    wanted = observation.double().requires_grad_()
    network(wanted, goal).sum().backward()
    assert wanted.grad is not None
    assert wanted.grad[:, 0].abs().sum() > 0
    torch.testing.assert_close(network(observation, goal), network(wanted, goal))
    network.table(wanted[:, 0], goal).sum().backward()
    torch.testing.assert_close(network.table(wanted[:, 0], goal), network.table(observation[:, 0], goal))


@pytest.mark.parametrize("kind", [torch.uint8, torch.bool, torch.int64, torch.float32, torch.float64])
def test_observations_may_be_of_any_type(kind: torch.dtype, either_way: str) -> None:
    network, (observation, goal) = make(10, 4, dtype=torch.float32), pairs(3, (8, 8))
    scores = network(observation.to(kind), goal)
    assert scores.dtype == torch.float32
    assert torch.equal(scores, network(observation, goal))
    torch.testing.assert_close(scores, network.forward_reference(observation.to(kind), goal.to(torch.float32)))


def test_frozen_parameters_get_no_gradients() -> None:
    network, (observation, goal) = make(10, 4), pairs(3, (8, 8))
    network.q_of_value.requires_grad_(False)
    expected = results(network, network.forward_reference(observation, goal))
    assert_alike(results(network, network(observation, goal)), expected, 1e-10)
    network.requires_grad_(False)
    assert not network(observation, goal).requires_grad


def test_more_channels_than_a_byte_can_tell_apart_are_left_to_torch() -> None:
    network, (observation, goal) = make(kernel.MAX_CHANNELS + 1, 2), pairs(2, (8, 8))
    assert network._kernel(planes := network._planes(observation[:, 0], goal)) is None
    assert make(kernel.MAX_CHANNELS, 2)._kernel(planes) is kernel
    expected = results(network, network.forward_reference(observation, goal))
    assert_alike(results(network, network(observation, goal)), expected, 1e-10)


def test_half_precision_is_left_to_torch() -> None:
    network, (observation, goal) = make(10, 2, dtype=torch.bfloat16), pairs(2, (8, 8))
    assert network._kernel(network._planes(observation[:, 0], goal)) is None
    assert network(observation, goal).dtype == torch.bfloat16


def test_without_numba_torch_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, _ = GridWorldVectorEnv(4, size=8, n_obstacles=8).reset(seed=0)
    observation, goal = torch.as_tensor(seen["observation"]), torch.as_tensor(seen["desired_goal"])
    network = make(10, 6)
    expected = network(observation, goal)
    monkeypatch.setitem(sys.modules, "numba", None)
    for name in ("pchid.networks.kernel", "pchid.networks.loops"):
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(name)
    planning.compiled_kernel.cache_clear()
    try:
        assert planning.compiled_kernel() is None
        torch.testing.assert_close(network(observation, goal), expected)
    finally:
        planning.compiled_kernel.cache_clear()


def test_numba_is_imported_when_a_network_is_used_and_not_before() -> None:
    code = "import sys, pchid.networks.vin; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_functions_compile_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    real = loops.njit

    def nowhere_to_write(cache: bool = False, **settings: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return real(**settings)

    monkeypatch.setattr(loops, "njit", nowhere_to_write)

    @loops.compiled()
    def doubled(number: int) -> int:
        return 2 * number

    assert doubled(21) == 42


@pytest.mark.slow
def test_no_index_is_out_of_bounds(tmp_path: Path) -> None:
    settings = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    chosen = "(are_the_networks or unwritten or table) and not torch"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", chosen]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
