"""What an experiment is: rows (a method, an environment and settings), seeds, and the paper's claims about them.

In: a figure's declaration in `figures/`, or a user's grid. Out: `Run`s, each one call of `pchid train`, whose directory
is named after everything that decides its outcome: a finished run is found again, also by another figure that needs
it, and a changed setting is another run.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pchid.config import OPTION_GROUPS, Config, new_config, option
from pchid.errors import InputError
from pchid.experiments.plots import Panel

if TYPE_CHECKING:
    from pchid.experiments.claims import Claim
    from pchid.experiments.results import Results

Settings = Mapping[str, Any]
"""Options of `pchid train` by their names: {"episodes": 100, "K_max": 5, "env.n_bits": 11}."""


@dataclass(frozen=True)
class Run:
    """One training: everything about it but where it happens."""

    label: str
    """The row, and the curve, that it belongs to."""
    env: str
    method: str
    settings: Settings
    seed: int

    def words(self) -> list[str]:
        """The call: what follows `pchid train`."""
        options = {"method": self.method, **self.settings, "seed": self.seed}
        return [self.env, *itertools.chain(*((option(name), str(value)) for name, value in options.items()))]

    def command(self) -> str:
        """The call as one types it, without the seed."""
        return shlex.join(["pchid", "train", *self.words()[:-2]])

    def config(self) -> Config:
        """The settings as `pchid train` resolves them; wrong ones are refused here, before anything runs."""
        plain = {name: value for name, value in self.settings.items() if "." not in name and value is not None}
        groups: dict[str, dict[str, Any]] = {f"{group}_options": {} for group in OPTION_GROUPS}
        for name, value in self.settings.items():
            group, _, inner = name.partition(".")
            if inner:
                groups[f"{group}_options"][inner] = _as_plain(value)
        return new_config({"env": self.env, "method": self.method, "seed": self.seed, **plain, **groups})

    def directory(self, folder: Path) -> Path:
        """Where it runs; see `directory_name`."""
        return folder / directory_name(self.config())


def directory_name(config: Config) -> str:
    """A name that says what the run is, with a hash of all its settings."""
    rest = {name: value for name, value in config.items() if name != "seed"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:8]
    env = config["env"].split(":")[-1].replace("/", "-")
    return f"{env}-{config['method']}-{digest}-{config['seed']}"


@dataclass(frozen=True)
class Row:
    """A method on an environment: one curve of a figure, one row of a table."""

    label: str
    env: str
    method: str
    settings: Settings = field(default_factory=dict)
    seeds: int | None = None
    """At most so many, where a row is long and only there for comparison."""
    quick: Settings = field(default_factory=dict)
    """What makes it small beside `Experiment.quick`."""
    note: str = ""
    """What the table should say of it."""


@dataclass(frozen=True)
class Experiment:
    """A figure or table, as data."""

    name: str
    shows: str
    """What it shows, in one sentence."""
    rows: tuple[Row, ...]
    seeds: int
    minutes: float
    """How long it takes on two cores: as it took where results are there, a guess elsewhere."""
    claims: tuple[Claim, ...] = ()
    panels: tuple[Panel, ...] = (Panel(),)
    quick: Settings = field(default_factory=dict)
    """Settings that make every row small."""
    quick_seeds: int = 2
    policies: tuple[str, ...] = ()
    """Rows whose policies are written with the results, as run directories for `pchid evaluate` and `pchid watch`."""
    lasting: bool = False
    """It takes longer than a machine may last: the settings and figures of all rows are written with the results, so
    that `--resume` takes up every run that was finished."""
    study: Callable[[Results, bool], None] | None = None
    """What is computed besides: it gets the results so far (the quick version's, if so) and may add to them."""

    def runs(self, seeds: int | None = None, quick: bool = False) -> list[Run]:
        """All runs, seed by seed, so that every row has some results early."""
        count = (self.quick_seeds if quick else self.seeds) if seeds is None else seeds
        return [
            Run(
                row.label, row.env, row.method, {**row.settings, **({**self.quick, **row.quick} if quick else {})}, seed
            )
            for seed in range(count)
            for row in self.rows
            if row.seeds is None or seed < row.seeds
        ]


def _as_plain(value: Any) -> Any:
    """An option's value as JSON has it, 1.0 written like 1."""
    if isinstance(value, Mapping):
        return {str(key): _as_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_plain(inner) for inner in value]
    if not isinstance(value, str | int | float | None):
        raise InputError(f"{value!r} cannot be the value of an option")
    return int(value) if isinstance(value, float) and value.is_integer() else value
