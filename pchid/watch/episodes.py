"""Play a policy's episodes and take their pictures.

In: a run directory. Out: `Episode`s, and the file or the window that shows them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from pchid.checkpoint import write_atomically
from pchid.envs.drawing import Picture, resize
from pchid.envs.grid_world import GridWorldVectorEnv, load_maps
from pchid.envs.make import make_probe, make_vector
from pchid.envs.randomness import slot_seeds
from pchid.errors import InputError
from pchid.evaluation import Act, play
from pchid.goals import success_function
from pchid.policies import Observations
from pchid.runs import RunDirectory, set_threads
from pchid.training import Agent, acting_on, load_policy, predictor, trusted_env
from pchid.watch.animation import WRITERS, Episode, Moment, show
from pchid.watch.checks import SLOTS, check_out, check_rendering
from pchid.watch.grid_world import GridWorldPictures, greedy_moves

Draw = Callable[[Sequence[Observations], list[int]], list[Picture]]
"""From all that the slots have shown so far, and some of the slots, to a picture of each of these as it is now."""

TILE, STRIP_TILE = 320, 224  # pixels: widths of a picture
MOST_LOOKED_AT = 1000  # episodes in search of successes or failures
MOST_PICTURES = 200  # of an episode; of a longer one every second step is shown, or third, ...
LONGEST, SMOOTHEST = 10.0, 50.0  # seconds that an animation takes unless --fps is given; pictures a second in a GIF


def watch_run(
    directory: RunDirectory,
    out: Path | None,
    episodes: int,
    seed: int,
    env_id: str | None = None,
    maps: Path | None = None,
    only: str | None = None,
    fps: float | None = None,
) -> list[Episode]:
    """Play episodes of a run, and write them to a file or show them in a window."""
    check_out(out)
    config = directory.read_acting()
    env_id, options = trusted_env(config["env"], env_id), config["env_options"]
    set_threads(config["threads"])
    agent = load_policy(directory, {**config, "env": env_id})
    slots, camera = check_rendering(env_id, options)
    starts, act = Starts(seed, episodes, maps), predictor(agent)
    if starts.maps is not None:
        act, options = acting_on(agent, env_id, options, starts.maps)
    episodes = min(episodes, starts.count)
    numbers = iter(range(episodes))
    if only is not None:
        numbers = find_episodes(act, make_probe(env_id, SLOTS, **options), starts, only == "successes")
    environment = make_vector(env_id, min(slots, episodes), False, "rgb_array", **{**camera, **options})
    width = STRIP_TILE if out is not None and out.suffix.lower() == ".png" else TILE
    shown: list[Episode] = []
    while wave := list(itertools.islice(numbers, min(environment.num_envs, episodes - len(shown)))):
        played = roll_out(agent, act, environment, starts, wave, width)
        # An episode may end otherwise than it did in the search: sums are rounded as the size of the batch has it.
        shown += [episode for episode in played if only is None or episode.success == (only == "successes")]
    if not shown:
        looked_at = min(starts.count, MOST_LOOKED_AT)
        raise InputError(
            f"none of the first {looked_at} episodes {'reached' if only == 'successes' else 'missed'} the goal"
        )
    if fps is None:
        steps = max(episode.moments[-1].step for episode in shown)
        pictures = max(len(episode.moments) for episode in shown)
        fps = max(environment.metadata.get("render_fps", 10) * pictures / (steps + 1), pictures / LONGEST)
    environment.close()
    if out is None:
        show(shown, fps)
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, WRITERS[out.suffix.lower()](shown, min(fps, SMOOTHEST)))
    return shown


class Starts:
    """Which episodes there are: those of a seed, just as an evaluation plays them, or given GridWorld maps."""

    def __init__(self, seed: int, episodes: int, maps: Path | None) -> None:
        self.maps = None if maps is None else load_maps(maps)
        self.count = max(episodes, MOST_LOOKED_AT) if self.maps is None else len(self.maps["start"])
        self.seeds = slot_seeds(seed, self.count)

    def begin(self, environment: Any, numbers: Sequence[int]) -> tuple[Observations, NDArray[np.int64] | None]:
        """Start these episodes, and the last of them again in slots that are left; returns observations and budgets."""
        chosen = [*numbers, *[numbers[-1]] * (environment.num_envs - len(numbers))]
        if self.maps is None:
            return environment.reset(seed=[self.seeds[number] for number in chosen])[0], None
        environment.set_maps(*(self.maps[name][chosen] for name in ("obstacle", "start", "goal")))
        budget = self.maps.get("budget", np.full(self.count, environment.horizon))
        return environment.observe(), budget[chosen]


def find_episodes(act: Act, environment: Any, starts: Starts, success: bool) -> Iterator[int]:
    """The numbers of the episodes that end in success, or in failure; they are played without pictures."""
    with contextlib.closing(environment):
        looked_at = min(starts.count, MOST_LOOKED_AT)
        for first in range(0, looked_at, environment.num_envs):
            numbers = range(first, min(first + environment.num_envs, looked_at))
            observations, budget = starts.begin(environment, numbers)
            outcomes = play(act, environment, observations, success_function(environment), budget)
            yield from (first + np.flatnonzero(outcomes.final_success[: len(numbers)] == success)).tolist()


def roll_out(
    agent: Agent, act: Act, environment: Any, starts: Starts, numbers: Sequence[int], width: int
) -> list[Episode]:
    """Play these episodes, at most one a slot, and take their pictures."""
    observations, budget = starts.begin(environment, numbers)
    draw: Draw = functools.partial(render, environment)
    if isinstance(environment, GridWorldVectorEnv):
        draw = GridWorldPictures(environment, observations, greedy_moves(agent, act, observations))
    camera = Camera(environment, draw, width, observations, budget)
    success = play(act, camera, observations, camera.is_success, budget).final_success.tolist()
    limits = [getattr(environment, "horizon", None)] * len(numbers) if budget is None else budget.tolist()
    return [Episode(*parts) for parts in zip(numbers, limits, success, camera.moments, strict=False)]


class Camera:
    """A vector environment that takes a picture of each slot, at the start and after every step, until it is over."""

    def __init__(
        self, environment: Any, draw: Draw, width: int, observations: Observations, budget: NDArray[np.int64] | None
    ) -> None:
        self.environment, self.draw, self.width, self.budget = environment, draw, width, budget
        self.num_envs, self.action_space = environment.num_envs, environment.action_space
        self.is_success = success_function(environment)
        self.every = math.ceil((getattr(environment, "horizon", None) or 1) / MOST_PICTURES)
        self.moments: list[list[Moment]] = [[] for _ in range(self.num_envs)]
        self.seen: list[Observations] = []
        self._running = np.ones(self.num_envs, bool)
        self._look(observations, np.zeros(self.num_envs, bool) if budget is None else budget <= 0)

    def step(self, actions: NDArray[Any]) -> Any:
        """Step the environment."""
        result = self.environment.step(actions)
        self._look(result[0], result[2] | (result[3] if self.budget is None else len(self.seen) >= self.budget))
        return result

    def _look(self, observations: Observations, over: NDArray[np.bool_]) -> None:
        self.seen.append(observations)
        step = len(self.seen) - 1
        slots = np.flatnonzero(self._running & (over | (step % self.every == 0))).tolist()
        self._running &= ~over
        if slots:
            reached = self.is_success(observations["achieved_goal"], observations["desired_goal"])
            for slot, picture in zip(slots, self.draw(self.seen, slots), strict=True):
                moment = Moment(resize(picture, self.width), step, bool(reached[slot]), bool(over[slot]))
                self.moments[slot].append(moment)


def render(environment: Any, seen: Sequence[Observations], slots: list[int]) -> list[Picture]:
    """The pictures that the environment draws itself."""
    try:
        pictures = environment.render()
    except gym.error.Error as error:  # of a package that is missing, for one
        raise InputError(f"the environment cannot draw: {error}") from None
    if pictures is None or any(np.shape(picture)[2:] != (3,) for picture in pictures):
        raise InputError("the environment's render mode 'rgb_array' gives no pictures (height, width, 3)")
    return [pictures[slot] for slot in slots]
