"""From a log to a trained policy in a directory, with no environment step.

In: the options of `pchid fit`. Out: DIR/policy/agent.safetensors, and DIR/fit.json with what it was made from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pchid.algorithms import PCHID, PEHID, HindsightAlgorithm
from pchid.config import check_settings, check_types
from pchid.curriculum import Convergence
from pchid.envs.make import check_reward, make_vector
from pchid.errors import InputError, at_least
from pchid.goals import Success, success_function
from pchid.logged import LoggedEpisodes, with_spaces
from pchid.methods import OURS, parse_method
from pchid.offline import episodes_from_minari, load_episodes
from pchid.recommended import settings
from pchid.runs import RunDirectory, set_threads, versions

MINARI = "minari:"
LEARNING = (
    *("K_max", "K_step", "test", "learning_rate", "batch_size", "updates_per_episode", "buffer_size", "exploration"),
    *("noise", "wander", "min_displacement", "hold_goal", "seed", "device"),
)
"""Settings that reach the algorithm under their own names."""


def fit_config(given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a fit: what the user gave, on top of what is recommended, for the environment if one is named."""
    check_types({name: value for name, value in given.items() if name != "env"})
    method = parse_method(given["method"])
    if given["method"] not in OURS:
        raise InputError(f"pchid fit has the methods {', '.join(OURS)}; {given['method']} needs an environment")
    recommended = settings(given["env"] or "", method)
    config = {"threads": 1, "device": "cpu", "seed": 0, **recommended, **given}
    if config["policy"] != recommended["policy"]:
        config["policy_settings"] = {}
    config["policy_settings"] = {**config["policy_settings"], **config.pop("policy_options")}
    config["convergence"] = {**config["convergence"], **config.pop("convergence_options")}
    if "updates_per_episode" in given:
        if "passes_per_pair" in given:
            raise InputError("give either --updates-per-episode or --passes-per-pair, not both")
        config.pop("passes_per_pair", None)
    if method.one_step:
        if given.get("K_max", 1) != 1:
            raise InputError(f"--method {config['method']} has one step; for a larger K_max take pchid in its place")
        config["K_max"] = config["K_step"]
    at_least(1, passes=config["passes"])
    check_settings({**config, "budget": 1, "eval_every": 1, "checkpoint_seconds": 0, "weight": None})
    return config


def read_log(data: str) -> LoggedEpisodes:
    """The episodes that DATA names: an .npz file, or minari:ID."""
    if data.startswith(MINARI):
        return episodes_from_minari(data.removeprefix(MINARI))
    return load_episodes(data)


def fit_log(config: dict[str, Any], out: Path, progress: bool) -> dict[str, Any]:
    """Fit a policy as `config` says and write it; returns what fit.json tells."""
    set_threads(config["threads"])
    directory = RunDirectory(out)
    episodes, is_success = _episodes(config)
    agent = _agent(config, episodes, is_success)
    agent.fit(episodes, config["passes"], config["episodes_per_round"], progress)
    found = {
        **{name: config[name] for name in ("data", "method", "env", "env_options", "threads", "device", "seed")},
        **{name: config[name] for name in ("passes", "tolerance", "K_max", "K_step", "test", "policy")},
        **({"passes_per_pair": config["passes_per_pair"]} if "passes_per_pair" in config else {}),
        "policy_settings": agent.policy.settings(),
        "episodes": len(episodes),
        "steps": int(episodes.length.sum()),
        "updates": agent.learner.updates,
        "K": agent.K,
        "pairs": len(agent.learner.buffers),
        "loss": agent.learner.last_loss,
        "versions": versions(),
    }
    with directory.lock():
        agent.save(directory.policy)
        directory.write_fit(found)
    return found


def _episodes(config: dict[str, Any]) -> tuple[LoggedEpisodes, Success | None]:
    """The log, in the spaces of the environment if one is named, and then also what success is there."""
    if config["env"] is None:
        return read_log(config["data"]), None
    check_reward(config["env"], **config["env_options"])
    environment = make_vector(config["env"], 1, autoreset=False, **config["env_options"])
    own = (environment.single_observation_space, environment.single_action_space)
    try:
        if config["data"].startswith(MINARI):
            episodes = with_spaces(read_log(config["data"]), *own)  # type: ignore[arg-type]
        else:
            episodes = load_episodes(config["data"], own[1], own[0])  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"{error} (the spaces are those of {config['env']})") from None
    return episodes, success_function(environment)


def _agent(config: dict[str, Any], episodes: LoggedEpisodes, is_success: Success | None) -> HindsightAlgorithm:
    kind = PEHID if config["method"] == "pehid" else PCHID
    return kind.from_episodes(
        episodes,
        config["policy"],
        tolerance=config["tolerance"],
        is_success=is_success if config["tolerance"] is None else None,
        convergence=Convergence(**config["convergence"]),
        relabel=config["method"] != "id",
        passes_per_pair=config.get("passes_per_pair"),
        policy_kwargs=config["policy_settings"],
        **{name: config[name] for name in LEARNING},
    )
