"""What a planning network remembers never changes what it says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from pchid.envs.grid_world import GridWorldVectorEnv
from pchid.networks import memory
from pchid.networks.planning import PlanningNetwork
from pchid.networks.vin import make_network
from pchid.solvability import Probe


@pytest.fixture(params=[False, True], ids=["vin", "symmetric"])
def network(request: pytest.FixtureRequest) -> PlanningNetwork:
    torch.manual_seed(0)
    return make_network(hidden_channels=5, iterations=12, symmetric=request.param)


def pairs(count: int, seed: int = 0, size: int = 9) -> tuple[Tensor, Tensor]:
    seen, _ = GridWorldVectorEnv(count, size=size).reset(seed=seed)
    return torch.as_tensor(seen["observation"]), torch.as_tensor(seen["desired_goal"])


def close(network: PlanningNetwork, observation: Tensor, goal: Tensor) -> bool:
    with torch.no_grad():
        return torch.allclose(network(observation, goal), network.forward_reference(observation, goal), atol=1e-4)


def test_agents_that_walk_on_known_maps_get_what_the_network_says(network: PlanningNetwork) -> None:
    env = GridWorldVectorEnv(6, size=9, autoreset_mode="Disabled")
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(8):
        seen = env.observe()
        assert close(network, torch.as_tensor(seen["observation"]), torch.as_tensor(seen["desired_goal"]))
        env.step(rng.integers(8, size=6))
    assert len(network._remembered.tables) == 6


def by_optimizer(network: PlanningNetwork) -> None:
    network.forward(*pairs(4)).square().sum().backward()
    torch.optim.SGD(network.parameters(), lr=0.01).step()


def behind_the_scenes(network: PlanningNetwork) -> None:
    for parameter in network.parameters():
        parameter.data.mul_(1.1)  # as Stable-Baselines3 updates target networks: no counter sees this


def from_a_file(network: PlanningNetwork) -> None:
    network.load_state_dict({name: 0.9 * value for name, value in network.state_dict().items()})


@pytest.mark.parametrize("change", [by_optimizer, behind_the_scenes, from_a_file])
def test_other_weights_plan_anew(network: PlanningNetwork, change: Callable[[PlanningNetwork], None]) -> None:
    observation, goal = pairs(4)
    with torch.no_grad():
        for _ in range(2):
            before = network(observation, goal)
    change(network)
    assert close(network, observation, goal)
    with torch.no_grad():
        assert not torch.equal(network(observation, goal), before)


def test_maps_that_are_met_once_are_not_kept(network: PlanningNetwork) -> None:
    for seed in range(0, 500, 100):
        assert close(network, *pairs(4, seed))
    assert len(network._remembered.tables) == 0
    assert close(network, *pairs(4, 200))
    assert len(network._remembered.tables) == 4


def test_the_same_map_with_another_goal_is_another_plan(network: PlanningNetwork) -> None:
    observation, _ = pairs(1)
    observation = observation.expand(3, -1, -1, -1)
    goals = torch.tensor([[2, 3], [3, 2], [5, 5]])
    for _ in range(2):
        assert close(network, observation, goals)
    assert len(network._remembered.tables) == 3


def test_maps_of_different_sizes_are_kept_apart(network: PlanningNetwork) -> None:
    for size in (8, 8, 9, 9, 8, 8):
        assert close(network, *pairs(3, size=size))


def test_more_iterations_plan_anew(network: PlanningNetwork) -> None:
    observation, goal = pairs(4)
    for _ in range(2):
        assert close(network, observation, goal)
    network.iterations = 30
    assert close(network, observation, goal)


def test_more_maps_than_the_limit_are_planned_once_all_the_same(
    network: PlanningNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "REMEMBERED_CELLS", 3 * 81)
    observation, goal = pairs(8)
    for _ in range(2):
        assert close(network, observation, goal)
    monkeypatch.setattr(network, "_q_everywhere", None)  # a second plan would fail
    assert close(network, observation, goal)


def test_memory_is_bounded(network: PlanningNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "REMEMBERED_CELLS", 10 * 81)
    for seed in np.repeat(range(8), 2):
        assert close(network, *pairs(4, int(seed)))
        assert len(network._remembered.tables) <= 14  # the limit is looked at before a batch


def test_no_agent_gives_no_score_and_no_pair_no_row(network: PlanningNetwork) -> None:
    observation, goal = pairs(2)
    observation[0, 1] = 0
    assert close(network, observation, goal)
    with torch.no_grad():
        assert network(observation[:0], goal[:0]).shape == (0, 8)


def test_forgetting_changes_nothing(network: PlanningNetwork) -> None:
    observation, goal = pairs(5)
    with torch.no_grad():
        network(observation, goal)
        first = network(observation, goal)
        network.forget()
        assert torch.equal(network(observation.flip(0), goal.flip(0)).flip(0), first)


def test_test_plans_once_for_each_map_and_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    from pchid.networks.vin import VinPolicy

    env = GridWorldVectorEnv(16, size=9, autoreset_mode="Disabled")
    policy = VinPolicy(env.single_observation_space, env.single_action_space, lambda _: 1e-3, iterations=12)  # type: ignore[arg-type]
    env.reset(seed=3)
    states, goals = env.get_state().repeat(3, axis=0), env.observe()["desired_goal"].repeat(3, axis=0)
    planned = 0
    plan = policy.network._q_everywhere

    def counted(obstacle: Tensor, goal: Tensor) -> Tensor:
        nonlocal planned
        planned += len(goal)
        return plan(obstacle, goal)

    monkeypatch.setattr(policy.network, "_q_everywhere", counted)
    Probe(env).solves(policy, states, goals, np.full(48, 5))
    assert planned == 16
