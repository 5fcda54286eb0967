"""The planning network that knows the symmetries of the square."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pchid.envs.grid_world import MOVES, GridWorldVectorEnv
from pchid.errors import InputError
from pchid.networks.symmetric import SymmetricNetwork, kernel_orbits
from pchid.networks.vin import VinPolicy, make_network

TURNS = [(turn, mirror) for turn in range(4) for mirror in (False, True)]


def make(iterations: int = 12, seed: int = 0) -> SymmetricNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = SymmetricNetwork(iterations)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return network


def pairs(size: int, count: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
    seen, _ = GridWorldVectorEnv(count, size=size, n_obstacles=size).reset(seed=0)
    return torch.as_tensor(seen["observation"]), torch.as_tensor(seen["desired_goal"])


def moved(planes: np.ndarray, turn: int, mirror: bool) -> np.ndarray:
    planes = planes[..., ::-1] if mirror else planes
    return np.rot90(planes, turn, axes=(-2, -1)).copy()


def moved_moves(turn: int, mirror: bool) -> list[int]:
    """For each move, which one it becomes: seen on a map whose only set cell is the one that it leads to."""
    found = []
    for row, column in MOVES.tolist():
        plane = np.zeros((3, 3))
        plane[1 + row, 1 + column] = 1
        place = np.argwhere(moved(plane, turn, mirror))[0] - 1
        found.append(int(np.flatnonzero((place == MOVES).all(axis=1))[0]))
    return found


@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.parametrize(("turn", "mirror"), TURNS)
def test_turning_or_mirroring_a_map_turns_or_mirrors_the_scores(size: int, turn: int, mirror: bool) -> None:
    network, (observation, goal) = make(), pairs(size)
    goal_map = np.zeros((len(goal), size, size))
    goal_map[np.arange(len(goal)), goal[:, 0], goal[:, 1]] = 1
    other_goal = torch.as_tensor(np.argwhere(moved(goal_map, turn, mirror))[:, 1:])
    scores = network(observation, goal)
    other = network(torch.as_tensor(moved(observation.numpy(), turn, mirror)), other_goal)
    torch.testing.assert_close(other[:, moved_moves(turn, mirror)], scores, rtol=1e-4, atol=1e-4)


def test_there_are_six_orbits_for_straight_moves_and_six_for_diagonal_ones() -> None:
    orbit, forward = kernel_orbits()
    straight, diagonal = set(orbit[::2].flatten().tolist()), set(orbit[1::2].flatten().tolist())
    assert len(straight) == len(diagonal) == 6
    assert not straight & diagonal
    assert forward.sum() == 2


def test_it_starts_as_the_eight_shifts() -> None:
    network = SymmetricNetwork(5)
    with torch.no_grad():
        for parameter in (network.of_reward, network.of_value):
            parameter.zero_()
    _, of_reward, of_value = network.weights()
    for kernel in (of_reward.view(8, 3, 3), of_value.view(8, 3, 3)):
        for move, (row, column) in enumerate(MOVES.tolist()):
            assert kernel[move, 1 + row, 1 + column] == kernel[move].max() > 0.9
            assert (kernel[move] != 0).sum() == 1


@pytest.mark.parametrize("size", [8, 16, 28])
def test_compiled_and_written_down_agree_with_gradients(size: int) -> None:
    network, (observation, goal) = make().double(), pairs(size)
    found = []
    for function in (network.forward, network.forward_reference):
        network.zero_grad()
        scores = function(observation, goal)
        torch.nn.functional.cross_entropy(scores, torch.arange(len(goal)) % 8).backward()
        found.append([scores.detach(), *(parameter.grad.clone() for parameter in network.parameters())])  # type: ignore[union-attr]
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-8, atol=1e-10)


def test_with_a_wall_penalty_and_a_goal_it_finds_the_way_on_any_map() -> None:
    """The few parameters suffice: set by hand, they solve maps of every size."""
    network = SymmetricNetwork(40)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.reward[0, 0], network.reward[1, 0] = -1.0, 0.1
        network.sharpness.fill_(1.0)
    env = GridWorldVectorEnv(200, size=16)
    seen, _ = env.reset(seed=3)
    away = env.distance(env.get_state(), seen["desired_goal"])
    moves = network(torch.as_tensor(seen["observation"]), torch.as_tensor(seen["desired_goal"])).argmax(dim=1)
    env.step(moves.numpy())
    arrived = env.distance(env.get_state(), seen["desired_goal"])
    ongoing = away > 1  # the others have reached their goal and begun again
    assert ongoing.sum() > 100
    np.testing.assert_array_equal(arrived[ongoing], away[ongoing] - 1)


def test_a_policy_may_be_symmetric() -> None:
    env = GridWorldVectorEnv(2, size=8)
    policy = VinPolicy(env.single_observation_space, env.single_action_space, lambda _: 1e-3, symmetric=True)  # type: ignore[arg-type]
    assert isinstance(policy.network, SymmetricNetwork)
    assert policy.settings()["symmetric"] is True
    assert sum(parameter.numel() for parameter in policy.parameters()) == 6 + 1 + 24 + 1


def test_too_few_channels_are_refused() -> None:
    with pytest.raises(InputError, match="8 q_channels"):
        make_network(q_channels=7)
