"""The policy's parts: normalisation, actions, losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pchid import PCHID
from pchid.errors import InputError
from pchid.policies import GoalPolicy, RunningNormaliser

values = st.floats(-1e3, 1e3, width=32)
batches = st.integers(1, 4).flatmap(
    lambda size: st.lists(
        st.integers(1, 6).flatmap(lambda count: hnp.arrays(np.float64, (count, size), elements=values)),
        min_size=1,
        max_size=5,
    )
)


@given(batches)
def test_running_moments_are_those_of_all_inputs_together(parts: list[np.ndarray]) -> None:
    normaliser = RunningNormaliser(parts[0].shape[1])
    for part in parts:
        normaliser.update(torch.as_tensor(part))
    everything = np.concatenate(parts)
    np.testing.assert_allclose(normaliser.mean.numpy(), everything.mean(axis=0), atol=1e-8)
    np.testing.assert_allclose(normaliser.variance.numpy(), everything.var(axis=0), rtol=1e-7, atol=1e-6)
    assert normaliser.count == len(everything)
    expected = (everything - everything.mean(axis=0)) / np.sqrt(normaliser.variance.numpy() + 1e-8)
    found = normaliser(torch.as_tensor(everything)).numpy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.clip(expected, -5, 5), atol=2e-3)


def test_whole_numbers_are_normalised_too() -> None:
    normaliser = RunningNormaliser(2)
    normaliser.update(torch.tensor([[0, 255], [0, 1]], dtype=torch.uint8))
    assert normaliser.mean.tolist() == [0.0, 128.0]


BOX = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 10.0], np.float32))
GOAL = spaces.Box(-5, 5, (2,), np.float64)
SPACE = spaces.Dict(observation=spaces.Box(-5, 5, (3,), np.float32), achieved_goal=GOAL, desired_goal=GOAL)


def make(action_space: Any) -> GoalPolicy:
    return GoalPolicy(SPACE, action_space, lambda _: 1e-2, hidden_sizes=[32])


def shown(observation: np.ndarray, goal: np.ndarray) -> dict[str, np.ndarray]:
    return {"observation": observation, "achieved_goal": np.zeros_like(goal), "desired_goal": goal}


def inputs(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-5, 5, (count, 3)).astype(np.float32), rng.uniform(-5, 5, (count, 2))


@pytest.mark.parametrize("action_space", [BOX, spaces.Discrete(4), spaces.Box(-1, 1, (2, 2), np.float32)])
def test_actions_belong_to_the_space(action_space: Any) -> None:
    policy = make(action_space)
    observation, goal = inputs(7)
    seen = shown(observation, goal)
    outputs = 4 if isinstance(action_space, spaces.Discrete) else int(np.prod(action_space.shape))
    noise = 5.0 * np.random.default_rng(0).standard_normal((7, outputs))
    for actions in (policy.act(seen), policy.act_noisily(seen, noise)):
        assert actions.shape == (7, *action_space.shape)
        assert all(action_space.contains(action) for action in actions.astype(action_space.dtype))


@pytest.mark.parametrize("action_space", [BOX, spaces.Discrete(4)])
def test_without_noise_acting_noisily_is_acting(action_space: Any) -> None:
    policy = make(action_space)
    observation, goal = inputs(50)
    seen = shown(observation, goal)
    noisy = policy.act_noisily(seen, np.zeros(1))
    np.testing.assert_allclose(noisy, policy.act(seen), rtol=1e-5, atol=1e-5)


def test_noise_samples_the_softmax_of_the_scores() -> None:
    policy = make(spaces.Discrete(4))
    observation, goal = (np.repeat(array, 20_000, axis=0) for array in inputs(1, seed=3))
    seen = shown(observation, goal)
    with torch.no_grad():
        scores = 3.0 * policy.acting(torch.as_tensor(observation[:1]), torch.as_tensor(goal[:1]))
        policy.network.layers[-1].weight.mul_(3.0)
        policy.network.layers[-1].bias.mul_(3.0)
    actions = policy.act_noisily(seen, 0.5 * np.random.default_rng(0).gumbel(size=(20_000, 4)))
    expected = torch.softmax(scores[0] / 0.5, dim=0).numpy()
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / 20_000, expected, atol=0.015)


def test_the_loss_is_cross_entropy_for_choices() -> None:
    policy = make(spaces.Discrete(4))
    observation, goal = inputs(6)
    seen = shown(observation, goal)
    action = np.array([0, 1, 2, 3, 3, 0])
    with torch.no_grad():
        scores = policy.acting(torch.as_tensor(observation), torch.as_tensor(goal)).double().numpy()
        loss = policy.imitation_loss(seen, action).numpy()
    expected = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(6), action]
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


def test_the_loss_is_the_squared_error_of_scaled_actions() -> None:
    policy = make(BOX)
    observation, goal = inputs(4)
    seen = shown(observation, goal)
    action = np.array([[-1, 0], [1, 10], [0, 5], [0.5, 2.5]], np.float32)
    scaled = np.array([[-1, -1], [1, 1], [0, 0], [0.5, -0.5]])
    with torch.no_grad():
        outputs = policy.acting(torch.as_tensor(observation), torch.as_tensor(goal)).numpy()
        loss = policy.imitation_loss(seen, action).numpy()
    np.testing.assert_allclose(loss, ((outputs - scaled) ** 2).mean(axis=1), rtol=1e-4)


@pytest.mark.parametrize("action_space", [BOX, spaces.Discrete(4)])
def test_a_policy_can_fit_actions(action_space: Any) -> None:
    policy = make(action_space)
    observation, goal = inputs(64)
    seen = shown(observation, goal)
    if isinstance(action_space, spaces.Discrete):
        action = (goal[:, 0] > 0) * 2 + (goal[:, 1] > 0)
    else:
        action = np.stack([goal[:, 0] / 5, 5 + goal[:, 1]], axis=1).astype(np.float32)
    policy.normalise_by(seen)
    for _ in range(300):
        loss = policy.imitation_loss(seen, action).mean()
        policy.optimizer.zero_grad()
        loss.backward()
        policy.optimizer.step()
    np.testing.assert_allclose(policy.act(seen), action, atol=0.5)


def test_the_policy_sees_the_desired_goal_and_never_the_achieved_one() -> None:
    policy = make(BOX)
    observation, goal = inputs(1)
    seen = {"observation": observation[0], "achieved_goal": goal[0], "desired_goal": goal[0]}
    action, _ = policy.predict(seen)
    moved, _ = policy.predict({**seen, "achieved_goal": goal[0] + 1})
    wanted, _ = policy.predict({**seen, "desired_goal": goal[0] - 3})
    np.testing.assert_array_equal(action, moved)
    assert not np.array_equal(action, wanted)


def test_the_average_acts_and_follows_the_trained_network() -> None:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    policy = GoalPolicy(SPACE, BOX, lambda _: 1e-2, hidden_sizes=[8], averaging=0.9)
    expected: dict[str, torch.Tensor] = {}
    for step in range(5):
        seen = shown(rng.normal(size=(6, 3)).astype(np.float32), rng.normal(size=(6, 2)))
        policy.normalise_by(seen)
        loss = policy.imitation_loss(seen, rng.uniform([-1, 0], [1, 10], (6, 2)).astype(np.float32)).mean()
        policy.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        policy.optimizer.step()
        policy.after_step()
        for name, value in policy.network.named_parameters():
            now = value.detach().clone()
            expected[name] = now if step == 0 else 0.9 * expected[name] + 0.1 * now
    for name, value in policy.acting.named_parameters():
        torch.testing.assert_close(value, expected[name])
    inputs = [torch.as_tensor(seen[key]) for key in ("observation", "desired_goal")]
    said = policy(dict(zip(policy.seen, inputs, strict=True)))
    torch.testing.assert_close(said, policy.acting(*inputs))
    assert not torch.allclose(said, policy.network(*inputs))
    assert policy.imitation_loss(seen, np.zeros((6, 2), np.float32)).requires_grad  # what is trained is not the average
    trained = {id(value) for group in policy.optimizer.param_groups for value in group["params"]}
    assert not trained & {id(value) for value in policy.acting.parameters()}


def test_an_average_is_saved_and_loaded(tmp_path: Path) -> None:
    model = PCHID("MultiInputPolicy", "BitFlip-v0", seed=0, policy_kwargs={"averaging": 0.9, "hidden_sizes": [16]})
    model.learn(200)
    model.save(tmp_path / "agent")
    again = PCHID.load(tmp_path / "agent")
    assert again.policy.averaging == 0.9
    for one, two in zip(model.policy.acting.parameters(), again.policy.acting.parameters(), strict=True):
        assert torch.equal(one, two)
    assert any(
        not torch.equal(one, two)
        for one, two in zip(again.policy.acting.parameters(), again.policy.network.parameters(), strict=True)
    )


@pytest.mark.parametrize("averaging", [1.0, 1, -0.5, "much"])
def test_an_average_of_nothing_is_refused(averaging: Any) -> None:
    with pytest.raises(InputError, match="averaging"):
        GoalPolicy(SPACE, BOX, lambda _: 1e-2, averaging=averaging)


def test_the_difference_of_goals_is_an_input_if_it_is_asked_for(tmp_path: Path) -> None:
    agent = PCHID("GoalPolicy", "FetchReach-v4", K_max=1, policy_kwargs={"difference": True}, seed=0, device="cpu")
    agent.learn(100)
    assert agent.policy.network.layers[0].in_features == 10 + 3 + 3
    assert agent.policy.network.difference_normaliser.count > 0
    seen, _ = agent.get_env().vector.reset(seed=0)  # type: ignore[union-attr]
    action = agent.predict(seen)[0]
    elsewhere = {**seen, "achieved_goal": seen["achieved_goal"] + 0.1}
    assert not np.array_equal(agent.predict(elsewhere)[0], action)
    agent.save(tmp_path / "agent")
    again = PCHID.load(tmp_path / "agent")
    assert again.policy.difference
    np.testing.assert_array_equal(again.predict(seen)[0], action)


def test_a_map_has_no_difference() -> None:
    with pytest.raises(InputError, match="difference"):
        PCHID("VinPolicy", "GridWorld-v0", policy_kwargs={"difference": True})


def near_and_far(reach: float | None) -> tuple[GoalPolicy, dict[str, np.ndarray]]:
    """A policy that sees differences, and goals at 1 from what is achieved, in four directions."""
    torch.manual_seed(0)
    plane = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    space = spaces.Dict(observation=plane, achieved_goal=plane, desired_goal=plane)
    policy = GoalPolicy(space, BOX, lambda _: 1e-2, hidden_sizes=[16], difference=True, reach=reach)
    achieved = np.full((4, 2), 3.0)
    away = np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, 0.8], [0.8, 0.6]])
    return policy, {"observation": achieved.copy(), "achieved_goal": achieved, "desired_goal": achieved + away}


def test_a_goal_beyond_reach_looks_like_the_point_on_the_way_there() -> None:
    policy, seen = near_and_far(0.25)
    way = seen["desired_goal"] - seen["achieved_goal"]
    outputs = {}
    for distance in (0.1, 0.25, 1.0, 40.0):
        outputs[distance] = policy.act_noisily(
            {**seen, "desired_goal": seen["achieved_goal"] + distance * way}, np.zeros((4, BOX.shape[0]))
        )
    np.testing.assert_allclose(outputs[0.25], outputs[1.0], atol=1e-6)
    np.testing.assert_allclose(outputs[0.25], outputs[40.0], atol=1e-6)
    assert not np.allclose(outputs[0.1], outputs[0.25], atol=1e-3)
    free, seen = near_and_far(None)
    assert not np.allclose(free.act(seen), free.act({**seen, "desired_goal": seen["achieved_goal"] + 0.25 * way}))


def test_a_goal_that_is_reached_is_seen_where_it_is() -> None:
    policy, seen = near_and_far(0.25)
    there = {**seen, "desired_goal": seen["achieved_goal"]}
    assert np.isfinite(policy.act(there)).all()
    policy.imitation_loss(there, np.zeros((4, *BOX.shape))).mean().backward()  # type: ignore[no-untyped-call]
    assert all(torch.isfinite(weight.grad).all() for weight in policy.network.layers.parameters())


def test_what_is_out_of_reach_does_not_count_in_the_statistics() -> None:
    policy, seen = near_and_far(0.25)
    policy.normalise_by({**seen, "desired_goal": seen["achieved_goal"] + 100.0})
    assert abs(policy.network.goal_normaliser.mean.numpy() - 3.0).max() < 0.26


@pytest.mark.parametrize("reach", [0, -1.0, float("inf"), float("nan"), "far"])
def test_a_reach_is_a_distance(reach: Any) -> None:
    with pytest.raises(InputError, match="reach"):
        near_and_far(reach)


def test_a_reach_is_saved_with_the_agent(tmp_path: Path) -> None:
    agent = PCHID("GoalPolicy", "FetchReach-v4", K_max=1, policy_kwargs={"reach": 0.05}, seed=0, device="cpu")
    agent.learn(100)
    agent.save(tmp_path / "agent")
    again = PCHID.load(tmp_path / "agent")
    assert again.policy.reach == 0.05
    seen, _ = agent.get_env().vector.reset(seed=0)  # type: ignore[union-attr]
    np.testing.assert_array_equal(again.predict(seen)[0], agent.predict(seen)[0])
    with pytest.raises(InputError, match="reach"):
        PCHID("VinPolicy", "GridWorld-v0", policy_kwargs={"reach": 1.0})


def test_an_average_that_warms_up_follows_at_once_and_then_as_asked() -> None:
    """After n steps it leaves n / (n + 10) of itself, and never more than `averaging`."""
    policy, _ = near_and_far(None)
    policy.averaging, policy.averaging_warmup = 0.5, True
    policy.averaged = policy._make_average(0.5)
    weight, followed = policy.network.layers[0].bias, policy.acting.layers[0].bias
    expected = None
    for step in range(30):
        with torch.no_grad():
            weight.add_(torch.full_like(weight, 1.0 + step))
        policy.after_step()
        share = min(0.5, step / (step + 10))
        expected = weight.clone() if expected is None else share * expected + (1 - share) * weight
        torch.testing.assert_close(followed, expected)
    assert policy.settings()["averaging_warmup"] is True
    assert "averaging_warmup" not in near_and_far(None)[0].settings()
