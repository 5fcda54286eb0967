"""TEST: does the pair (s_t, g') really need k steps? (Sec. 3.6)

In: candidate pairs and the current policy. Out: a mask of those to keep. `GroundTruth` asks the environment,
`Interaction` lets the policy try in a probe, `RandomNetworkDistillation` asks whether the pair looks new.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pchid.distillation import RandomNetworkDistillation, checked_quantile
from pchid.envs.make import as_probe
from pchid.errors import InputError
from pchid.goals import KEYS, HasDistance, Success, is_restorable, success_function
from pchid.hindsight import HindsightPairs, displacement
from pchid.policies import ImitatingPolicy

Array = NDArray[Any]
Mask = NDArray[np.bool_]

TESTS = ("auto", "interaction", "ground-truth", "rnd", "none")
REPLAYED_STEPS = 3
"""Steps that a simulator must repeat exactly before it may serve as a probe."""


class SolvabilityTest(Protocol):
    """TEST(k, s_t, g'), for a batch of pairs."""

    needs_states: bool
    """Whether pairs must carry the environment's saved states."""
    steps: int
    """Simulator steps spent so far."""

    def __call__(self, pairs: HindsightPairs, policy: ImitatingPolicy, allowance: NDArray[np.int64]) -> Mask:
        """True for each pair that the policy cannot solve within `allowance` steps (k-1 in PCHID, k in PEHID)."""

    def learn(self, pairs: HindsightPairs) -> None:
        """Take in a minibatch of pairs that were kept."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""

    def load_state(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""


class _CountingTest:
    """What the tests without parameters of their own share: a count of steps."""

    steps = 0

    def learn(self, pairs: HindsightPairs) -> None:
        """There is nothing to learn."""

    def state(self) -> dict[str, Any]:
        """The step count."""
        return {"steps": self.steps}

    def load_state(self, state: dict[str, Any]) -> None:
        """The step count."""
        self.steps = state["steps"]


class AcceptAll(_CountingTest):
    """No TEST: every pair that moved is kept. Enough for one-step HID, and the ablation for more."""

    needs_states = False

    def __call__(self, pairs: HindsightPairs, policy: ImitatingPolicy, allowance: NDArray[np.int64]) -> Mask:
        """All of them."""
        return np.ones(len(pairs), bool)


class GroundTruth(_CountingTest):
    """Keeps a pair when its true distance is exactly k. It needs an environment that knows distances."""

    needs_states = True

    def __init__(self, environment: HasDistance) -> None:
        if not isinstance(environment, HasDistance):
            raise InputError(
                "the ground-truth TEST needs an environment with distance(states, goals), as BitFlip, GridWorld and "
                "Hanoi have; use --test interaction or --test rnd here"
            )
        self.environment = environment

    def __call__(self, pairs: HindsightPairs, policy: ImitatingPolicy, allowance: NDArray[np.int64]) -> Mask:
        """By definition 2; the policy does not matter."""
        assert pairs.state is not None
        mask: Mask = self.environment.distance(pairs.state, pairs.goal) == pairs.k
        return mask


class Interaction(_CountingTest):
    """Keeps a pair when the policy, started at s_t in a probe, does not reach g' within its allowance.

    The probe is a simulator of its own, so the behaviour environments are never disturbed. `make_probe` gives one that
    is made as they are: `lambda: pchid.make_probe(id)` for environments that were made by their id, a single
    environment where they are single ones.
    With a `tolerance`, a goal is reached when the achieved one is nearer than that, and not as the environment says: a
    policy that has to come nearer than it must does not fail by a hair. With `hold_steps`, it must be there so many
    steps after its allowance, and not just pass by before.
    """

    needs_states = True

    def __init__(self, make_probe: Callable[[], Any], tolerance: float | None = None, hold_steps: int = 0) -> None:
        if hold_steps < 0:
            raise InputError(f"hold_steps is {hold_steps}, but it counts steps")
        self.tolerance, self.hold_steps = tolerance, hold_steps
        if tolerance is not None and not 0.0 < tolerance < float("inf"):
            raise InputError(f"the tolerance of TEST is a distance between goals, not {tolerance}")
        self.probe = Probe(as_probe(make_probe))
        if tolerance is not None:
            self.probe.is_success = lambda achieved, desired: displacement(achieved, desired) < tolerance

    def __call__(self, pairs: HindsightPairs, policy: ImitatingPolicy, allowance: NDArray[np.int64]) -> Mask:
        """Try each pair with an allowance; one without (k = 1 in PCHID) has nothing to try and is kept."""
        keep = np.ones(len(pairs), bool)
        tried = np.flatnonzero(allowance > 0)
        if len(tried):
            assert pairs.state is not None
            limits = allowance[tried] + self.hold_steps
            solved, steps = self.probe.solves(
                policy, pairs.state[tried], pairs.goal[tried], limits, at_the_end=self.hold_steps > 0
            )
            keep[tried] = ~solved
            self.steps += steps
        return keep

    def other_labels(self, pairs: HindsightPairs, policy: ImitatingPolicy) -> HindsightPairs:
        """The same pairs with every action that was not executed but, followed by the policy, is as good: within k."""
        count = int(self.probe.simulator.single_action_space.n)
        row, action = (index.ravel() for index in np.indices((len(pairs), count)))
        other = action != pairs.action[row]
        row, action = row[other], action[other].astype(pairs.action.dtype)
        assert pairs.state is not None
        solved, steps = self.probe.solves(policy, pairs.state[row], pairs.goal[row], pairs.k[row], action)
        self.steps += steps
        return replace(pairs.select(row[solved]), action=action[solved])


def make_test(
    test: str | SolvabilityTest,
    make_probe: Callable[[], Any] | None,
    *,
    restorable: bool,
    truth: GroundTruth | None,
    longer_pieces: bool,
    seed: int,
    tolerance: float | None = None,
    hold_steps: int = 0,
) -> SolvabilityTest:
    """TEST by its name, for environments that may be `restorable`, have a probe, or know the `truth`.

    "auto" is interaction where that is possible and rnd otherwise; without `longer_pieces` there is nothing to test.
    `tolerance` and `hold_steps` are for interaction; another TEST does not ask how near a goal is, or for how long.
    """
    if not isinstance(test, str):
        if isinstance(test, Interaction) and (tolerance not in (None, test.tolerance) or hold_steps != test.hold_steps):
            raise InputError(
                f"this Interaction has tolerance {test.tolerance} and hold_steps {test.hold_steps}, but test_tolerance "
                f"is {tolerance} and hold_steps {hold_steps} here; give both the same"
            )
        return test
    name, quantile = parse_test(test)
    if name == "auto":
        possible = make_probe is not None and restorable
        name = "none" if not longer_pieces else "interaction" if possible else "rnd"
    if name == "none":
        return AcceptAll()
    if name == "rnd":
        return RandomNetworkDistillation(quantile, seed=seed)
    if name == "ground-truth":
        return truth or GroundTruth(None)  # type: ignore[arg-type]
    if make_probe is None:
        raise InputError("give Interaction(make_env) as the test: no probe can be made from this environment")
    return Interaction(make_probe, tolerance, hold_steps)


def parse_test(text: str) -> tuple[str, float]:
    """The name of a TEST, and the threshold that may follow rnd, as in `rnd:0.9`: a quantile, by default one half."""
    name, _, threshold = text.partition(":")
    if name not in TESTS or (threshold and name != "rnd"):
        raise InputError(
            f"unknown TEST '{text}': it is one of {', '.join(TESTS)}; a threshold may follow rnd, as in rnd:0.9"
        )
    try:
        return name, checked_quantile(float(threshold or 0.5))
    except ValueError:
        raise InputError(f"the RND threshold is a quantile in [0, 1), not {threshold}") from None


class Probe:
    """Plays a policy from saved states towards given goals, in as many slots as the simulator has."""

    def __init__(self, simulator: Any) -> None:
        if not is_restorable(simulator):
            raise InputError(
                "Interaction needs an environment that can be restored (get_state, set_state, observe), as the domains "
                "here and all MuJoCo environments can; use --test rnd for this one"
            )
        self.simulator = simulator
        self.is_success: Success = success_function(simulator)
        self.simulator.reset(seed=0)
        self._check_exactness()

    def solves(
        self,
        policy: ImitatingPolicy,
        states: Array,
        goals: Array,
        limits: NDArray[np.int64],
        first_actions: Array | None = None,
        at_the_end: bool = False,
    ) -> tuple[Mask, int]:
        """Whether the policy gets from states[i] to goals[i] within limits[i] steps, and the steps that it took.

        With `first_actions`, the first of these steps is given, and the policy goes on from there. With `at_the_end`,
        it is to be there in the last of them.
        Pairs with long limits start first and a slot is refilled as soon as it is free, so the slots end together.
        """
        if states.shape[1] != self._state_size:
            raise InputError(
                "the simulator of TEST saves its states in another form than the training environments, so it cannot "
                "go on from theirs; make it as they are made, for those that have an id by pchid.make_probe(id)"
            )
        solved = np.zeros(len(states), bool)
        queue = np.argsort(-limits, kind="stable")[: np.count_nonzero(limits > 0)]
        pair = np.full(self.simulator.num_envs, -1)
        left = np.zeros(self.simulator.num_envs, np.int64)
        shown = self.simulator.observe()
        position = steps = 0
        while True:
            free = np.flatnonzero(pair < 0)[: len(queue) - position]
            if len(free):
                pair[free] = queue[position : position + len(free)]
                position += len(free)
                left[free] = limits[pair[free]]
                self.simulator.set_state(states[pair[free]], free)
                fresh = self.simulator.observe()
                for key, values in shown.items():
                    values[free] = fresh[key][free]
                shown["desired_goal"][free] = goals[pair[free]]
            busy = np.flatnonzero(pair >= 0)
            if len(busy) == 0:
                return solved, steps
            actions = policy.act({key: values[busy] for key, values in shown.items()})
            if first_actions is not None:
                starting = left[busy] == limits[pair[busy]]
                actions[starting] = first_actions[pair[busy[starting]]]
            result = self._advance(actions, busy)
            for key in ("observation", "achieved_goal"):
                shown[key][busy] = result[key]
            steps += len(busy)
            left[busy] -= 1
            reached = self.is_success(result["achieved_goal"], goals[pair[busy]])
            if at_the_end:
                reached &= left[busy] == 0
            solved[pair[busy[reached]]] = True
            pair[busy[reached | (left[busy] == 0)]] = -1

    def _advance(self, actions: Array, slots: NDArray[np.int64]) -> dict[str, Array]:
        """What the slots show after one action each; a simulator that can is not asked to step the others."""
        if hasattr(self.simulator, "advance"):
            observations: dict[str, Array] = self.simulator.advance(actions, slots)
            return observations
        everywhere = np.zeros(self.simulator.action_space.shape, self.simulator.action_space.dtype)
        everywhere[slots] = actions
        return {key: values[slots] for key, values in self.simulator.step(everywhere)[0].items()}

    def _check_exactness(self) -> None:
        """Refuse a simulator that does not play on from a restored state as it did before."""
        slot = np.zeros(1, np.int64)
        self.simulator.single_action_space.seed(0)
        actions = [np.asarray(self.simulator.single_action_space.sample())[None] for _ in range(REPLAYED_STEPS)]
        self._play(actions, slot)
        saved = self.simulator.get_state()[:1]
        self._state_size = saved.shape[1]
        before = self._play(actions, slot)
        # From another episode, and in another slot if there is one: nothing of the first may be needed.
        self.simulator.reset(seed=1)
        for other in {0, self.simulator.num_envs - 1}:
            slot[:] = other
            self._play(actions[:1], slot)
            self.simulator.set_state(saved, slot)
            after = self._play(actions, slot)
            self._compare(before, after)

    @staticmethod
    def _compare(first: list[dict[str, Array]], second: list[dict[str, Array]]) -> None:
        if not all(
            np.array_equal(one[key], other[key]) for one, other in zip(first, second, strict=True) for key in KEYS
        ):
            raise InputError(
                "this environment does not go on from a restored state as it did before, because its steps depend on "
                "something that get_state does not save; save that too, or use --test rnd"
            )

    def _play(self, actions: list[Array], slot: NDArray[np.int64]) -> list[dict[str, Array]]:
        start = {key: values[slot] for key, values in self.simulator.observe().items()}
        return [start, *(self._advance(action, slot) for action in actions)]


@dataclass
class Verdicts:
    """How a TEST agrees with the ground truth: counts over pairs that were judged by both."""

    kept_right: int = 0
    kept_wrong: int = 0
    dropped_right: int = 0
    dropped_wrong: int = 0

    def add(self, keep: Mask, truth: Mask) -> None:
        """Count one batch."""
        self.kept_right += int(np.sum(keep & truth))
        self.kept_wrong += int(np.sum(keep & ~truth))
        self.dropped_right += int(np.sum(~keep & ~truth))
        self.dropped_wrong += int(np.sum(~keep & truth))

    def __add__(self, other: Verdicts) -> Verdicts:
        return Verdicts(*(one + two for one, two in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def accuracy(self) -> float:
        """The fraction of pairs that were judged as the ground truth judges them."""
        right = self.kept_right + self.dropped_right
        return _ratio(right, right + self.kept_wrong + self.dropped_wrong)

    @property
    def recall(self) -> float:
        """The fraction of true k-step pairs that were kept."""
        return _ratio(self.kept_right, self.kept_right + self.dropped_wrong)

    @property
    def pass_rate(self) -> float:
        """The fraction of all pairs that were kept."""
        kept = self.kept_right + self.kept_wrong
        return _ratio(kept, kept + self.dropped_right + self.dropped_wrong)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
