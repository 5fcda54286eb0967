"""`pchid train`: from words to a run directory.

In: the options as typed. Out: a finished run, its curve, and where everything is.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from pchid.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from pchid.runs import RunDirectory


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
    combine: Literal["joint", "average", "intrinsic", "guide"] | None = None
    """How hindsight enters an algorithm of Stable-Baselines3: joint training (default), averaged outputs, reward, or
    guidance: its own network goes first."""
    weight: float | None = None
    """How much it counts there; by default 1 (joint, guide), 0.5 (average), 0.1 (intrinsic)."""
    actor_starts: int | None = None
    """With guidance: the step from which on the algorithm goes on by itself; by default 100,000."""
    episodes: int | None = None
    """Training episodes in total, over all slots."""
    steps: int | None = None
    """Environment steps in total, in place of --episodes."""
    seed: int | None = None
    """Decides everything random; by default 0."""
    out: Path | None = None
    """The run directory; by default runs/ENV-METHOD-SEED."""
    start: str | None = None
    """Begin with the policy in this directory, of pchid fit or pchid train, or in this agent's file."""
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
    test_tolerance: float | None = None
    """How near the interaction TEST wants the policy to come to a goal; by default the environment's own tolerance."""
    draw: Literal["even", "asked", "both"] | None = None
    """Which pieces a TEST budget is spent on: any, those that end near goals that episodes were asked to reach, or half
    of each."""
    hold_steps: int | None = None
    """A goal counts as reached, by a piece and in TEST, only if it still is so many steps later; by default 0."""
    symmetries: bool | None = None
    """Learn each piece also as in a mirror and a little aside, where the environment knows that it may."""
    other_labels: bool | None = None
    """For each piece that TEST keeps, also learn the discrete actions that it finds to be as good as the executed."""
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
    passes_per_pair: float | None = None
    """In its place: how often each piece that passed TEST is shown to the network on average."""
    buffer_size: int | None = None
    """Pairs that each B_k holds."""
    exploration: float | None = None
    """The probability of a uniformly random action in training."""
    noise: float | None = None
    """Otherwise: the softmax temperature (discrete) or the Gaussian's standard deviation (continuous)."""
    least_noise: float | None = None
    """Each episode draws its scale of noise between this and --noise; by default all have --noise."""
    persistence: float | None = None
    """The probability that the Gaussian's noise stays as it was in the step before, for each entry of the action."""
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
    snapshots: bool | None = None
    """Keep the policy of every evaluation, as policy/steps-N.safetensors; by default only the last."""
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
        from pchid.config import without_effect
        from pchid.display import Display
        from pchid.runs import RunDirectory
        from pchid.training import train

        directory = RunDirectory(self._out())
        config = self._config(directory)
        nothing_left = directory.finished and self.checkpoint is None and directory.read_config() == config
        title = f"{config['method']} on {config['env']}"
        try:
            with Display(config["unit"], config["budget"], title, self.quiet) as display:
                if ignored := without_effect(self._given()):
                    note = f"without effect on {config['method']}, whose settings are --sb3.NAME: {', '.join(ignored)}"
                    display.console.print(note, highlight=False, soft_wrap=True)
                summary = train(config, directory, display, self.checkpoint)
        except KeyboardInterrupt:
            if directory.exists:
                raise
            raise KeyboardInterrupt("there was no checkpoint yet, so the same call starts anew") from None
        if nothing_left:
            used = f"this run has used up its {config['budget']:,} {config['unit']}"
            longer = f"--{config['unit']} with a larger number makes it longer"
            display.console.print(f"nothing was left to do: {used}; {longer}", highlight=False, soft_wrap=True)
        self._report(directory, config, summary, display.console)

    def _config(self, directory: RunDirectory) -> dict[str, Any]:
        """The settings, of a new run or of the one that goes on."""
        from pchid.config import new_config, resumed_config
        from pchid.training import trusted_env

        given = self._given()
        if not self.resume:
            if self.checkpoint is not None:
                raise InputError("--checkpoint goes with --resume")
            if directory.exists:
                raise InputError(f"{directory.path} already holds a run; go on by --resume, or choose another --out")
            return new_config(given)
        if not directory.exists:
            raise InputError(f"{directory.path} holds no run to resume; name it by --out, or start one")
        stored = directory.read_config()
        trusted_env(stored["env"], self.env)
        return resumed_config(stored, given)

    def _given(self) -> dict[str, Any]:
        """The options that the user named."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @staticmethod
    def _report(directory: RunDirectory, config: dict[str, Any], summary: dict[str, Any], console: Console) -> None:
        """Draw the curve, and print the figures, where everything is and what can be done with it."""
        from pchid.display import summary_table
        from pchid.experiments.plots import plot_runs

        picture = plot_runs([directory.path], directory.path / "curve.png")
        console.print(summary_table(summary))
        places = {"run": directory.path, "policy": directory.policy, "curve": picture}
        run = f"{directory.path} {config['env']}" if ":" in config["env"] else directory.path
        onward = {"evaluate": f"pchid evaluate {run}", "watch": f"pchid watch {run} --out watch.gif"}
        for name, place in {**places, **onward}.items():
            console.print(f"{name:9} {place}", highlight=False, soft_wrap=True)

    def _out(self) -> Path:
        if self.out is not None:
            return self.out
        if self.env is None:
            raise InputError("name an environment (pchid train FetchReach-v4) or a run (--resume --out DIR)")
        return Path("runs") / f"{self.env.split(':')[-1].replace('/', '-')}-{self.method or 'pchid'}-{self.seed or 0}"
