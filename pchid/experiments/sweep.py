"""A user's own grid as an experiment.

In: environments, methods, and settings of which some have several values, from the command line or a TOML file. Out: an
`Experiment` with a row for each combination.
"""

from __future__ import annotations

import ast
import itertools
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pchid.config import OPTION_GROUPS
from pchid.errors import InputError
from pchid.experiments.declaration import Experiment, Row
from pchid.experiments.plots import Panel

SEEDS = 3
KEYS = {"env", "method", "seeds", "settings"}


def grid(
    name: str,
    axis: str,
    envs: Sequence[str],
    methods: Sequence[str],
    settings: Mapping[str, Sequence[Any]],
    seeds: int = SEEDS,
) -> Experiment:
    """All combinations; what does not vary is left out of the labels."""
    rows = []
    for env, method, *values in itertools.product(envs, methods, *settings.values()):
        chosen = dict(zip(settings, values, strict=True))
        varied = [f"{key}={value}" for key, value in chosen.items() if len(settings[key]) > 1]
        place = [env] if len(envs) > 1 else []
        rows.append(Row(" ".join([method, *place, *varied]), env, method, chosen))
    if not rows:
        raise InputError("there is nothing to run: env, method and each setting need at least one value")
    labels = [row.label for row in rows]
    if len(set(labels)) < len(labels):
        raise InputError("some environment, method or value is named twice")
    panels = tuple(
        Panel(measure, axis, tuple(row.label for row in rows if row.env == env))
        for env in envs
        for measure in ("final_success", "mean_return")
    )
    return Experiment(name, f"{', '.join(methods)} on {', '.join(envs)}", tuple(rows), seeds, 0.0, panels=panels)


def try_rows(experiment: Experiment) -> None:
    """Make what each row would train with, so that a wrong option of a user's is known before the first run."""
    from pchid.training import make_algorithm

    for run in experiment.runs(1):
        try:
            make_algorithm(run.config())
        except (InputError, TypeError, ValueError) as error:
            raise InputError(f"{error} (in the row '{run.label}')") from None


def read_settings(words: Sequence[str]) -> dict[str, list[Any]]:
    """NAME=VALUE,VALUE as lists of values; what stands in brackets is one value."""
    settings: dict[str, list[Any]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not name or not equals or not text:
            raise InputError(f"'{word}' is no setting; write NAME=VALUE or NAME=VALUE,VALUE, as in episodes=100,200")
        if _known(name) in settings:
            raise InputError(f"'{name}' is named twice; write all its values after one =, as in episodes=100,200")
        pieces = re.split(r",(?![^\[({]*[\])}])", text)
        settings[_known(name)] = [_value(piece) for piece in pieces]
    return settings


def read_grid(path: Path) -> dict[str, Any]:
    """The grid in a TOML file: env, method (text or a list), seeds, and a table of settings."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    unknown = set(content) - KEYS
    if unknown or "env" not in content:
        raise InputError(
            f"{path} needs env, and may have method, seeds and a table [settings]; not: {unknown or 'env'}"
        )
    seeds = content.get("seeds", SEEDS)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise InputError(f"{path}: seeds is {seeds!r}, but a number from 1 on is needed")
    envs, methods = _as_list(content["env"]), _as_list(content.get("method", "pchid"))
    if not all(isinstance(name, str) for name in (*envs, *methods)):
        raise InputError(f"{path}: env and method are names, or lists of names")
    table = content.get("settings", {})
    if not isinstance(table, dict):
        raise InputError(f"{path}: settings is {table!r}, but a table [settings] is needed")
    settings = {_known(name): _as_list(value) for name, value in _flat(table).items()}
    return {"envs": envs, "methods": methods, "settings": settings, "seeds": seeds}


def _known(name: str) -> str:
    """The setting's name as `pchid train` spells it inside; what decides the run otherwise is refused."""
    group, _, option = name.partition(".")
    if option:
        if group not in OPTION_GROUPS:
            raise InputError(f"'{name}' is no setting; options reach env, policy or sb3, as in env.n_bits")
        return f"{group}.{option.replace('-', '_')}"
    plain = name.replace("-", "_")
    from pchid.commands.train import Train

    allowed = set(Train.__dataclass_fields__) - {"env", "method", "seed", "out", "resume", "checkpoint", "quiet"}
    if plain not in allowed or plain.endswith("_options"):
        raise InputError(f"'{name}' is no setting of a sweep; it is one of the options of pchid train")
    return plain


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """TOML reads env.n_bits = 5 as a table in a table."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
