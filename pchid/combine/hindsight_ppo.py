"""PPO with hindsight goals ("PPO + HER"): a baseline of Sec. 4 that learns from relabelled rollouts.

In: the rollouts that PPO collects. Out: the same rollouts, in which pieces of episodes pursue a goal that they reached;
rewards, ends, values, log-probabilities, returns and advantages are those of the new goals.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from pchid.combine.replay import Terminated, termination_function
from pchid.errors import InputError
from pchid.goals import check_spaces, reward_function

Array = NDArray[Any]
ExtraReward = Callable[[dict[str, Tensor], Tensor], Array]

RELABELLING = zlib.crc32(b"relabelling")
"""The name of the stream of random numbers, beside the seed."""


def draw_future_steps(
    starts: NDArray[np.bool_], ratio: float, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which steps of a rollout to relabel, and the step at whose end their new goal was achieved, both (T, N).

    A segment is what the rollout holds of one episode: it begins at a start (`starts`, (T, N)) or with the rollout.
    With probability `ratio` it is relabelled as a whole, by one of its steps, all of which are equally likely.
    """
    begins = starts.copy()
    begins[0] = True
    flat = begins.T.ravel()  # slot by slot, so that a segment is a run
    first = np.flatnonzero(flat)
    length = np.diff(first, append=len(flat))
    chosen = rng.random(len(first)) < ratio
    drawn = (first + rng.integers(length)) % len(starts)
    segment = (np.cumsum(flat) - 1).reshape(begins.T.shape).T
    return chosen[segment], drawn[segment]


@dataclass(frozen=True)
class _End:
    """How an episode ended within the rollout."""

    time: int
    slot: int
    observation: dict[str, Array]
    """The last one, as the policy sees it."""
    achieved_goal: Array
    """The raw goal that was achieved last."""
    timeout: bool


class HindsightPPO(PPO):
    """PPO, with a share of its rollouts relabelled by a goal that they reached later.

    :param her_ratio: the probability that a segment, the part of one episode that lies in the rollout, is relabelled;
        0 is PPO itself

    All other parameters are those of PPO. Where a new goal is reached and the environment says that this ends the
    episode (`compute_terminated`), the segment ends, and what follows counts as another episode with the same goal.
    Where an episode ended by its first goal, but would not have by the new one, it is taken as cut off, as by a time
    limit. Callbacks see the rollout as it was played: it is relabelled after `on_rollout_end`.
    """

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: GymEnv | str,
        *args: Any,
        her_ratio: float = 0.8,
        **kwargs: Any,
    ) -> None:
        if not 0.0 <= her_ratio <= 1.0:
            raise InputError(f"her_ratio is {her_ratio}, but it is a probability: give a number between 0 and 1")
        self.her_ratio = her_ratio
        self.extra_reward: ExtraReward | None = None
        """If set, what it says of (observations, actions) of relabelled steps is added to their rewards, which may be
        normalised. It is called with at most `batch_size` steps: observations as the policy sees them, under the new
        goal, and actions as the rollout buffer stores them; it returns (B,)."""
        self._ends: list[_End] = []
        self._achieved: list[Array] = []
        super().__init__(policy, env, *args, **kwargs)
        entropy = None if self.seed is None else (self.seed, RELABELLING)
        self.relabel_rng = np.random.default_rng(np.random.SeedSequence(entropy))

    def _setup_model(self) -> None:
        check_spaces(self.observation_space, self.action_space)
        super()._setup_model()
        self._ask(self.env)

    def set_env(self, env: GymEnv, force_reset: bool = True) -> None:
        """Go on with another environment of the same spaces."""
        super().set_env(env, force_reset)
        self._ask(self.env)

    def _ask(self, env: VecEnv | None) -> None:
        """Take rewards and ends of relabelled steps from this environment."""
        if env is not None:  # a loaded model may have none: it can act, but not learn
            self._reward: Callable[[Array, Array], Array] = reward_function(env)
            self._terminated: Terminated | None = termination_function(env)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "extra_reward", "_ends", "_achieved", "_reward", "_terminated"]

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Collect a rollout as PPO does, and relabel it."""
        self._ends, self._achieved = [], []
        complete = super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)
        if complete and self.her_ratio > 0.0:
            self._relabel(rollout_buffer)
        return complete

    def _update_info_buffer(self, infos: list[dict[str, Any]], dones: Array | None = None) -> None:
        # Every step passes here, before it is stored: what the rollout buffer does not keep is caught here.
        super()._update_info_buffer(infos, dones)
        if self.her_ratio == 0.0 or dones is None:
            return
        normaliser: Any = self._vec_normalize_env
        if normaliser is not None:  # its statistics change with every step: later, nothing could be undone exactly
            self._achieved.append(normaliser.get_original_obs()["achieved_goal"])
        for slot in np.flatnonzero(dones):
            shown = infos[slot]["terminal_observation"]
            raw = shown if normaliser is None else normaliser.unnormalize_obs(shown)
            timeout = infos[slot].get("TimeLimit.truncated", False)
            self._ends.append(_End(self.rollout_buffer.pos, int(slot), shown, raw["achieved_goal"], timeout))

    def _relabel(self, rollout: Any) -> None:
        """Give segments of the rollout a goal that they reached, and compute all that depends on it anew."""
        chosen, drawn = draw_future_steps(rollout.episode_starts.astype(bool), self.her_ratio, self.relabel_rng)
        time, slot = np.nonzero(chosen)
        if len(time) == 0:
            return
        achieved = self._next_achieved(rollout)
        goals = achieved[drawn[time, slot], slot]
        seen_goals = self._as_seen(goals)
        rollout.observations["desired_goal"][time, slot] = seen_goals
        rewards = np.asarray(self._reward(achieved[time, slot], goals), np.float32)
        if self._vec_normalize_env is not None:
            rewards = self._vec_normalize_env.normalize_reward(rewards)
        rollout.rewards[time, slot] = rewards
        self._evaluate(rollout, time, slot)

        row = np.full(chosen.shape, -1)
        row[time, slot] = np.arange(len(time))
        ends = [end for end in self._ends if chosen[end.time, end.slot]]
        if self._terminated is not None:
            terminated = self._terminated(achieved[time, slot], goals)
        else:
            terminated = np.zeros(len(time), bool)
            terminated[[row[end.time, end.slot] for end in ends if not end.timeout]] = True
        self._bootstrap(rollout, [(end, seen_goals[i]) for end in ends if not terminated[i := row[end.time, end.slot]]])

        final = np.zeros(chosen.shape, bool)
        final[time, slot] = terminated
        rollout.episode_starts[1:][final[:-1]] = 1.0
        assert isinstance(self._last_obs, dict) and self._last_episode_starts is not None
        running = dict(self._last_obs)  # where an episode has just ended, this is the next one, but it does not count
        running["desired_goal"] = running["desired_goal"].copy()
        running["desired_goal"][chosen[-1]] = seen_goals[row[-1, chosen[-1]]]
        rollout.compute_returns_and_advantage(self._values(running), self._last_episode_starts | final[-1])

    def _next_achieved(self, rollout: Any) -> Array:
        """(T, N, ...): the raw goal achieved at the end of each step."""
        assert isinstance(self._last_obs, dict)
        if self._vec_normalize_env is not None:
            achieved = np.stack(self._achieved)
        else:
            last = self._last_obs["achieved_goal"][None]
            achieved = np.concatenate([rollout.observations["achieved_goal"][1:], last])
        for end in self._ends:  # there, the next observation is that of the next episode
            achieved[end.time, end.slot] = end.achieved_goal
        return achieved

    def _as_seen(self, goals: Array) -> Array:
        """Desired goals as the policy sees them: normalised by the statistics of now, if at all."""
        normaliser: Any = self._vec_normalize_env
        if normaliser is None or not normaliser.norm_obs:
            return goals
        others = {key: statistics.mean for key, statistics in normaliser.obs_rms.items()}
        seen: Array = normaliser.normalize_obs({**others, "desired_goal": goals})["desired_goal"]
        return seen

    def _evaluate(self, rollout: Any, time: Array, slot: Array) -> None:
        """Values and log-probabilities of the policy under the new goals, and the extra reward."""
        for begin in range(0, len(time), self.batch_size):
            index = time[begin : begin + self.batch_size], slot[begin : begin + self.batch_size]
            observations = {key: rollout.to_torch(values[index]) for key, values in rollout.observations.items()}
            actions = rollout.to_torch(rollout.actions[index])
            discrete = isinstance(self.action_space, spaces.Discrete)
            with torch.no_grad():
                values, log_probs, _ = self.policy.evaluate_actions(
                    observations, actions.long().flatten() if discrete else actions.float()
                )
            rollout.values[index] = values.cpu().numpy().flatten()
            rollout.log_probs[index] = log_probs.cpu().numpy()
            if self.extra_reward is not None:
                rollout.rewards[index] += self.extra_reward(observations, actions)

    def _bootstrap(self, rollout: Any, cuts: list[tuple[_End, Array]]) -> None:
        """Add the value of what would have followed to the last step of episodes that were cut off."""
        if not cuts:
            return
        last = {key: np.stack([end.observation[key] for end, _ in cuts]) for key in cuts[0][0].observation}
        last["desired_goal"] = np.stack([goal for _, goal in cuts])
        index = tuple(np.array([(end.time, end.slot) for end, _ in cuts]).T)
        rollout.rewards[index] += self.gamma * self._values(last).cpu().numpy().flatten()

    def _values(self, observations: dict[str, Array]) -> Tensor:
        """Values of observations as the policy sees them, (B, 1)."""
        tensors = self.policy.obs_to_tensor(observations)[0]
        with torch.no_grad():
            return self.policy.predict_values(tensors)
