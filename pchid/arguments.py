"""From what is recommended for an environment to the arguments of PCHID and PEHID in Python.

In: the id of an environment, and the arguments that the user named. Out: the settings that `pchid train` would resolve
them to, and all arguments; so a setting that makes another one meaningless does so here too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pchid.config import OWN, SHARED, Config, new_config, own_settings
from pchid.errors import InputError
from pchid.solvability import Interaction

UNSET = ("seed", "passes_per_pair", "least_noise", "test_tolerance")
"""What None leaves out; on the command line it is left out by not naming it."""


def recommended_arguments(
    env: str, method: str, num_envs: int | None, env_options: Config | None, given: dict[str, Any]
) -> tuple[Config, dict[str, Any]]:
    """The settings, and the arguments of the class but for environments and device, which takes its own default."""
    if not isinstance(env, str):
        raise InputError(
            "what is recommended goes by the id of an environment, such as 'FetchPush-v4'; "
            "for an environment that is made already, name the settings yourself"
        )
    given = {name: _plain(value) for name, value in given.items()}
    options = {"env": env, "method": method, "num_envs": _plain(num_envs), "env_options": env_options or {}}
    if num_envs is None:
        options.pop("num_envs")
    objects = [name for name in ("test", "policy") if name in given and not isinstance(given[name], str | None)]
    left_out = [name for name in UNSET if name in given and given[name] is None]
    named = [name for name in (*SHARED, *OWN, "policy") if name in given and name not in (*objects, *left_out)]
    config = new_config({**options, **{name: given[name] for name in named}})
    found = {**own_settings(config), "seed": None}
    if "policy" in objects:  # a class of the user's, with settings of its own
        found["policy_kwargs"] = {}
    if "test" in objects:  # it has its own idea of a goal, and only one that takes steps can have a budget of them
        found["test_tolerance"] = None
        if not isinstance(given["test"], Interaction):
            found["test_budget"] = None
    kwargs = {**found["policy_kwargs"], **(given.get("policy_kwargs") or {})}
    return config, {**found, **given, "policy_kwargs": kwargs}


def _plain(value: Any) -> Any:
    """A number of NumPy's as Python's own."""
    return value.item() if isinstance(value, np.generic) else value
