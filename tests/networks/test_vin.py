"""The value iteration network of GridWorld."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO

from pchid import GoalVecEnv
from pchid.envs.grid_world import MOVES, GridWorldVectorEnv, distance_to_goal
from pchid.errors import InputError
from pchid.networks.planning import ValueIterationNetwork
from pchid.networks.vin import VinExtractor, VinPolicy, pass_scores_on


def make(iterations: int = 10, shifts: bool = True, seed: int = 0) -> ValueIterationNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ValueIterationNetwork(8, hidden_channels=6, q_channels=10, iterations=iterations, shifts=shifts)


def reward_at_the_goal(network: ValueIterationNetwork) -> None:
    """A reward map that is one at the goal and zero elsewhere, discounted so that nearer is better."""
    with torch.no_grad():
        network.hidden.weight.zero_()
        network.hidden.bias.zero_()  # type: ignore[union-attr]
        network.hidden.weight[0, 1, 1, 1] = 1.0
        network.reward.weight.zero_()
        network.reward.weight[0, 0] = 1.0
        network.q_of_value.weight.mul_(0.8)


def everywhere(size: int, goal: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """An empty map seen from each of its cells, the goal, and each cell's distance."""
    observation = torch.zeros(size * size, 2, size, size)
    cells = np.stack(np.divmod(np.arange(size * size), size), axis=1)
    observation[torch.arange(size * size), 1, cells[:, 0], cells[:, 1]] = 1.0
    distance = np.abs(cells - goal).max(axis=1)
    return observation, torch.tensor([goal] * size * size), distance


@pytest.mark.parametrize("size", [4, 8, 16, 23])
def test_one_network_serves_maps_of_any_size(size: int) -> None:
    env = GridWorldVectorEnv(3, size=size, n_obstacles=size)
    seen, _ = env.reset(seed=0)
    scores = make()(torch.as_tensor(seen["observation"]), torch.as_tensor(seen["desired_goal"]))
    assert scores.shape == (3, 8)
    assert scores.dtype == torch.float32
    assert torch.isfinite(scores).all()


def test_gradients_reach_every_parameter() -> None:
    network = make()
    seen, _ = GridWorldVectorEnv(16, size=8, n_obstacles=8).reset(seed=0)
    scores = network(torch.as_tensor(seen["observation"]), torch.as_tensor(seen["desired_goal"]))
    torch.nn.functional.cross_entropy(scores, torch.arange(16) % 8).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("iterations", [0, 1, 3, 6])
def test_value_spreads_by_one_cell_an_iteration(iterations: int) -> None:
    network = make(iterations)
    reward_at_the_goal(network)
    observation, goal, distance = everywhere(15, (2, 12))
    with torch.no_grad():
        seen = network(observation, goal).abs().amax(dim=1).numpy() > 0
    np.testing.assert_array_equal(seen, distance <= iterations + 1)


def greedy_share(network: ValueIterationNetwork, iterations: int) -> float:
    reward_at_the_goal(network)
    goal = (4, 8)
    observation, goals, distance = everywhere(12, goal)
    with torch.no_grad():
        moves = MOVES[network(observation, goals).argmax(dim=1).numpy()]
    cells = np.stack(np.divmod(np.arange(144), 12), axis=1)
    after = np.abs(cells + moves - goal).max(axis=1)
    within = (distance > 0) & (distance <= iterations + 1)
    return float((after < distance)[within].mean())


def test_started_as_shifts_the_greedy_move_leads_to_the_goal() -> None:
    networks = [make(8, seed=seed) for seed in range(3)]
    assert min(greedy_share(network, 8) for network in networks) > 0.95
    network = make(8)
    with torch.no_grad():  # without the noise that tells the channels apart, it does so from every cell
        for layer in (network.q_of_reward, network.q_of_value, network.readout):
            layer.weight.round_()
    assert greedy_share(network, 8) == 1.0


def test_started_at_random_it_does_not() -> None:
    assert max(greedy_share(make(8, shifts=False, seed=seed), 8) for seed in range(3)) < 0.7


def test_the_scores_are_read_where_the_agent_is() -> None:
    network = make()
    seen, _ = GridWorldVectorEnv(1, size=8, n_obstacles=5).reset(seed=0)
    observation, goal = torch.as_tensor(seen["observation"]).float(), torch.as_tensor(seen["desired_goal"])
    free = np.argwhere(seen["observation"][0, 0] == 0)
    moved = observation.clone()
    moved[0, 1] = 0
    other = next(cell for cell in free if not observation[0, 1, cell[0], cell[1]])
    moved[0, 1, other[0], other[1]] = 1
    with torch.no_grad():
        assert not torch.equal(network(observation, goal), network(moved, goal))
        alone = network(observation, goal)
        batch = network(torch.cat([observation, moved]), torch.cat([goal, goal]))
    torch.testing.assert_close(batch[:1], alone)


def spaces_of(size: int) -> spaces.Dict:
    place = spaces.Box(0, size - 1, (2,), np.int64)
    plane = spaces.Box(0, 1, (2, size, size), np.uint8)
    return spaces.Dict(observation=plane, achieved_goal=place, desired_goal=place)


@pytest.mark.slow
def test_the_policy_learns_shortest_ways_when_shown() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        policy = VinPolicy(spaces_of(8), spaces.Discrete(8), lambda _: 5e-3, hidden_channels=20, iterations=8)
    env = GridWorldVectorEnv(200, size=8, n_obstacles=6)
    seen, _ = env.reset(seed=1)
    away = distance_to_goal(seen["observation"][:, 0], seen["desired_goal"])
    cells = seen["achieved_goal"][:, None] + MOVES  # the border is blocked, so every neighbour lies on the map
    ahead = away[np.arange(200)[:, None], cells[..., 0], cells[..., 1]]
    for _ in range(60):
        loss = policy.imitation_loss(seen, ahead.argmin(axis=1)).mean()
        policy.optimizer.zero_grad()
        loss.backward()
        policy.optimizer.step()
    chosen = policy.act(seen)
    assert (ahead[np.arange(200), chosen] == ahead.min(axis=1)).mean() > 0.9


def test_a_policy_trained_on_one_size_runs_on_others() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        policy = VinPolicy(spaces_of(16), spaces.Discrete(8), lambda _: 1e-3, hidden_channels=10, iterations=20)
    seen, _ = GridWorldVectorEnv(16, size=16).reset(seed=0)
    losses = []
    for _ in range(20):
        loss = policy.imitation_loss(seen, np.arange(16) % 8).mean()
        policy.optimizer.zero_grad()
        loss.backward()
        policy.optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    for size in (8, 28):
        elsewhere, _ = GridWorldVectorEnv(6, size=size, n_obstacles=size).reset(seed=1)
        inputs = [torch.as_tensor(elsewhere[key]) for key in ("observation", "desired_goal")]
        with torch.no_grad():
            expected = policy.network.forward_reference(*inputs)
        torch.testing.assert_close(policy.acting(*inputs), expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(policy.act(elsewhere), expected.argmax(dim=1).numpy())


def test_the_extractor_gives_the_networks_scores() -> None:
    extractor = VinExtractor(spaces_of(8), hidden_channels=5, q_channels=9, iterations=3)
    seen, _ = GridWorldVectorEnv(4, size=8, n_obstacles=5).reset(seed=0)
    # Stable-Baselines3 hands over single precision.
    inputs = {key: torch.as_tensor(values).float() for key, values in seen.items()}
    features = extractor(inputs)
    assert features.shape == (4, extractor.features_dim)
    torch.testing.assert_close(
        features, extractor.network.forward_reference(inputs["observation"], inputs["desired_goal"])
    )


def on_features(kind: type[DQN] | type[PPO], net_arch: list[int]) -> Any:
    settings = {"features_extractor_class": VinExtractor, "features_extractor_kwargs": {"iterations": 3}}
    env = GoalVecEnv.make("GridWorld-v0", 4, size=8, n_obstacles=5)
    return kind("MultiInputPolicy", env, policy_kwargs={**settings, "net_arch": net_arch}, seed=0, device="cpu")


@pytest.mark.parametrize("kind", [DQN, PPO])
def test_stable_baselines3_starts_with_the_networks_scores(kind: type[DQN] | type[PPO]) -> None:
    policy = on_features(kind, []).policy
    seen = policy.obs_to_tensor(GoalVecEnv.make("GridWorld-v0", 4, size=8, n_obstacles=5).reset())[0]
    nets = [policy.q_net, policy.q_net_target] if kind is DQN else [policy]
    for net in nets:
        scores = net.features_extractor({key: values.float() for key, values in seen.items()})
        said = net(seen) if kind is DQN else net.get_distribution(seen).distribution.logits
        assert not torch.equal(said.argsort(dim=1), scores.argsort(dim=1))  # a random layer mixes them
    pass_scores_on(policy)
    for net in nets:
        scores = net.features_extractor({key: values.float() for key, values in seen.items()})
        said = net(seen) if kind is DQN else net.get_distribution(seen).distribution.logits
        torch.testing.assert_close(said.softmax(dim=1), scores.softmax(dim=1))


def test_scores_pass_through_one_layer_only() -> None:
    with pytest.raises(InputError, match="net_arch"):
        pass_scores_on(on_features(DQN, [16]).policy)


@pytest.mark.parametrize(
    ("space", "settings", "sentence"),
    [
        (spaces.Dict(observation=spaces.MultiBinary(4), desired_goal=spaces.MultiBinary(4)), {}, "for GridWorld"),
        (spaces_of(8), {"q_channels": 7}, "at least 8 q_channels"),
    ],
)
def test_it_says_what_it_is_for(space: spaces.Dict, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        VinPolicy(space, spaces.Discrete(8), lambda _: 1e-3, **settings)


def test_settings_build_the_same_network_again() -> None:
    policy = VinPolicy(spaces_of(8), spaces.Discrete(8), lambda _: 1e-3, hidden_channels=5, q_channels=9, iterations=3)
    again = VinPolicy(spaces_of(12), spaces.Discrete(8), lambda _: 1e-3, **policy.settings())
    again.load_state_dict(policy.state_dict())
    assert again.settings() == policy.settings()
