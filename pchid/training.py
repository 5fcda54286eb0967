"""From settings to a trained run, and from a run back to its policy.

In: the settings of `pchid train` or a run directory. Out: a finished run directory, or the measures of its policy.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from stable_baselines3.common.logger import configure

from pchid.algorithms import MAX_STEPS, PCHID, PEHID, HindsightAlgorithm
from pchid.checkpoint import numbers
from pchid.combine.agent import CombinedAgent, make_agent
from pchid.config import own_settings
from pchid.envs.grid_world import GridWorldVectorEnv, load_maps
from pchid.envs.make import check_reward, make_probe
from pchid.envs.maps import Maps
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError, RunError
from pchid.evaluation import Act, Measures, Outcomes, evaluate, play
from pchid.goals import is_restorable, success_function
from pchid.methods import parse_method
from pchid.networks.vin import VinPolicy
from pchid.runs import Row, RunCallback, RunDirectory, Schedule, set_threads, versions
from pchid.saving import read_agent, start_from

ALGORITHMS: dict[str, type[HindsightAlgorithm]] = {"id": PCHID, "hid": PCHID, "pchid": PCHID, "pehid": PEHID}
EVALUATION_SEED = 1_000_003
"""Added to the seed of a run for its evaluations, whose goals are never those of the training episodes."""

Agent = HindsightAlgorithm | CombinedAgent
Show = Callable[[Any, Row | None], None]


def train(config: dict[str, Any], directory: RunDirectory, show: Show, checkpoint: int | None = None) -> dict[str, Any]:
    """Train as `config` says, from the newest checkpoint in the directory if there is one; returns the summary."""
    set_threads(config["threads"])
    algorithm = make_algorithm(config)
    if "start" in config and not numbers(directory.checkpoints):  # later, the checkpoint knows it all
        assert isinstance(algorithm, HindsightAlgorithm)
        start_from(algorithm, policy_file(Path(config["start"])))
    schedule = Schedule(
        **{name: config[name] for name in ("unit", "budget", "eval_every", "checkpoint_seconds")},
        snapshots=config.get("snapshots", False),
    )
    callback = RunCallback(directory, schedule, _measure(algorithm, config), show, algorithm)
    try:
        with directory.lock() as new:
            try:
                return _train(config, directory, callback, checkpoint)
            except BaseException:
                if new and not numbers(directory.checkpoints):  # there is nothing to go on from: clear the way
                    directory.withdraw()
                raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        onward = f"pchid train --resume --out {directory.path}" if directory.exists else "the same call again"
        raise RunError(f"the disk is full ({error.strerror}); make room, then: {onward}") from None


def _measure(algorithm: Agent, config: dict[str, Any]) -> Callable[[bool], Measures]:
    """What evaluates the algorithm, in slots that are kept for the next time."""
    probes: dict[int, VectorEnv[Any, Any, Any]] = {}

    def measure(last: bool) -> Measures:
        episodes = config["final_episodes"] if last else config["eval_episodes"]
        if episodes not in probes:
            while probes:  # one at a time: a user's environments may be large
                probes.popitem()[1].close()
            probes[episodes] = make_probe(config["env"], episodes, **config["env_options"])
        seed = config["seed"] + EVALUATION_SEED
        return evaluate(predictor(algorithm), probes[episodes], episodes, seed).measures()

    return measure


def _train(
    config: dict[str, Any], directory: RunDirectory, callback: RunCallback, checkpoint: int | None
) -> dict[str, Any]:
    """Go on from the checkpoint, if there is one, to the end; returns the summary."""
    saved = directory.load_checkpoint(checkpoint)
    if saved is not None:
        callback.agent.load_state(saved["algorithm"])
        callback.load_state(saved["run"])
    directory.write_config(config)
    if callback.finished_budget < config["budget"]:
        directory.forget_summary()
    callback.show(callback.agent, None)
    with contextlib.closing(configure(str(directory.path / "tensorboard"), ["tensorboard"])) as logger:
        callback.agent.set_logger(logger)
        _learn(callback.agent, callback)
    summary = {
        **callback.rows[-1],
        **{name: config[name] for name in ("seed", "method", "env", "env_options")},
        "versions": versions(),
    }
    directory.write_summary(summary)
    return summary


def _learn(algorithm: Agent, callback: RunCallback) -> None:
    """Use up what is left of the budget."""
    budget, by_episodes = callback.schedule.budget, callback.schedule.unit == "episodes"
    episodes = budget if by_episodes else None
    if isinstance(algorithm, CombinedAgent):
        # Schedules, such as DQN's exploration, go by steps: with episodes of full length, these are how many there are.
        horizon = getattr(algorithm.model.get_env().unwrapped.vector, "horizon", None)  # type: ignore[union-attr]
        longest = budget * horizon if horizon else MAX_STEPS
        algorithm.learn(longest if by_episodes else budget, callback, episodes)
        return
    remaining = (MAX_STEPS if by_episodes else budget) - algorithm.num_timesteps
    algorithm.learn(remaining, callback, reset_num_timesteps=False, total_episodes=episodes)


def make_algorithm(config: dict[str, Any]) -> Agent:
    """The algorithm with its training environments."""
    check_reward(config["env"], **config["env_options"])
    env = GoalVecEnv.make(config["env"], config["num_envs"], **config["env_options"])
    if config["num_envs"] > 1 and not is_restorable(env.vector):
        raise InputError(
            f"'{config['env']}' cannot be restored, so only with --num-envs 1 can a run be resumed exactly"
        )
    if parse_method(config["method"]).base is not None:
        return make_agent(config, env)
    return ALGORITHMS[config["method"]](env=env, **own_settings(config), device=config["device"])


def predictor(algorithm: Agent) -> Act:
    """The deterministic policy as a function of observations."""
    return lambda observations: algorithm.predict(observations, deterministic=True)[0]


def trained_policy(path: Path, steps: int | None = None) -> Act:
    """The policy of a run directory as a function of observations: the last one, or that of a snapshot."""
    directory = RunDirectory(path)
    config = directory.read_config()
    if steps is not None:
        directory.policy = directory.snapshot(steps)
    trusted_env(config["env"], None)
    return predictor(load_policy(directory, config))


def evaluate_run(
    directory: RunDirectory, episodes: int, seed: int, env_id: str | None = None, maps: Path | None = None
) -> Outcomes:
    """Measure the policy of a run on fresh episodes, or on the given GridWorld maps."""
    config = directory.read_acting()
    config["env"] = trusted_env(config["env"], env_id)
    set_threads(config["threads"])
    agent = load_policy(directory, config)
    if maps is None:
        probe = make_probe(config["env"], episodes, **config["env_options"])
        return evaluate(predictor(agent), probe, episodes, seed)
    return evaluate_on_maps(agent, config, maps)


def evaluate_on_maps(agent: Agent, config: dict[str, Any], path: Path) -> Outcomes:
    """Measure a policy on the GridWorld maps of a file."""
    given = load_maps(path)
    act, options = acting_on(agent, config["env"], config["env_options"], given)
    environment: Any = make_probe(config["env"], len(given["start"]), **options)
    environment.set_maps(given["obstacle"], given["start"], given["goal"])
    budget = given.get("budget", np.full(len(given["start"]), environment.horizon))
    return play(act, environment, environment.observe(), success_function(environment), budget)


def acting_on(agent: Agent, env_id: str, options: dict[str, Any], maps: Maps) -> tuple[Act, dict[str, Any]]:
    """What acts on given GridWorld maps, and the options of an environment of their size.

    A policy that plans acts on maps of any size; another one only on those of its training.
    """
    trained = make_probe(env_id, 1, **options)
    if not isinstance(trained, GridWorldVectorEnv):
        raise InputError(f"--maps is for GridWorld, but this run was trained on {env_id}")
    size, policy = maps["obstacle"].shape[1], getattr(agent, "policy", None)
    if size == trained.size:
        return predictor(agent), options
    if not isinstance(policy, VinPolicy):
        raise InputError(f"the maps have size {size}, but this policy only knows those of size {trained.size}")
    return policy.act, {**options, "size": size}


def load_policy(directory: RunDirectory, config: dict[str, Any]) -> Agent:
    """The trained agent of a run."""
    # hold_goal asks the environment whether a goal is reached, so the agent gets one.
    env = GoalVecEnv.make(config["env"], 1, **config["env_options"])
    kind = read_agent(directory.policy)[0].get("algorithm")
    if kind == CombinedAgent.__name__:
        return CombinedAgent.load(directory.policy, env, config["device"])
    algorithm = PEHID if kind == PEHID.__name__ else PCHID
    return algorithm.load(directory.policy, env, config["device"], test="none")


def policy_file(path: Path) -> Path:
    """Where the agent is: in the directory of a run or of `pchid fit`, or in the file that is named."""
    return RunDirectory(path).policy if path.is_dir() else path


def trusted_env(stored: str | None, given: str | None) -> str:
    """The environment id to use: a file may name a registered one, but a module only the caller may have imported."""
    if stored is None:
        if given is None:
            raise InputError(
                "this policy was fitted to logged episodes, and no environment is known: name one after the directory"
            )
        return given
    if given is not None and given != stored:
        raise InputError(f"this run was trained on '{stored}', not on '{given}'")
    if given is None and ":" in stored:
        raise InputError(
            f"this run uses '{stored}', whose module is only imported if you name it yourself: add {stored}"
        )
    return stored
