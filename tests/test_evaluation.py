"""The measures: which episodes, what counts as success, how failures count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import DOMAINS, Scrambled, ShortestWay

from pchid.envs.grid_world import GridWorldVectorEnv
from pchid.envs.make import make_probe
from pchid.evaluation import Measures, Outcomes, evaluate, play
from pchid.goals import success_function


def as_act(policy: Any) -> Any:
    return policy.act


def always(action: int) -> Any:
    return lambda seen: np.full(len(seen["observation"]), action)


def assert_same(one: Outcomes, other: Outcomes) -> None:
    for name, values in vars(one).items():
        np.testing.assert_array_equal(values, getattr(other, name))


@settings(max_examples=15)
@given(
    domain=st.sampled_from(DOMAINS),
    slots=st.integers(1, 12),
    episodes=st.integers(1, 15),
    seed=st.integers(0, 1000),
)
def test_an_episode_does_not_depend_on_the_number_of_slots(
    domain: tuple[str, dict[str, Any]], slots: int, episodes: int, seed: int
) -> None:
    name, options = domain
    act = as_act(Scrambled(5, salt=seed))
    one_by_one = evaluate(act, make_probe(name, 1, **options), 15, seed)
    together = evaluate(act, make_probe(name, slots, **options), episodes, seed)
    assert len(together.any_success) == episodes
    for field, values in vars(together).items():
        np.testing.assert_array_equal(values, getattr(one_by_one, field)[:episodes])


def test_the_same_holds_for_environments_that_exist_one_at_a_time() -> None:
    act = as_act(Scrambled(2, salt=1))
    outcomes = [evaluate(act, make_probe("UserLine-v0", slots), 7, 3) for slots in (1, 3)]
    assert_same(*outcomes)


@pytest.mark.parametrize(("name", "options"), DOMAINS, ids=[name for name, _ in DOMAINS])
def test_the_shortest_way_takes_the_distance(name: str, options: dict[str, Any]) -> None:
    outcomes = evaluate(as_act(ShortestWay(name, options)), make_probe(name, 20, **options), 20, 4)
    assert outcomes.final_success.all()
    assert outcomes.any_success.all()
    from pchid.envs.randomness import slot_seeds

    env: Any = make_probe(name, 20, **options)
    observations, _ = env.reset(seed=slot_seeds(4, 20))
    distance = env.distance(env.get_state(), observations["desired_goal"])
    np.testing.assert_array_equal(outcomes.steps_to_goal, distance)
    wanted = (distance - 1) * env.step_reward + env.success_reward
    np.testing.assert_allclose(outcomes.total_reward, wanted)


def test_other_seeds_are_other_episodes() -> None:
    name, options = DOMAINS[0]
    act = as_act(ShortestWay(name, options))
    one, other = (evaluate(act, make_probe(name, 30, **options), 30, seed) for seed in (0, 1))
    assert not np.array_equal(one.steps_to_goal, other.steps_to_goal)


def test_a_failed_episode_counts_its_horizon() -> None:
    env = make_probe("BitFlip-v0", 16, n_bits=6)
    outcomes = evaluate(always(0), env, 16, 0)
    failed = ~outcomes.any_success
    assert failed.any()
    assert (outcomes.steps_to_goal[failed] == 6).all()
    assert (outcomes.total_reward[failed] == -6).all()
    assert not outcomes.final_success[failed].any()


def test_a_goal_that_is_passed_through_is_any_but_not_final_success() -> None:
    env = make_probe("UserPassThrough-v0", 2)
    passing = evaluate(always(1), env, 2, 0)
    assert passing.any_success.all()
    assert not passing.final_success.any()
    assert passing.steps_to_goal.tolist() == [2, 2]
    assert passing.total_reward.tolist() == [-5.0, -5.0]  # six steps, one of them on the goal
    leaving = evaluate(always(0), env, 2, 0)
    assert not leaving.any_success.any()
    assert leaving.steps_to_goal.tolist() == [6, 6]

    def there_and_wait(seen: dict[str, np.ndarray]) -> np.ndarray:
        return (seen["achieved_goal"][:, 0] < 2).astype(int)  # 1, 2, 1, 2, ...: on the goal at every even step

    waiting = evaluate(there_and_wait, env, 2, 0)
    assert waiting.final_success.all()
    assert waiting.total_reward.tolist() == [-3.0, -3.0]
    assert waiting.measures() == Measures(1.0, 1.0, -3.0, 2.0)


def test_measures_are_means() -> None:
    outcomes = Outcomes(
        final_success=np.array([True, False, False, False]),
        any_success=np.array([True, True, True, False]),
        total_reward=np.array([0.0, -1.0, -2.0, -5.0]),
        steps_to_goal=np.array([1, 2, 3, 6]),
    )
    assert outcomes.measures().as_dict() == {
        "final_success": 0.25,
        "any_success": 0.75,
        "mean_return": -2.0,
        "steps_to_goal": 3.0,
    }


@pytest.mark.parametrize("beyond", [False, True])
def test_a_budget_replaces_the_horizon(beyond: bool) -> None:
    # A corridor to the east, nine moves long, in an environment that would stop after `horizon` steps.
    env = GridWorldVectorEnv(3, size=12, horizon=5 if beyond else 50, autoreset_mode="Disabled")
    obstacle = np.ones((3, 12, 12), np.uint8)
    obstacle[:, 1, 1:11] = 0
    env.set_maps(obstacle, np.full((3, 2), 1), np.tile([1, 10], (3, 1)))
    budget = np.array([8, 9, 20])
    outcomes = play(always(2), env, env.observe(), success_function(env), budget)
    assert outcomes.any_success.tolist() == [False, True, True]
    assert outcomes.steps_to_goal.tolist() == [8, 9, 9]


def test_finished_slots_are_not_asked_for_actions() -> None:
    asked = []

    def act(seen: dict[str, np.ndarray]) -> np.ndarray:
        asked.append(len(seen["observation"]))
        return ShortestWay(*DOMAINS[0]).act(seen)

    outcomes = evaluate(act, make_probe(DOMAINS[0][0], 10, **DOMAINS[0][1]), 10, 0)
    assert sum(asked) == outcomes.steps_to_goal.sum()
