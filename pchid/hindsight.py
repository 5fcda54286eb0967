"""Hindsight inverse dynamics as pure functions over arrays (Sec. 3.2 and 3.4, Eq. 1, 4 and 5).

In: `Episodes`. Out: `HindsightPairs`, every (s_t, m(s_{t+k}), a_t) of every k in K, in one vectorised pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pchid.episodes import Episodes
from pchid.goals import Success

Array = NDArray[Any]


@dataclass(frozen=True)
class HindsightPairs:
    """P state-goal pairs with the action that was executed first on the way."""

    observation: Array
    """(P, ...): s_t."""
    achieved: Array
    """(P, ...): m(s_t), where the piece started."""
    goal: Array
    """(P, ...): the hindsight goal g' = m(s_{t+k})."""
    action: Array
    """(P, ...): a_t, the label."""
    k: NDArray[np.int64]
    """(P,): the number of steps that the piece took."""
    state: Array | None = None
    """(P, S): the environment's saved state at s_t."""

    def __len__(self) -> int:
        return len(self.k)

    @property
    def observations(self) -> dict[str, Array]:
        """What a policy observes that is asked for the hindsight goal."""
        return {"observation": self.observation, "achieved_goal": self.achieved, "desired_goal": self.goal}

    def select(self, chosen: Array) -> HindsightPairs:
        """The chosen pairs, by mask or by index."""
        cut = {f.name: value[chosen] for f in fields(self) if (value := getattr(self, f.name)) is not None}
        return replace(self, **cut)


def hindsight_pairs(
    episodes: Episodes,
    K: Sequence[int],
    min_displacement: float = 0.0,
    is_success: Success | None = None,
    hold_steps: int = 0,
) -> HindsightPairs:
    """All k-step pieces, k in K, relabelled with the goal that they reached (Eq. 4 for k = 1, Eq. 5 for all k).

    A piece whose achieved goal did not move is trivial, (s, m(s)) in (S x G)_0, and left out; `min_displacement`
    asks for more movement than none. With `is_success`, pieces that took a detour are left out too. With `hold_steps`,
    a goal counts as reached only where the achieved one has not moved on, in this sense, so many steps later.
    """
    steps = np.asarray(K, np.int64)
    pieces = _inside(episodes, steps + hold_steps)
    if is_success is not None:
        _drop_detours(pieces, episodes, steps, is_success)
    episode, time, index = np.nonzero(pieces)
    k = steps[index]
    start, goal = episodes.achieved_goal[episode, time], episodes.achieved_goal[episode, time + k]
    moved = displacement(start, goal) > min_displacement
    if hold_steps:
        later = episodes.achieved_goal[episode, time + k + hold_steps]
        moved &= displacement(goal, later) <= min_displacement
    episode, time = episode[moved], time[moved]
    return HindsightPairs(
        observation=episodes.observation[episode, time],
        achieved=start[moved],
        goal=goal[moved],
        action=episodes.action[episode, time],
        k=k[moved],
        state=None if episodes.state is None else episodes.state[episode, time],
    )


def _drop_detours(pieces: NDArray[np.bool_], episodes: Episodes, steps: NDArray[np.int64], is_success: Success) -> None:
    """Drop, in place, each piece (E, T, len(steps)) that took longer than it had to, as the trajectory itself shows.

    That is a piece which started at its own goal, or met it on the way and lost it again, or came back to a state that
    it had left: cut the loop out and it is shorter. Such a piece is solvable in fewer than k steps (Definition 2), and
    to see that costs no simulator step, so it comes before TEST. One that comes within the tolerance of its goal and
    stays there is merely approaching it. For the shortest k, movement alone decides.
    """
    loops = _loops(episodes, int(steps.max()))
    for index, k in enumerate(steps):
        if k == steps.min():
            continue
        pieces[:, :, index] &= ~loops[k]
        episode, time = np.nonzero(pieces[:, :, index])
        goal = episodes.achieved_goal[episode, time + k]
        met = is_success(episodes.achieved_goal[episode, time], goal) if len(episode) else np.zeros(0, bool)
        detour = met.copy()
        for earlier in range(1, k):
            if detour.all():
                break
            now = is_success(episodes.achieved_goal[episode, time + earlier], goal)
            detour |= met & ~now
            met = now
        pieces[episode[detour], time[detour], index] = False


def _loops(episodes: Episodes, longest: int) -> list[NDArray[np.bool_]]:
    """For each k up to `longest`, (E, T): whether the states s_t ... s_{t+k} hold the same one twice."""
    count, times = episodes.observation.shape[:2]
    rows = np.ascontiguousarray(episodes.observation.reshape(count * times, -1))
    names = np.unique(rows.view(np.dtype((np.void, rows[0].nbytes))), return_inverse=True)[1].reshape(count, times)
    loops = [np.zeros((count, times), bool)]
    for k in range(1, longest + 1):
        # s_t ... s_{t+k} holds a pair of equals if its first or its last k states do, or its two ends are equal.
        starts = max(times - k, 0)
        looped = loops[-1].copy()
        looped[:, :starts] |= loops[-1][:, 1 : starts + 1] | (names[:, :starts] == names[:, k : k + starts])
        loops.append(looped)
    return [looped[:, :-1] for looped in loops]


def inverse_dynamics_pairs(episodes: Episodes) -> HindsightPairs:
    """Vanilla inverse dynamics (Eq. 1) as a policy can use it: (s_t, g, a_t) with the goal that was meant.

    When acting, s_{t+1} is not known, so f((s_t, g), (s_{t+1}, g)) is left with (s_t, g): the label has nothing to do
    with the goal, which is what the paper's hindsight mends.
    """
    episode, time = np.nonzero(_inside(episodes, np.ones(1, np.int64))[:, :, 0])
    return HindsightPairs(
        observation=episodes.observation[episode, time],
        achieved=episodes.achieved_goal[episode, time],
        goal=episodes.desired_goal[episode],
        action=episodes.action[episode, time],
        k=np.ones(len(episode), np.int64),
        state=None if episodes.state is None else episodes.state[episode, time],
    )


def displacement(start: Array, end: Array) -> NDArray[np.float64]:
    """How far the achieved goal moved: the Euclidean distance between two batches of goals, (P,)."""
    difference = end.astype(np.float64) - start.astype(np.float64)
    distance: NDArray[np.float64] = np.sqrt(np.square(difference).sum(axis=tuple(range(1, difference.ndim))))
    return distance


def _inside(episodes: Episodes, steps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(E, T, len(steps)): whether the piece that starts at t and takes k steps ends within its episode."""
    time = np.arange(episodes.action.shape[1])
    inside: NDArray[np.bool_] = time[None, :, None] + steps <= episodes.length[:, None, None]
    return inside
