"""`pchid reproduce` and `pchid sweep` on the command line.

In: words. Out: experiments, carried out by an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from pchid.errors import InputError, RunError

if TYPE_CHECKING:
    from pchid.experiments.declaration import Experiment


@dataclass(kw_only=True)
class _Experiments:
    """How experiments are carried out."""

    seeds: int | None = None
    """Seeds 0, 1, ..., instead of the number that is declared."""
    workers: int | None = None
    """Runs at a time, one thread each; by default as many as cores."""
    engine: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster (pip install 'pchid[ray]')."""
    address: str | None = None
    """With --engine ray: the cluster to join (auto, HOST:PORT); by default one on this machine is started."""
    out: Path = Path("results")
    """Results go to a folder here, named after the experiment."""
    runs: Path = Path("runs/experiments")
    """Where the runs live; on a cluster, a place that all its machines see."""
    resume: bool = False
    """Count runs that the results in --out keep as done, where their own directories are gone: for an experiment that
    takes longer than a machine lasts."""
    so_far: bool = False
    """Run nothing: write what the runs that are finished show."""

    def _carry_out(self, experiments: Sequence[Experiment], quick: bool = False) -> None:
        from pchid.display import make_console
        from pchid.experiments.engines import make_engine
        from pchid.experiments.reproduce import Plan, reproduce

        out = self.out / "quick" if quick else self.out
        engine = make_engine(self.engine, self.workers, self.address)
        plan = Plan(engine, self.runs, out, self.seeds, quick, self.resume, self.so_far)
        failed = len(reproduce(experiments, plan, make_console()))
        if failed:
            raise RunError(f"{failed} run{'s' * (failed > 1)} failed; call again to go on with what is left")


@dataclass
class Reproduce(_Experiments):
    """Run figures and tables of the paper: their runs, statistics, plots and verdicts."""

    names: Annotated[list[str], tyro.conf.Positional]
    """fig1a, fig4a, fig4b, fig4cd, fig5, fig6a, fig6b, fig6c, table1, ou, others of --list, or all."""
    quick: bool = False
    """A small version, in minutes, in a folder `quick` of its own; what it cannot tell is not judged."""
    listed: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Say what each shows, what the paper claims, and how long it takes."""

    def run(self) -> None:
        """Reproduce, or list."""
        from pchid.display import make_console
        from pchid.experiments.figures import EXPERIMENTS
        from pchid.experiments.reproduce import listing

        unknown = [name for name in self.names if name not in (*EXPERIMENTS, "all")]
        if unknown:
            raise InputError(f"unknown experiment '{unknown[0]}': it is one of {', '.join(EXPERIMENTS)}, or all")
        chosen = [EXPERIMENTS[name] for name in (EXPERIMENTS if "all" in self.names else self.names)]
        if self.listed:
            make_console().print(listing(chosen or list(EXPERIMENTS.values())))
        elif not chosen:
            raise InputError(f"name an experiment: {', '.join(EXPERIMENTS)}, or all; --list tells about each")
        else:
            self._carry_out(chosen, self.quick)


@dataclass
class Sweep(_Experiments):
    """Run a grid of your own: environments, methods, settings and seeds.

    `pchid sweep FetchReach-v4 --methods pchid ppo+pchid --set episodes=100 learning_rate=1e-3,1e-4 --seeds 5`, or
    the same as a file: `pchid sweep grid.toml`. A setting is an option of `pchid train` (env.NAME, policy.NAME and
    sb3.NAME too); values with a comma between them are tried in turn, in all combinations.
    """

    what: Annotated[list[str], tyro.conf.Positional]
    """Environments, or one .toml file with env, method, seeds and a table of settings."""
    methods: list[str] | None = None
    """One or more; by default pchid."""
    settings: Annotated[list[str] | None, tyro.conf.arg(name="set")] = None
    """NAME=VALUE or NAME=VALUE,VALUE; what stands in brackets is one value."""
    name: str | None = None
    """The folder of its results in --out; by default that of the file, or sweep."""
    axis: Literal["env_steps", "all_steps", "episodes"] = "all_steps"
    """What to plot against."""

    def run(self) -> None:
        """Sweep."""
        from pchid.experiments.figures import EXPERIMENTS
        from pchid.experiments.sweep import grid, read_grid, read_settings, try_rows

        if len(self.what) == 1 and self.what[0].endswith(".toml"):
            if self.methods or self.settings:
                raise InputError("a grid comes from a file or from --methods and --set, not from both")
            path = Path(self.what[0])
            experiment = grid(self.name or path.stem, self.axis, **read_grid(path))
        else:
            if not self.what:
                raise InputError("name an environment, or a .toml file: pchid sweep FetchReach-v4 --methods pchid hid")
            settings = read_settings(self.settings or [])
            experiment = grid(self.name or "sweep", self.axis, self.what, self.methods or ["pchid"], settings)
        if experiment.name in (*EXPERIMENTS, "quick", "all"):
            raise InputError(f"'{experiment.name}' is the folder of other results; choose another --name")
        try_rows(experiment)
        self._carry_out([experiment])
