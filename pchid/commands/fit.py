"""`pchid fit`: a policy from logged episodes, with no environment step.

In: a file of episodes, or a Minari dataset. Out: a directory with the policy, and where to go on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from pchid.errors import InputError


@dataclass
class Fit:
    """Learn from logged episodes; `pchid train ENV --start DIR` goes on from there, in an environment.

    DATA is an .npz file with observation and achieved_goal (E, T+1, ...), desired_goal (E, ...), action (E, T, ...) and
    length (E,), as pchid.offline.save_episodes writes it, or minari:ID. `--policy.NAME VALUE` options reach the
    network, `--convergence.NAME VALUE` options say when K grows.
    """

    data: Annotated[str, tyro.conf.Positional]
    """An .npz file of episodes, or minari:ID for a local Minari dataset."""
    out: Path
    """The directory to write."""
    method: str = "pchid"
    """id: vanilla inverse dynamics; hid: one-step hindsight; pchid: k grows; pehid: all k at once."""
    passes: int = 10
    """How often to go over the log; K grows at least once in two."""
    tolerance: float | None = None
    """A goal is reached nearer than this (Fetch: 0.05); by default as --env says, or when goals are equal."""
    env: str | None = None
    """The environment that the log is of: its spaces and its rule of success are used, and pchid evaluate plays in it.
    `--env.NAME VALUE` options go with it."""
    K_max: int | None = None
    """The longest piece of a trajectory to learn from, in steps."""
    K_step: int | None = None
    """K is K_step, 2 K_step, ..."""
    test: str | None = None
    """TEST, does a piece really need k steps? rnd (the default; rnd:0.9 for another threshold) or none."""
    seed: int | None = None
    """Decides everything random; by default 0."""
    policy: Literal["GoalPolicy", "VinPolicy"] | None = None
    """The network: a perceptron, or a value iteration network for GridWorld."""
    learning_rate: float | None = None
    """Of Adam."""
    batch_size: int | None = None
    """Pairs in a supervised step."""
    updates_per_episode: int | None = None
    """Supervised steps for each episode, spread over the passes."""
    passes_per_pair: float | None = None
    """In its place: how often each piece that passed TEST is shown to the network on average."""
    episodes_per_round: int = 1
    """Episodes that are relabelled and learned from together."""
    buffer_size: int | None = None
    """Pairs that each B_k holds; of a longer log it is a window that slides over it."""
    min_displacement: float | None = None
    """How far the achieved goal must move for a piece to count; 0: at all."""
    hold_goal: bool | None = None
    """Play the null action wherever the goal already holds."""
    threads: int | None = None
    """Threads of torch; by default 1."""
    device: str | None = None
    """As in Stable-Baselines3: cpu (the default), cuda or auto."""
    quiet: bool = False
    """Print nothing but errors."""
    env_options: Annotated[dict[str, Any], tyro.conf.Suppress] = dataclass_field(default_factory=dict)
    policy_options: Annotated[dict[str, Any], tyro.conf.Suppress] = dataclass_field(default_factory=dict)
    convergence_options: Annotated[dict[str, Any], tyro.conf.Suppress] = dataclass_field(default_factory=dict)

    def run(self) -> None:
        """Fit, write, and say where."""
        from rich.console import Console

        from pchid.fitting import fit_config, fit_log
        from pchid.runs import RunDirectory

        if self.env_options and self.env is None:
            raise InputError("--env.NAME options go with --env ID")
        if RunDirectory(self.out).exists:
            raise InputError(f"{self.out} already holds a run or a fitted policy; choose another --out")
        always = {"env": self.env, "tolerance": self.tolerance}
        given = {name: value for name, value in vars(self).items() if value is not None} | always
        console = Console(quiet=self.quiet, soft_wrap=True)
        found = fit_log(fit_config(given), self.out, console.is_terminal and not self.quiet)
        console.print(
            f"{found['episodes']:,} episodes, {found['steps']:,} steps, {found['pairs']:,} pairs, K {found['K']}, "
            f"{found['updates']:,} updates, loss {found['loss']:.4f}",
            highlight=False,
        )
        options = "".join(f" --env.{name} {value}" for name, value in self.env_options.items())
        env = f"{self.env}{options}" if self.env else "ENV"
        for name, place in {
            "policy": RunDirectory(self.out).policy,
            "evaluate": f"pchid evaluate {self.out}{'' if self.env else ' ENV'}",
            "go on": f"pchid train {env} --start {self.out} --out DIR",
        }.items():
            console.print(f"{name:9} {place}", highlight=False)
