"""The settings of a run: what the user gave, on top of what is recommended, resolved and checked.

In: the options of `pchid train`. Out: the content of config.json, from which everything about a run follows.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from pchid.curriculum import Convergence, check_convergence, check_K_max
from pchid.envs.make import find_spec
from pchid.errors import InputError, at_least, probability
from pchid.learner import DRAWS, check_passes
from pchid.methods import WEIGHTS, Method, parse_method
from pchid.recommended import settings
from pchid.solvability import parse_test

Config = dict[str, Any]

TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("env", "method", "policy", "test", "unit", "device"), str),
    **dict.fromkeys(("env_options", "policy_settings", "convergence", "sb3_settings"), dict),
    "combine": (str, type(None)),
    **dict.fromkeys(("seed", "num_envs", "K_max", "K_step", "batch_size", "updates_per_episode", "buffer_size"), int),
    **dict.fromkeys(("budget", "eval_every", "eval_episodes", "final_episodes", "threads"), int),
    **dict.fromkeys(("learning_rate", "exploration", "wander", "min_displacement", "checkpoint_seconds"), (int, float)),
    **dict.fromkeys(("noise", "test_budget", "weight"), (int, float, type(None))),
    "hold_goal": bool,
}
"""What config.json holds, and of which type."""
OPTIONAL: dict[str, type | tuple[type, ...]] = {
    "passes_per_pair": (int, float),
    **dict.fromkeys(("persistence", "least_noise", "test_tolerance"), (int, float)),
    **dict.fromkeys(("other_labels", "snapshots", "symmetries"), bool),
    **dict.fromkeys(("start", "draw"), str),
    **dict.fromkeys(("hold_steps", "actor_starts"), int),
}
"""What it holds only where it was asked for: runs are filed under a hash of it, which new options must not change."""
OPTION_GROUPS = {"env": "env_options", "policy": "policy_settings", "convergence": "convergence", "sb3": "sb3_settings"}
"""`--GROUP.NAME VALUE` options, and where config.json has them."""
SHARED = (
    *("K_max", "K_step", "test", "test_budget", "test_tolerance", "draw", "hold_steps", "symmetries", "seed"),
    *("learning_rate", "batch_size", "updates_per_episode", "passes_per_pair", "buffer_size", "min_displacement"),
)
"""What PCHID, PEHID and the hindsight modules beside an algorithm take alike, under the same names."""
OWN = ("exploration", "noise", "wander", "persistence", "least_noise", "hold_goal", "other_labels")
"""What PCHID and PEHID take besides; in a combination these are up to the algorithm."""
EXPLORATION = ("noise", "persistence", "least_noise")
"""Those that guidance takes, whose own network collects at first."""
ACTOR_STARTS = 100_000
"""Of guidance, where nobody says."""
CHOICES = {"combine": tuple(WEIGHTS), "policy": ("GoalPolicy", "VinPolicy"), "draw": tuple(DRAWS)}


def new_config(given: Config) -> Config:
    """The settings of a new run; `given` holds the options that the user named."""
    if "env" not in given:
        raise InputError("name an environment, for example: pchid train FetchReach-v4")
    check_types(given)
    find_spec(given["env"])
    method = parse_method(given.get("method", "pchid"))
    recommended = settings(given["env"], method, given.get("num_envs"), "steps" in given)
    config = {"method": "pchid", "seed": 0, "checkpoint_seconds": 30.0, "threads": 1, "device": "cpu", **recommended}
    episodes = config.pop("episodes")
    config |= {name: _as_typed(name, value) for name, value in given.items() if name in (*TYPES, *OPTIONAL)}
    if config["policy"] != recommended["policy"]:
        config["policy_settings"] = {}
    for group, name in OPTION_GROUPS.items():
        config[name] = {**config.get(name, {}), **given.get(f"{group}_options", {})}
    if "action_noise" in given.get("sb3_options", {}) and "least_action_noise" not in given["sb3_options"]:
        config["sb3_settings"].pop("least_action_noise", None)  # who names a noise means that noise
    if "updates_per_episode" in given:
        if "passes_per_pair" in given:
            raise InputError("give either --updates-per-episode or --passes-per-pair, not both")
        config.pop("passes_per_pair", None)
    if method.one_step:
        if given.get("K_max", 1) != 1:
            raise InputError(f"--method {config['method']} has one step; for a larger K_max take pchid in its place")
        config["K_max"] = config["K_step"]
    tests_in_steps = (
        parse_test(config["test"])[0] in ("auto", "interaction") and config["K_max"] >= 2 * config["K_step"]
    )
    if "test_budget" not in given and not tests_in_steps:
        config["test_budget"] = None  # the recommended one has nothing to limit
    if not tests_in_steps:
        if "test_tolerance" in given:
            raise InputError("--test-tolerance is for the interaction TEST, which there is none of here")
        config.pop("test_tolerance", None)
    if "noise" in given and "least_noise" not in given:
        config.pop("least_noise", None)  # who names a noise means that noise
    guided = given.get("combine") == "guide"
    for name in ("start", "persistence", "least_noise", "hold_goal", "other_labels"):
        if method.base is not None and name in given and not (guided and name in EXPLORATION):
            raise InputError(f"{option(name)} goes with pchid's own methods, not with {config['method']}")
    config |= _combination(method, given)
    if "draw" in given and not tests_in_steps:
        raise InputError("--draw is for the interaction TEST, which there is none of here")
    if "draw" in given and config["test_budget"] is None:
        raise InputError("--draw says what a budget of TEST steps is spent on, and there is none; add --test-budget")
    config |= _budget(given) or {"unit": "episodes", "budget": episodes}
    if config["combine"] == "guide" and config["actor_starts"] >= _most_steps(config):
        raise InputError(
            f"--actor-starts is {config['actor_starts']}, which leaves nothing of {config['budget']} {config['unit']} "
            "to the algorithm; name an earlier step"
        )
    if method.base is not None and config["unit"] == "episodes" and config["num_envs"] > 1:
        raise InputError(
            "with several slots Stable-Baselines3 counts steps, not episodes: use --steps, or --num-envs 1"
        )
    config.setdefault("eval_every", max(config["budget"] // 10, 1))
    check_settings(config)
    return config


def _combination(method: Method, given: Config) -> Config:
    """How the hindsight module is combined with the algorithm, if there are two to combine."""
    if method.base is None and given.get("sb3_options"):
        raise InputError("--sb3.NAME options go with the methods of Stable-Baselines3, such as sac+her+pchid")
    if method.base is None or method.module is None:
        of_module = ("draw", "test_tolerance") if method.base is not None else ()
        for name in ("combine", "weight", "actor_starts", *of_module):
            if name in given:
                raise InputError(f"{option(name)} goes with a method of two parts, such as sac+pchid")
        return {"combine": None, "weight": None}
    if not given.get("weight", 0.0) < float("inf"):
        raise InputError(f"weight is {given['weight']}, but it must be finite")
    combine = given.get("combine", "joint")
    if "actor_starts" in given and combine != "guide":
        raise InputError("--actor-starts goes with --combine guide, where hindsight goes first")
    started = {"actor_starts": given.get("actor_starts", ACTOR_STARTS)} if combine == "guide" else {}
    return {"combine": combine, "weight": float(given.get("weight", WEIGHTS[combine])), **started}


def without_effect(given: Config) -> list[str]:
    """Of the options that the user named, those that nothing reads beside Stable-Baselines3."""
    method = parse_method(given.get("method", "pchid"))
    if method.base is None:
        return []
    combine = given.get("combine", "joint") if method.module is not None else None
    unread = [name for name in OWN if combine != "guide" or name not in EXPLORATION]
    if combine is None:
        unread += [name for name in SHARED if name != "seed"]
    if combine in (None, "joint") and given.get("policy", "GoalPolicy") == "GoalPolicy":
        unread += [f"policy.{name}" for name in given.get("policy_options", {})]
    named = {**given, **_prefixed("policy", given.get("policy_options", {}))}
    return [option(name) for name in unread if name in named]


def option(name: str) -> str:
    """How a setting is named on the command line."""
    return f"--{name}" if "." in name else f"--{name.replace('_', '-')}"


def shared_settings(config: Config) -> dict[str, Any]:
    """The arguments that PCHID, PEHID and every hindsight module take from the settings of a run."""
    given = {name: config[name] for name in SHARED if name in config}
    return {**given, "convergence": Convergence(**config["convergence"])}


def own_settings(config: Config) -> dict[str, Any]:
    """The arguments of PCHID and PEHID from the settings of a run, but for environments and device."""
    return {
        "policy": config["policy"],
        **shared_settings(config),
        **{name: config[name] for name in OWN if name in config},
        "relabel": config["method"] != "id",
        "policy_kwargs": config["policy_settings"],
    }


def resumed_config(stored: Config, given: Config) -> Config:
    """The settings of a run that goes on: as they were, but for a larger budget."""
    known = dict(stored)
    asked = {name: value for name, value in given.items() if name in (*TYPES, *OPTIONAL) and name != "env_options"}
    for group, name in OPTION_GROUPS.items():
        known |= _prefixed(group, stored[name])
        asked |= _prefixed(group, given.get(f"{group}_options", {}))
    for name, value in asked.items():
        value = json.loads(json.dumps(value, default=str))  # as it was stored: a tuple is a list
        if value != known.get(name):
            was = f"with {name} {known[name]}" if name in known else f"without {name}"
            raise InputError(f"this run was started {was}, so --resume cannot make it {value}")
    budget = _budget(given)
    if budget is None:
        return stored
    if budget["unit"] != stored["unit"]:
        raise InputError(f"this run counts {stored['unit']}, so resume it with --{stored['unit']}")
    return {**stored, "budget": max(stored["budget"], budget["budget"])}


def check_settings(config: Config) -> None:
    """Refuse settings that cannot be meant, before any work is done."""
    check_K_max(config["K_max"], config["K_step"])
    check_convergence(config["convergence"])
    parse_test(config["test"])
    names = ("budget", "num_envs", "batch_size", "updates_per_episode", "buffer_size", "eval_every", "eval_episodes")
    at_least(1, **{name: config[name] for name in (*names, "final_episodes", "threads")})
    amounts = ("seed", "noise", "min_displacement", "checkpoint_seconds", "test_budget", "weight")
    at_least(0, **{name: config.get(name) for name in (*amounts, "least_noise", "hold_steps", "actor_starts")})
    if config["test_budget"] == float("inf"):
        raise InputError("test_budget is inf; leave it out for no limit")
    check_passes(config.get("passes_per_pair"))
    probability(exploration=config["exploration"], wander=config["wander"])
    if not config["learning_rate"] > 0.0:
        raise InputError(f"learning_rate must be positive, not {config['learning_rate']}")
    try:
        torch.empty(0, device="cpu" if config["device"] == "auto" else config["device"])
    except (RuntimeError, AssertionError):
        raise InputError(f"torch has no device '{config['device']}' here; use cpu or auto") from None


def check_types(given: Config) -> None:
    """Refuse what the parser of the command line would: settings may also come from the file of a sweep."""
    for name, value in given.items():
        kind = int if name in ("episodes", "steps") else {**TYPES, **OPTIONAL}.get(name, object)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
            raise InputError(f"{name} cannot be {value!r}")
        if name in CHOICES and value not in CHOICES[name]:
            raise InputError(f"{name} is one of {', '.join(CHOICES[name])}, not {value}")


def wrong_setting(config: Any) -> str | None:
    """What is wrong with what was read as a config, or None."""
    if not isinstance(config, dict):
        return "it is not an object"
    for name, kind in TYPES.items():
        if name not in config:
            return f"'{name}' is missing"
        if not isinstance(config[name], kind):
            return f"'{name}' is {config[name]!r}"
    for name, kind in OPTIONAL.items():
        if name in config and not isinstance(config[name], kind):
            return f"'{name}' is {config[name]!r}"
    return None


def _budget(given: Config) -> Config | None:
    if "episodes" in given and "steps" in given:
        raise InputError("give either --episodes or --steps, not both")
    return next(({"unit": unit, "budget": given[unit]} for unit in ("episodes", "steps") if unit in given), None)


def _most_steps(config: Config) -> float:
    """The steps that the budget allows for, as far as the environment says how long an episode may be."""
    longest = config["env_options"].get("horizon", find_spec(config["env"]).max_episode_steps)
    horizon = 1 if config["unit"] == "steps" else longest
    return config["budget"] * horizon if isinstance(horizon, int) else float("inf")


def _as_typed(name: str, value: Any) -> Any:
    """1 and 1.0 are the same setting, so they are written alike."""
    kinds = {**TYPES, **OPTIONAL}[name]
    return float(value) if isinstance(kinds, tuple) and float in kinds and isinstance(value, int) else value


def _prefixed(start: str, options: Config) -> Config:
    return {f"{start}.{name}": value for name, value in options.items()}
