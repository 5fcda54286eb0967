"""PPO on relabelled rollouts, against the same computed one step at a time."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper, VecMonitor, VecNormalize
from user_envs import Line

from pchid import GoalVecEnv
from pchid.combine.hindsight_ppo import HindsightPPO, draw_future_steps
from pchid.envs.make import find_spec
from pchid.errors import InputError

# Without the small first weights that Stable-Baselines3 prefers, log-probabilities depend on the goal from the start.
POLICY = {"net_arch": [16], "ortho_init": False}
SMALL: dict[str, Any] = {"n_steps": 44, "batch_size": 22, "n_epochs": 2, "policy_kwargs": POLICY}


class EndsAtTheGoal(Line):
    """A line that ends at the goal, but whose author does not say so."""

    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, reward == 0.0, truncated, info


class Raw(VecEnvWrapper):
    """Keeps what passes below the other wrappers."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.steps: list[Any] = []

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        result = self.venv.step_wait()
        self.steps.append(copy.deepcopy(result))
        return result


def bits() -> Any:
    return GoalVecEnv.make("BitFlip-v0", 3, n_bits=3)


def single_bits() -> Any:
    return DummyVecEnv([lambda: gym.make("BitFlip-v0", n_bits=3)])


def grid() -> Any:
    return GoalVecEnv.make("GridWorld-v0", 2, size=6, n_obstacles=2, horizon=9)


def hanoi() -> Any:
    return GoalVecEnv.make("Hanoi-v0", 3, n_discs=2)


def fetch() -> Any:
    return GoalVecEnv.make("FetchReach-v4", 2, horizon=13)


def plain_fetch() -> Any:
    find_spec("FetchReach-v4")
    return DummyVecEnv([lambda: gym.make("FetchReach-v4", max_episode_steps=13)] * 2)


def silent_line() -> Any:
    return DummyVecEnv([lambda: TimeLimit(EndsAtTheGoal(), 5)] * 2)


def logged_line() -> Any:
    return DummyVecEnv([lambda: gym.make("UserLoggedLine-v0")] * 2)


TERMINATING = [bits, single_bits, grid, hanoi]
ENDLESS = [fetch, plain_fetch, logged_line]
EVERY = [*TERMINATING, *ENDLESS, silent_line]


@dataclass
class Played:
    """A rollout as it was played, and as it came out, with the model that has not yet trained on it."""

    model: Any
    before: Any
    steps: list[Any]
    """Of each step: raw observations, rewards, dones, infos."""
    infos: list[Any]
    """The same infos as the policy sees them."""
    last: dict[str, np.ndarray]
    """What the policy sees at the end."""
    chosen: np.ndarray
    drawn: np.ndarray
    normaliser: Any

    def __post_init__(self) -> None:
        self.after = self.model.rollout_buffer
        self.shape = self.after.rewards.shape
        self.achieved = np.array([self.seen("achieved_goal", time) for time in range(self.shape[0])])

    def seen(self, key: str, time: int) -> np.ndarray:
        """What each slot showed at the end of a step, before it began its next episode."""
        observations, _, dones, infos = self.steps[time]
        rows = zip(observations[key], dones, infos, strict=True)
        return np.array([info["terminal_observation"][key] if done else row for row, done, info in rows])

    @property
    def dones(self) -> np.ndarray:
        return np.array([step[2] for step in self.steps])

    @property
    def timeouts(self) -> np.ndarray:
        return np.array([[info.get("TimeLimit.truncated", False) for info in step[3]] for step in self.steps])

    @property
    def goals(self) -> np.ndarray:
        """The raw goals that the drawn steps say."""
        return np.array([self.achieved[row, range(self.shape[1])] for row in self.drawn])

    def segments(self) -> list[tuple[int, int, int]]:
        """Slot, first step and the step after the last of each segment."""
        found = []
        for slot in range(self.shape[1]):
            begin = 0
            for time in range(self.shape[0]):
                if self.dones[time, slot] or time == self.shape[0] - 1:
                    found.append((slot, begin, time + 1))
                    begin = time + 1
        return found

    def terminated(self, slot: int, time: int) -> bool:
        """Whether a relabelled step ends its episode."""
        if not self.model.env.has_attr("compute_terminated"):
            return bool(self.dones[time, slot] and not self.timeouts[time, slot])
        pair = self.achieved[time, slot], self.goals[time, slot]
        return bool(self.model.env.env_method("compute_terminated", *pair, {}, indices=[0])[0])

    def reward(self, slot: int, time: int) -> float:
        pair = self.achieved[time, slot], self.goals[time, slot]
        reward = self.model.env.env_method("compute_reward", *pair, {}, indices=[0])[0]
        if self.normaliser is not None:
            reward = self.normaliser.normalize_reward(np.array([reward]))[0]
        return float(reward)

    def value(self, observation: dict[str, np.ndarray], goal: np.ndarray) -> float:
        """The value of one observation, as the policy sees it, under another raw goal."""
        tensors = self.model.policy.obs_to_tensor({**observation, "desired_goal": self.view(goal)})[0]
        with torch.no_grad():
            return float(self.model.policy.predict_values(tensors))

    def view(self, goal: np.ndarray) -> np.ndarray:
        if self.normaliser is None:
            return goal
        statistics = self.normaliser.obs_rms["desired_goal"]
        return np.clip((goal - statistics.mean) / np.sqrt(statistics.var + 1e-8), -10, 10).astype(np.float32)


class Keep(BaseCallback):
    """Keeps the last rollout as it was played, and as the policy saw it."""

    def _on_rollout_start(self) -> None:
        self.infos: list[Any] = []
        self.rng = copy.deepcopy(self.model.relabel_rng)  # type: ignore[attr-defined]

    def _on_step(self) -> bool:
        self.infos.append(copy.deepcopy(self.locals["infos"]))
        self.last = copy.deepcopy(self.locals["new_obs"])
        return True

    def _on_rollout_end(self) -> None:
        self.before = copy.deepcopy(self.model.rollout_buffer)  # type: ignore[attr-defined]


def play(make_env: Callable[[], Any], her_ratio: float = 1.0, seed: int = 2, normalise: bool = False) -> Played:
    """The second of two rollouts, which begins in the middle of episodes; the model trains on neither."""
    raw, steps = Raw(make_env()), SMALL["n_steps"]
    env: Any = VecNormalize(raw) if normalise else raw
    model: Any = HindsightPPO("MultiInputPolicy", env, her_ratio=her_ratio, seed=seed, **SMALL)
    model.train = lambda: None
    keep = Keep()
    model.learn(2 * steps * env.num_envs, keep)
    drawn = draw_future_steps(keep.before.episode_starts.astype(bool), her_ratio, keep.rng)
    return Played(model, keep.before, raw.steps[-steps:], keep.infos, keep.last, *drawn, env if normalise else None)


# Which steps get which goal.


def test_segments_are_drawn_as_a_whole() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        starts = rng.random((12, 4)) < 0.25
        chosen, drawn = draw_future_steps(starts, 0.5, rng)
        assert chosen.shape == drawn.shape == (12, 4)
        for slot in range(4):
            cuts = [0, *(time for time in range(1, 12) if starts[time, slot]), 12]
            for begin, end in itertools.pairwise(cuts):
                assert len(set(chosen[begin:end, slot])) == 1
                assert len(set(drawn[begin:end, slot])) == 1
                assert begin <= drawn[begin, slot] < end


def test_every_step_of_a_segment_is_as_likely_and_segments_as_often_as_asked() -> None:
    rng = np.random.default_rng(1)
    starts = np.zeros((10, 2), bool)
    starts[4, 0] = True  # segments of 4, 6 and 10 steps
    draws = [draw_future_steps(starts, 0.3, rng) for _ in range(4000)]
    for time, slot, first, length in ((0, 0, 0, 4), (9, 0, 4, 6), (5, 1, 0, 10)):
        counts = np.bincount([drawn[time, slot] for _, drawn in draws], minlength=10)
        assert counts[first : first + length].sum() == 4000
        np.testing.assert_allclose(counts[first : first + length] * length / 4000, 1.0, atol=0.2)
        assert abs(np.mean([chosen[time, slot] for chosen, _ in draws]) - 0.3) < 0.03
    both = np.mean([chosen[0, 0] and chosen[0, 1] for chosen, _ in draws])
    assert abs(both - 0.09) < 0.02  # each for itself


@pytest.mark.parametrize("make_env", EVERY)
def test_a_segment_pursues_one_goal_that_it_achieved(make_env: Callable[[], Any]) -> None:
    played = play(make_env)
    desired = played.after.observations["desired_goal"]
    changed = 0
    for slot, begin, end in played.segments():
        goal = desired[begin, slot]
        assert (desired[begin:end, slot] == goal).all()
        assert any(np.array_equal(goal, played.achieved[time, slot]) for time in range(begin, end))
        changed += not np.array_equal(goal, played.before.observations["desired_goal"][begin, slot])
    np.testing.assert_array_equal(desired, played.goals)
    assert changed > 1
    assert len(played.segments()) > played.shape[1]


# What follows from it.


def assert_relabelled(played: Played) -> dict[str, int]:
    """Everything in the buffer is what a slow computation says, one step at a time; returns what occurred how often."""
    before, after, policy = played.before, played.after, played.model.policy
    seen = {"ended early": 0, "cut off": 0, "no longer the end": 0, "bootstrapped at last": 0, "reached": 0}
    for key, rows in played.model._last_obs.items():
        np.testing.assert_array_equal(rows, played.last[key])
    slots, times = range(played.shape[1]), range(played.shape[0])
    np.testing.assert_array_equal(after.actions, before.actions)
    for key in ("observation", "achieved_goal"):
        np.testing.assert_array_equal(after.observations[key], before.observations[key])
    terminal = np.array([[played.terminated(slot, time) for slot in slots] for time in times])
    rewards = np.array([[played.reward(slot, time) for slot in slots] for time in times])
    seen["reached"] = int((rewards == rewards.max()).sum()) if len(np.unique(rewards)) > 1 else 0
    gamma, lambda_ = played.model.gamma, played.model.gae_lambda
    values, advantages = np.zeros(played.shape), np.zeros(played.shape)
    for slot in slots:
        for time in times:
            shown = {key: rows[time, slot] for key, rows in after.observations.items()}
            values[time, slot] = played.value(shown, played.goals[time, slot])
            action = torch.as_tensor(after.actions[time, slot][None])
            with torch.no_grad():
                tensors = policy.obs_to_tensor(shown)[0]
                discrete = isinstance(played.model.action_space, gym.spaces.Discrete)
                log_prob = policy.get_distribution(tensors).log_prob(action[:, 0] if discrete else action)
            assert after.log_probs[time, slot] == pytest.approx(float(log_prob), rel=1e-4, abs=1e-5)
            over, ended = played.dones[time, slot], terminal[time, slot]
            if over and not ended:
                end = played.infos[time][slot]["terminal_observation"]
                rewards[time, slot] += gamma * played.value(end, played.goals[time, slot])
                seen["cut off" if played.timeouts[time, slot] else "no longer the end"] += 1
            seen["ended early"] += bool(ended and not over)
    for slot in slots:
        for time in times:
            for later in range(time, played.shape[0]):  # the sum of later errors, up to the end of the segment
                stop = terminal[later, slot] or played.dones[later, slot]
                if stop:
                    following = 0.0
                elif later + 1 < played.shape[0]:
                    following = values[later + 1, slot]
                else:
                    running = {key: rows[slot] for key, rows in played.last.items()}
                    following = played.value(running, played.goals[later, slot])
                    seen["bootstrapped at last"] += 1
                error = rewards[later, slot] + gamma * following - values[later, slot]
                advantages[time, slot] += (gamma * lambda_) ** (later - time) * error
                if stop:
                    break
    np.testing.assert_allclose(after.values, values, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after.rewards, rewards, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after.advantages, advantages, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(after.returns, advantages + values, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(after.episode_starts[1:], terminal[:-1] | played.dones[:-1])
    assert not np.allclose(after.log_probs, before.log_probs, atol=1e-3)
    assert not np.allclose(after.advantages, before.advantages, atol=1e-2)
    return seen


def occurrences(make_env: Callable[[], Any]) -> dict[str, int]:
    """Checks a few rollouts; returns what occurred how often."""
    counts = [assert_relabelled(play(make_env, seed=seed)) for seed in range(4)]
    return {name: sum(count[name] for count in counts) for name in counts[0]}


@pytest.mark.parametrize("make_env", TERMINATING)
def test_a_relabelled_rollout_where_goals_end_episodes(make_env: Callable[[], Any]) -> None:
    seen = occurrences(make_env)
    assert min(seen.values()) > 0, seen


@pytest.mark.parametrize("make_env", [*ENDLESS, silent_line])
def test_a_relabelled_rollout_where_they_do_not_or_nobody_knows(make_env: Callable[[], Any]) -> None:
    seen = occurrences(make_env)
    assert seen.pop("ended early") == seen.pop("no longer the end") == 0
    assert min(seen.values()) > 0, seen


def test_an_environment_that_cannot_tell_keeps_its_ends() -> None:
    played = play(silent_line)
    ends = played.dones & ~played.timeouts
    assert ends.any()
    np.testing.assert_array_equal(played.after.episode_starts, played.before.episode_starts)
    worth = [played.reward(slot, time) for time, slot in np.argwhere(ends)]
    np.testing.assert_array_equal(played.after.rewards[ends], worth)  # and nothing is hoped for after them


def test_the_rest_stays_as_it_was_played() -> None:
    played = play(bits, her_ratio=0.5)
    kept = ~played.chosen
    assert 0.2 < kept.mean() < 0.8
    for name in ("rewards", "values", "log_probs", "advantages", "returns", "episode_starts"):
        np.testing.assert_array_equal(getattr(played.after, name)[kept], getattr(played.before, name)[kept])
        assert not np.array_equal(getattr(played.after, name)[~kept], getattr(played.before, name)[~kept])
    for key, rows in played.after.observations.items():
        np.testing.assert_array_equal(rows[kept], played.before.observations[key][kept])


@pytest.mark.parametrize("make_env", [fetch, plain_fetch])
def test_under_normalisation_rewards_are_those_of_raw_goals(make_env: Callable[[], Any]) -> None:
    played = play(make_env, normalise=True)
    raw_rewards = [[played.reward(slot, time) for slot in range(2)] for time in range(played.shape[0])]
    assert len(np.unique(raw_rewards)) == 2
    running = ~played.dones
    np.testing.assert_allclose(played.after.rewards[running], np.array(raw_rewards)[running], rtol=1e-6)
    assert not np.isin(played.after.rewards[running], [0.0, -1.0]).all()
    np.testing.assert_allclose(played.after.observations["desired_goal"], played.view(played.goals), rtol=1e-5)
    seen = assert_relabelled(played)
    assert seen["cut off"] and seen["bootstrapped at last"]
    # The statistics of the end would not give back what was achieved.
    undone = played.normaliser.unnormalize_obs(played.before.observations)["achieved_goal"]
    assert (
        np.abs(undone[1:][running[:-1]] - played.achieved[:-1][running[:-1]]).max() > 0.01
    )  # metres; the tolerance is 0.05


def test_what_normalises_may_lie_below_another_wrapper_and_leave_observations_alone() -> None:
    env = VecMonitor(VecNormalize(GoalVecEnv.make("GridWorld-v0", 2, size=6, n_obstacles=2, horizon=9), norm_obs=False))
    model = HindsightPPO("MultiInputPolicy", env, her_ratio=1.0, seed=0, **SMALL)
    model.train = lambda: None  # type: ignore[method-assign]
    model.learn(88)
    rollout: Any = model.rollout_buffer
    won, other = 10.0, -0.02
    scale = np.sqrt(env.venv.ret_rms.var + 1e-8)  # type: ignore[attr-defined]
    inside = rollout.episode_starts[1:] == 0
    np.testing.assert_allclose(rollout.rewards[:-1][inside], other / scale, rtol=1e-5)
    assert np.isclose(rollout.rewards, min(won / scale, 10.0), rtol=1e-5).any()


def test_an_extra_reward_is_asked_under_the_new_goals() -> None:
    def run(extra: Any, make_env: Any) -> tuple[Any, np.ndarray]:
        env = make_env()
        model = HindsightPPO("MultiInputPolicy", env, her_ratio=0.5, seed=4, **SMALL)
        model.extra_reward = extra
        model.train = lambda: None  # type: ignore[method-assign]
        keep = Keep()
        model.learn(SMALL["n_steps"] * env.num_envs, keep)
        chosen, _ = draw_future_steps(keep.before.episode_starts.astype(bool), 0.5, keep.rng)
        return model.rollout_buffer, chosen

    for make_env in (bits, logged_line):
        asked: list[int] = []

        def extra(observations: dict[str, torch.Tensor], actions: torch.Tensor, asked: Any = asked) -> np.ndarray:
            asked.append(len(actions))
            return (observations["desired_goal"].float().sum(1) + actions.float().sum(1)).numpy()

        plain, chosen = run(None, make_env)
        paid, _ = run(extra, make_env)
        assert sum(asked) == chosen.sum()
        expected = paid.observations["desired_goal"].astype(float).sum(2) + paid.actions.astype(float).sum(2)
        np.testing.assert_allclose((paid.rewards - plain.rewards)[chosen], expected[chosen], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(paid.rewards[~chosen], plain.rewards[~chosen])
        assert not np.allclose(paid.advantages[chosen], plain.advantages[chosen])
        assert np.abs(expected[chosen]).max() > 0.5


# As an algorithm of Stable-Baselines3.


def parameters(model: Any) -> np.ndarray:
    return np.concatenate([value.detach().numpy().ravel() for value in model.policy.state_dict().values()])


def normalised() -> Any:
    return VecNormalize(logged_line())


@pytest.mark.parametrize("make_env", [bits, grid, fetch, normalised])
def test_with_ratio_0_it_is_ppo_bit_for_bit(make_env: Callable[[], Any]) -> None:
    def train(kind: type[PPO], **settings: Any) -> np.ndarray:
        env = make_env()
        return parameters(kind("MultiInputPolicy", env, seed=5, **SMALL, **settings).learn(88 * env.num_envs))

    ppo = train(PPO)
    np.testing.assert_array_equal(train(HindsightPPO, her_ratio=0.0), ppo)
    relabelled = train(HindsightPPO, her_ratio=1.0)
    assert not np.array_equal(relabelled, ppo)
    assert np.isfinite(relabelled).all()
    np.testing.assert_array_equal(train(HindsightPPO, her_ratio=1.0), relabelled)


def test_the_global_streams_go_on_as_under_ppo() -> None:
    states = []
    for kind, settings in ((PPO, {}), (HindsightPPO, {"her_ratio": 1.0})):
        model: Any = kind("MultiInputPolicy", bits(), seed=5, **SMALL, **settings)
        model.train = lambda: None
        model.learn(132)
        states.append((np.random.random(), float(torch.rand(1)), model._last_obs["observation"].tolist()))
    assert states[0] == states[1]


def test_without_a_seed_every_model_draws_its_own() -> None:
    one, other = (HindsightPPO("MultiInputPolicy", bits(), **SMALL).relabel_rng for _ in range(2))
    assert one.random() != other.random()
    same = [HindsightPPO("MultiInputPolicy", bits(), seed=1, **SMALL).relabel_rng.random() for _ in range(2)]
    assert same[0] == same[1]
    assert same[0] != np.random.default_rng(1).random()


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_a_ratio_is_a_probability(ratio: float) -> None:
    with pytest.raises(InputError, match="her_ratio"):
        HindsightPPO("MultiInputPolicy", bits(), her_ratio=ratio)


@pytest.mark.parametrize(
    ("name", "policy", "sentence"),
    [
        ("CartPole-v1", "MlpPolicy", "not a goal environment"),
        ("UserWalk-v0", "MultiInputPolicy", "compute_reward"),
        ("UserManyDiscrete-v0", "MultiInputPolicy", "unsupported action space"),
    ],
)
def test_other_environments_are_refused(name: str, policy: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        HindsightPPO(policy, name, **SMALL)


def test_a_rollout_that_a_callback_stops_is_left_alone() -> None:
    model = HindsightPPO("MultiInputPolicy", bits(), her_ratio=1.0, seed=0, **SMALL)
    drawn = model.relabel_rng.bit_generator.state
    model.learn(1000, lambda names, _: names["n_steps"] < 9)
    assert model.num_timesteps == 30
    assert model.relabel_rng.bit_generator.state == drawn
    model.learn(132)  # and the next one starts afresh
    assert model.relabel_rng.bit_generator.state != drawn


def test_save_and_load(tmp_path: Path) -> None:
    model = HindsightPPO("MultiInputPolicy", bits(), her_ratio=0.3, seed=0, **SMALL)
    model.extra_reward = lambda observations, actions: np.zeros(len(actions))
    model.learn(132)
    assert model._ends
    model.save(tmp_path / "model")
    acting = HindsightPPO.load(tmp_path / "model")
    going_on = HindsightPPO.load(tmp_path / "model", env=bits())
    for loaded in (acting, going_on):
        assert loaded.her_ratio == 0.3
        assert loaded.extra_reward is None
        assert loaded._ends == []
        assert loaded.relabel_rng.bit_generator.state == model.relabel_rng.bit_generator.state
        np.testing.assert_array_equal(parameters(loaded), parameters(model))
        observations = bits().reset()
        actions, expected = (one.predict(observations, deterministic=True)[0] for one in (loaded, model))
        np.testing.assert_array_equal(actions, expected)
    acting.set_env(bits())
    for loaded in (acting, going_on):
        loaded.learn(132)
        assert not np.array_equal(parameters(loaded), parameters(model))
