"""The command line: `pchid train`, `evaluate`, `watch`, `plot`, `reproduce` and `sweep`.

In: words. Out: exit code 0 (done), 1 (the run failed) or 2 (the call was wrong), and one clear line for each error.
"""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import sys
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from pchid.config import OPTION_GROUPS
from pchid.errors import InputError, RunError
from pchid.experiments.commands import Reproduce, Sweep


@dataclass
class Train:
    """Train a policy; everything about the run goes into one directory.

    Options that you leave out take the value recommended for the environment. `--env.NAME VALUE` options reach the
    environment itself, `--policy.NAME VALUE` options the network, `--convergence.NAME VALUE` options (pairs, tolerance,
    patience) say when K grows, `--sb3.NAME VALUE` options reach the algorithm of Stable-Baselines3:
    `pchid train BitFlip-v0 --env.n_bits 50 --policy.hidden_sizes [128,128]`.
    """

    env: Annotated[str | None, tyro.conf.Positional] = None
    """A Gymnasium id such as FetchReach-v4 or BitFlip-v0, or module:id. With --resume it may be left out."""
    method: str | None = None
    """id: vanilla inverse dynamics; hid: one-step hindsight; pchid (default): k grows; pehid: all k at once. Or dqn,
    ppo, ddpg, td3, sac, tqc of Stable-Baselines3, followed by +her, by +hid, +pchid or +pehid, or both (ppo+her+pchid).
    """
    combine: Literal["joint", "average", "intrinsic"] | None = None
    """How hindsight enters an algorithm of Stable-Baselines3: joint training (default), averaged outputs, reward."""
    weight: float | None = None
    """How much it counts there; by default 1 (joint), 0.5 (average), 0.1 (intrinsic)."""
    episodes: int | None = None
    """Training episodes in total, over all slots."""
    steps: int | None = None
    """Environment steps in total, in place of --episodes."""
    seed: int | None = None
    """Decides everything random; by default 0."""
    out: Path | None = None
    """The run directory; by default runs/ENV-METHOD-SEED."""
    resume: bool = False
    """Go on from the newest checkpoint in --out; more --episodes or --steps than before make the run longer."""
    checkpoint: int | None = None
    """With --resume: the number of the checkpoint to go on from."""
    K_max: int | None = None
    """The longest piece of a trajectory to learn from, in steps."""
    K_step: int | None = None
    """K is K_step, 2 K_step, ...; more than 1 (the default) where a single step moves next to nothing."""
    test: str | None = None
    """TEST, does a piece really need k steps? interaction, ground-truth, rnd (rnd:0.9 for another threshold), none;
    auto (the default) is interaction where the environment can be restored and rnd otherwise."""
    test_budget: float | None = None
    """TEST steps for each environment step, at most; of the pieces that this leaves untested, none is learned."""
    num_envs: int | None = None
    """Environments that are stepped together."""
    policy: Literal["GoalPolicy", "VinPolicy"] | None = None
    """The network: a perceptron, or a value iteration network for GridWorld."""
    learning_rate: float | None = None
    """Of Adam."""
    batch_size: int | None = None
    """Pairs in a supervised step."""
    updates_per_episode: int | None = None
    """Supervised steps for each finished episode."""
    buffer_size: int | None = None
    """Pairs that each B_k holds."""
    exploration: float | None = None
    """The probability of a uniformly random action in training."""
    noise: float | None = None
    """Otherwise: the softmax temperature (discrete) or the Gaussian's standard deviation (continuous)."""
    wander: float | None = None
    """More than 0: turn to other goals once the own one is held, and with this probability in any step of training."""
    min_displacement: float | None = None
    """How far the achieved goal must move for a piece to count; 0: at all."""
    hold_goal: bool | None = None
    """Play the null action wherever the goal already holds."""
    eval_every: int | None = None
    """Episodes (or steps, with --steps) between evaluations; by default a tenth of the budget."""
    eval_episodes: int | None = None
    """Episodes in an evaluation during training."""
    final_episodes: int | None = None
    """Episodes in the last evaluation."""
    checkpoint_seconds: float | None = None
    """A checkpoint is written at each evaluation, and when this much time has passed; by default 30 seconds."""
    threads: int | None = None
    """Threads of torch; by default 1."""
    device: str | None = None
    """As in Stable-Baselines3: cpu (the default), cuda or auto."""
    quiet: bool = False
    """Print nothing but errors."""
    env_options: Annotated[dict[str, Any], tyro.conf.Suppress] = dataclass_field(default_factory=dict)
    policy_options: Annotated[dict[str, Any], tyro.conf.Suppress] = dataclass_field(default_factory=dict)
    convergence_options: Annotated[dict[str, Any], tyro.conf.Suppress] = dataclass_field(default_factory=dict)
    sb3_options: Annotated[dict[str, Any], tyro.conf.Suppress] = dataclass_field(default_factory=dict)

    def run(self) -> None:
        """Train, or go on training."""
        from pchid.config import new_config, resumed_config
        from pchid.display import Display, summary_table
        from pchid.experiments.plots import plot_runs
        from pchid.runs import RunDirectory
        from pchid.training import train, trusted_env

        given = {name: value for name, value in vars(self).items() if value is not None}
        directory = RunDirectory(self._out())
        if not self.resume:
            if self.checkpoint is not None:
                raise InputError("--checkpoint goes with --resume")
            if directory.exists:
                raise InputError(f"{directory.path} already holds a run; go on by --resume, or choose another --out")
            config = new_config(given)
        else:
            if not directory.exists:
                raise InputError(f"{directory.path} holds no run to resume; name it by --out, or start one")
            stored = directory.read_config()
            trusted_env(stored["env"], self.env)
            config = resumed_config(stored, given)
        title = f"{config['method']} on {config['env']}"
        with Display(config["unit"], config["budget"], title, self.quiet) as display:
            summary = train(config, directory, display, self.checkpoint)
        picture = plot_runs([directory.path], directory.path / "curve.png")
        display.console.print(summary_table(summary))
        places = {"run": directory.path, "policy": directory.policy, "curve": picture}
        onward = {
            "evaluate": f"pchid evaluate {directory.path}",
            "watch": f"pchid watch {directory.path} --out watch.gif",
        }
        for name, place in {**places, **onward}.items():
            display.console.print(f"{name:9} {place}", highlight=False)

    def _out(self) -> Path:
        if self.out is not None:
            return self.out
        if self.env is None:
            raise InputError("name an environment (pchid train FetchReach-v4) or a run (--resume --out DIR)")
        return Path("runs") / f"{self.env.split(':')[-1].replace('/', '-')}-{self.method or 'pchid'}-{self.seed or 0}"


@dataclass
class Evaluate:
    """Measure the policy of a run on fresh episodes."""

    run_directory: Annotated[Path, tyro.conf.Positional]
    """The directory of the run."""
    env: Annotated[str | None, tyro.conf.Positional] = None
    """Only for a run on module:id: the id again, so that the module may be imported."""
    episodes: int = 1000
    """How many episodes."""
    seed: int = 7
    """Decides their starts and goals."""
    maps: Path | None = None
    """For GridWorld: an .npz file with obstacle (M, size, size), start (M, 2), goal (M, 2), optionally budget (M,)."""
    json: Path | None = None
    """Also write the measures to this file."""

    def run(self) -> None:
        """Evaluate, print and perhaps write."""
        import json

        from rich.console import Console

        from pchid.checkpoint import write_atomically
        from pchid.display import summary_table
        from pchid.runs import RunDirectory
        from pchid.training import evaluate_run

        if self.episodes < 1:
            raise InputError(f"--episodes is {self.episodes}, but at least 1 is needed")
        outcomes = evaluate_run(RunDirectory(self.run_directory), self.episodes, self.seed, self.env, self.maps)
        result: dict[str, Any] = {"episodes": len(outcomes.final_success), **outcomes.measures().as_dict()}
        Console().print(summary_table(result))
        if self.json is not None:
            result |= {"seed": self.seed, "run": str(self.run_directory)}
            write_atomically(self.json, (json.dumps(result, indent=2) + "\n").encode())


@dataclass
class Watch:
    """Watch the policy of a run play, in a window or in a file."""

    run_directory: Annotated[Path, tyro.conf.Positional]
    """The directory of the run."""
    env: Annotated[str | None, tyro.conf.Positional] = None
    """Only for a run on module:id: the id again, so that the module may be imported."""
    out: Path | None = None
    """An animation (.gif, .mp4) or a strip of pictures (.png); by default a window opens."""
    episodes: int = 6
    """How many episodes."""
    seed: int = 7
    """Decides their starts and goals, as in pchid evaluate."""
    fps: int | None = None
    """Pictures a second; by default the environment's own pace, or as many as end in ten seconds."""
    only: Literal["successes", "failures"] | None = None
    """Only episodes that end so, out of the first 1000."""
    maps: Path | None = None
    """For GridWorld: an .npz file of maps, as in pchid evaluate."""

    def run(self) -> None:
        """Play, show or write, and count."""
        from pchid.runs import RunDirectory
        from pchid.watch import watch_run

        if self.episodes < 1:
            raise InputError(f"--episodes is {self.episodes}, but at least 1 is needed")
        if self.fps is not None and not 1 <= self.fps <= 50:
            raise InputError(f"--fps is {self.fps}, but must lie between 1 and 50")
        directory = RunDirectory(self.run_directory)
        shown = watch_run(directory, self.out, self.episodes, self.seed, self.env, self.maps, self.only, self.fps)
        if self.out is not None:
            print(self.out)
        print(f"{sum(episode.success for episode in shown)} of {len(shown)} episodes reached the goal")


@dataclass
class Plot:
    """Draw the learning curves of one or more runs; runs that differ only in their seed are averaged."""

    run_directories: Annotated[list[Path], tyro.conf.Positional]
    """The directories of the runs."""
    out: Path = Path("curves.png")
    """The picture."""
    axis: Literal["env_steps", "all_steps", "episodes"] = "env_steps"
    """What to plot against: environment steps, environment and TEST steps together, or episodes."""

    def run(self) -> None:
        """Plot."""
        from pchid.experiments.plots import plot_runs

        if not self.run_directories:
            raise InputError("name at least one run directory")
        print(plot_runs(self.run_directories, self.out, self.axis))


def main(arguments: list[str] | None = None) -> int:
    """The entry point; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    try:
        parse([word for word in words if word != "--debug"]).run()
    except KeyboardInterrupt:
        onward = "pchid train --resume --out DIR" if words[:1] == ["train"] else "the same call"
        print(f"\nstopped; `{onward}` goes on from the last checkpoint", file=sys.stderr)
        return 1
    except (InputError, RunError, OSError, ValueError) as error:
        if debug:
            raise
        print(f"pchid: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


Command = Train | Evaluate | Watch | Plot | Reproduce | Sweep


def parse(words: list[str]) -> Command:
    """The command that the words ask for; what is wrong with them becomes one line."""
    options: dict[str, dict[str, Any]] = {}
    for group in OPTION_GROUPS:
        words, options[group] = split_options(f"--{group}.", words)
    command = parse_plain(words)
    if isinstance(command, Train):
        for group, found in options.items():
            setattr(command, f"{group}_options", found)
    elif any(options.values()):
        group = next(group for group, found in options.items() if found)
        raise InputError(f"--{group}.NAME goes with pchid train; a run remembers it")
    return command


def parse_plain(words: list[str]) -> Command:
    """The same without the options that go elsewhere."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            command: Command = tyro.extras.subcommand_cli_from_dict(
                {
                    "train": Train,
                    "evaluate": Evaluate,
                    "watch": Watch,
                    "plot": Plot,
                    "reproduce": Reproduce,
                    "sweep": Sweep,
                },
                args=words,
                prog="pchid",
                description="Goal-conditioned control by supervised self-imitation (PCHID). --debug shows tracebacks.",
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(condense(complaint.getvalue())) from None
    return command


def condense(complaint: str) -> str:
    """The parser's box of text as one sentence: its first paragraph, and the option that was perhaps meant."""
    lines = [line.strip("│╭╮╰╯ ") for line in complaint.splitlines()[1:]]
    paragraph = " ".join(itertools.takewhile(lambda line: line and not line.startswith("─"), lines)).rstrip(".")
    meant = [after for line, after in itertools.pairwise(lines) if line.startswith("Perhaps you meant")]
    hint = f"; perhaps you meant {meant[0].split()[0]}" if meant else "; --help tells what there is"
    return paragraph[:1].lower() + paragraph[1:] + hint


def split_options(start: str, words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Take `--env.NAME VALUE` (or `--env.NAME=VALUE`) out of the words; values are Python literals or text."""
    rest: list[str] = []
    options: dict[str, Any] = {}
    remaining = iter(words)
    for word in remaining:
        if not word.startswith(start):
            rest.append(word)
            continue
        name, _, value = word.removeprefix(start).partition("=")
        value = value or next(remaining, "")
        if not name or not value or value.startswith("--"):
            raise InputError(f"{word} needs a name and a value, as in --env.n_bits 50")
        try:
            options[name.replace("-", "_")] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name.replace("-", "_")] = value
    return rest, options


if __name__ == "__main__":
    sys.exit(main())
