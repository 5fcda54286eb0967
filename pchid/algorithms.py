"""PCHID (Algorithm 1) and PEHID (supplement, Algorithm 2) as Stable-Baselines3 algorithms.

In: a goal environment. Out: a policy, by rounds of collecting episodes (`env.step`), relabelling and testing them
(`HindsightLearner.observe`) and supervised steps (`HindsightLearner.update`).
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.vec_env import VecEnv

from pchid.arguments import recommended_arguments
from pchid.assembly import Surroundings, make_learner
from pchid.behaviour import Behaviour
from pchid.checkpoint import load_module_state
from pchid.curriculum import Continuation, Convergence, Curriculum, Evolution, check_K_max
from pchid.envs.make import check_reward
from pchid.envs.randomness import named_seed
from pchid.envs.sb3 import GoalVecEnv
from pchid.episodes import Episodes, Recorder
from pchid.errors import InputError, at_least
from pchid.goals import Success, check_spaces, null_action, success_function
from pchid.learner import HindsightLearner
from pchid.logged import spaces_agree
from pchid.networks.vin import VinPolicy
from pchid.passes import Passes, fit, without_environment
from pchid.policies import GoalPolicy
from pchid.saving import load_agent, save_agent
from pchid.solvability import Probe, SolvabilityTest, Verdicts

Array = NDArray[Any]
Environment = str | VecEnv | VectorEnv[Any, Any, Any] | gym.Env[Any, Any]


class HindsightAlgorithm(BaseAlgorithm):
    """What PCHID and PEHID share; they differ in the curriculum alone.

    :param policy: "GoalPolicy" (a perceptron; also "MultiInputPolicy"), "VinPolicy" for GridWorld, or a class
    :param env: an id, a Gymnasium environment or vector environment, or a `VecEnv`
    :param K_max: the longest piece of a trajectory to learn from, in steps; 1 is one-step HID
    :param K_step: K is K_step, 2 K_step, ...; more than 1 for environments where a single step moves next to nothing
    :param test: TEST: "interaction", "ground-truth", "rnd", "none" or an object; "auto" takes interaction where the
        environment can be restored and rnd otherwise
    :param test_budget: interaction's steps for each environment step, at most; the pairs to test are then drawn evenly
        over all (t, k), and those that were not drawn are left out
    :param test_tolerance: how near interaction wants the policy to come to a goal, in place of the environment's own
        idea of success: less than that makes the policy more precise than it must be
    :param draw: which pairs a budget of TEST is spent on: "even", "asked": those near the goals of the episodes, or
        "both": half of each
    :param hold_steps: a goal counts as reached, by a piece of a trajectory and in TEST, only if it still is so many
        steps later: for what goes on by itself after it was pushed
    :param symmetries: show the network each pair as in a scene that the dynamics do not tell apart, where the
        environment knows such (`draw_symmetry`), as the Fetch tasks with an object do
    :param updates_per_episode: supervised steps for each finished episode
    :param passes_per_pair: in its place: how often each pair is shown to the network on average, soon after it came
    :param buffer_size: pairs that each B_k holds
    :param exploration: the probability that the behaviour policy takes a uniformly random action
    :param noise: otherwise, the temperature of the softmax that it samples discrete actions from, or the standard
        deviation of the Gaussian that it adds to continuous ones scaled to [-1, 1]; 0 is the policy itself
    :param wander: more than 0 lets the behaviour policy turn to another goal, one that it has met before, as soon as
        it holds its own, and with this probability in any step: for episodes that go on at the goal
    :param persistence: the probability that the noise in a continuous action stays as it was in the step before
    :param least_noise: each episode draws its scale of noise between this and `noise`; None: `noise` throughout
    :param min_displacement: how far the achieved goal must move for a pair to count; 0 means at all
    :param hold_goal: play the null action wherever the goal already holds (the sub-policy pi_0), where one exists
    :param relabel: False gives vanilla inverse dynamics (Eq. 1)
    :param other_labels: let the interaction TEST try, for each pair that it keeps, every discrete action that was not
        executed: one from which the policy reaches the goal in as many steps is a label too
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "GoalPolicy": GoalPolicy,
        "MultiInputPolicy": GoalPolicy,
        "VinPolicy": VinPolicy,
    }
    method: ClassVar[str]
    """Its name on the command line."""
    policy: GoalPolicy
    learner: HindsightLearner
    is_success: Success
    _passes: Passes | None = None
    _from_file: frozenset[str] = frozenset()  # the settings that were saved with an agent
    _knows = False  # whether its network came trained

    def __init__(
        self,
        policy: str | type[GoalPolicy],
        env: Environment | None,
        K_max: int = 5,
        K_step: int = 1,
        test: str | SolvabilityTest = "auto",
        learning_rate: float = 1e-3,
        batch_size: int = 256,
        updates_per_episode: int = 40,
        buffer_size: int = 100_000,
        exploration: float = 0.2,
        noise: float | None = None,
        wander: float = 0.0,
        min_displacement: float = 0.0,
        hold_goal: bool = False,
        test_budget: float | None = None,
        convergence: Convergence | None = None,
        relabel: bool = True,
        passes_per_pair: float | None = None,
        persistence: float = 0.0,
        other_labels: bool = False,
        least_noise: float | None = None,
        test_tolerance: float | None = None,
        draw: str = "even",
        hold_steps: int = 0,
        symmetries: bool = False,
        policy_kwargs: dict[str, Any] | None = None,
        tensorboard_log: str | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        check_K_max(K_max, K_step)
        at_least(0, updates_per_episode=updates_per_episode)
        super().__init__(
            policy,
            as_vec_env(env) if env is not None else None,
            learning_rate,
            policy_kwargs=policy_kwargs,
            tensorboard_log=tensorboard_log,
            verbose=verbose,
            device=device,
            support_multi_env=True,
            seed=int(np.random.SeedSequence().generate_state(1)[0] >> 1) if seed is None else seed,
        )
        self.K_max, self.K_step, self.test = K_max, K_step, test
        self.batch_size, self.updates_per_episode, self.buffer_size = batch_size, updates_per_episode, buffer_size
        self.exploration = exploration
        self.noise = noise if noise is not None else 1.0 if isinstance(self.action_space, spaces.Discrete) else 0.2
        self.wander, self.persistence, self.least_noise = wander, persistence, least_noise
        self.test_tolerance, self.draw, self.symmetries = test_tolerance, draw, symmetries
        self.hold_steps = hold_steps
        self.min_displacement, self.hold_goal = min_displacement, hold_goal
        self.test_budget, self.convergence, self.relabel = test_budget, convergence, relabel
        self.passes_per_pair, self.other_labels = passes_per_pair, other_labels
        if other_labels and not isinstance(self.action_space, spaces.Discrete):
            raise InputError("other_labels tries every action, so it is for discrete ones")
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        check_spaces(self.observation_space, self.action_space)
        assert isinstance(self.observation_space, spaces.Dict)
        self._setup_lr_schedule()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._named_seed("network"))
            self.policy = self._make_policy()
        self._null_action = null_action(self.action_space, self.env) if self.hold_goal else None
        if self.hold_goal and self._null_action is None:
            raise InputError(f"hold_goal needs a null action, which {self.action_space} does not have")
        if self.env is not None:
            self._setup_learner(self.env)

    def set_env(self, env: Environment, force_reset: bool = True) -> None:
        """Go on in these environments, with policy, buffers and K as they are; a TEST of "auto" is chosen anew."""
        env, before = as_vec_env(env), getattr(self, "learner", None)
        if self.env is None:
            self._take_spaces(env)
        self.n_envs = env.num_envs  # the recorder is a new one, so any number will do
        super().set_env(env, force_reset)
        self._null_action = null_action(self.action_space, self.env) if self.hold_goal else None
        self._setup_learner(env)
        if before is not None:
            self.learner.continue_from(before)

    def _take_spaces(self, env: VecEnv) -> None:
        """Replace spaces that were inferred from arrays by the environment's own, if they agree."""
        stored, own = self.observation_space, env.observation_space
        assert isinstance(stored, spaces.Dict)
        if not spaces_agree(stored, own) or self.action_space != env.action_space:
            raise InputError(
                f"the environment does not go with what was learned from: observations {own} and actions "
                f"{env.action_space}, but there they were {stored} and {self.action_space}"
            )
        self.observation_space = self.policy.observation_space = own

    def _make_policy(self) -> GoalPolicy:
        make: Any = self.policy_class
        try:
            policy: GoalPolicy = make(self.observation_space, self.action_space, self.lr_schedule, **self.policy_kwargs)
        except TypeError as error:
            if "unexpected keyword" not in str(error):
                raise
            raise InputError(f"{self.policy_class.__name__} does not take these settings: {error}") from None
        return policy.to(self.device)

    def _setup_learner(self, env: VecEnv | None) -> None:
        """The learner, and what collects for it; with no environment there is neither that nor a TEST that asks one."""
        assert isinstance(self.observation_space, spaces.Dict)
        assert isinstance(self.action_space, spaces.Discrete | spaces.Box)
        if env is not None:
            env.seed(self._named_seed("environment"))
            self.is_success = success_function(env)
            self.recorder = Recorder(self.observation_space, self.action_space, env.num_envs)
            self.behaviour = Behaviour(
                self.action_space,
                self.is_success,
                np.random.default_rng(self._named_seed("behaviour")),
                exploration=self.exploration,
                noise=self.noise,
                wander=self.wander,
                persistence=self.persistence,
                least_noise=self.least_noise,
            )
        around = None if env is None else Surroundings.of(env)
        self.saves_states = around is not None and around.saves_states
        assert self.seed is not None
        self.learner = make_learner(
            self,
            around,
            self.is_success,
            self._curriculum(),
            self.policy.optimizer,
            self.seed,
            relabel=self.relabel,
            other_labels=self.other_labels,
            yielding=self._from_file,
        )
        self._probe: Probe | None = None

    @abstractmethod
    def _curriculum(self) -> Curriculum:
        """Which k are learned when."""

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 10,
        tb_log_name: str = "run",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        total_episodes: int | None = None,
    ) -> Self:
        """Train for `total_timesteps` environment steps, or until `total_episodes` have ended, if that comes first."""
        if self.env is None:
            raise InputError("there is no environment to learn in: give one by set_env, or fit(episodes) to a log")
        fresh = reset_num_timesteps or self._last_obs is None
        total_timesteps, callback = self._setup_learn(
            total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar
        )
        if fresh:
            self.recorder.start(self._last_obs)  # type: ignore[arg-type]
        callback.on_training_start(locals(), globals())
        while self.num_timesteps < total_timesteps and (total_episodes is None or self._episode_num < total_episodes):
            callback.on_rollout_start()
            episodes, going_on = self._collect(callback, total_timesteps)
            callback.on_rollout_end()
            if episodes is not None:
                if total_episodes is not None:  # slots that end in the same step may be more than are still wanted
                    episodes = episodes.first(total_episodes - self._episode_num)
                self._train(episodes, log_interval)
            if not going_on:
                break
        callback.on_training_end()
        return self

    @classmethod
    def recommended(
        cls, env: str, num_envs: int | None = None, env_options: dict[str, Any] | None = None, **settings: Any
    ) -> Self:
        """An agent with the settings that `pchid train` takes for an environment, which is named by its id.

        So many environments are made as are recommended, or `num_envs`. `settings` are those of the class, and count in
        place of what is recommended; of `policy_kwargs`, those that are named. A policy class of your own has none but
        these.
        """
        policy: Any = settings.get("policy")
        kind = cls.policy_aliases.get(policy, policy)
        if kind in cls.policy_aliases.values():
            settings["policy"] = kind.__name__
        config, arguments = recommended_arguments(env, cls.method, num_envs, env_options, settings)
        check_reward(config["env"], **config["env_options"])
        return cls(env=GoalVecEnv.make(config["env"], config["num_envs"], **config["env_options"]), **arguments)

    @classmethod
    def from_episodes(
        cls,
        episodes: Episodes,
        policy: str | type[GoalPolicy] = "GoalPolicy",
        tolerance: float | None = None,
        is_success: Success | None = None,
        observation_space: spaces.Dict | None = None,
        action_space: spaces.Space[Any] | None = None,
        **settings: Any,
    ) -> Self:
        """An algorithm with no environment, for the spaces of logged episodes; then `fit` them.

        A goal is reached as `is_success(achieved, desired)` says, or nearer than `tolerance`, or when both are equal.
        """
        return without_environment(
            cls, episodes, policy, tolerance, is_success, observation_space, action_space, **settings
        )

    def fit(
        self, episodes: Episodes, passes: int = 10, episodes_per_round: int = 1, progress_bar: bool = False
    ) -> Self:
        """Learn from logged episodes without an environment step; `learn` may follow, or more of this.

        K grows from pass to pass; the supervised steps, `updates_per_episode` for each, are spread over the `passes`.
        """
        fit(self, episodes, passes, episodes_per_round, progress_bar)
        return self

    def _train(self, episodes: Episodes, log_interval: int) -> None:
        """One round of Algorithm 1 after its episodes: relabel, test, store, and optimise."""
        before, self._episode_num = self._episode_num, self._episode_num + len(episodes)
        self.learner.learn(episodes, self.policy, self.updates_per_episode * len(episodes))
        self._n_updates = self.learner.updates
        if log_interval and self._episode_num // log_interval > before // log_interval:
            self._log(episodes)

    def _collect(self, callback: BaseCallback, total_timesteps: int) -> tuple[Episodes | None, bool]:
        """Step the environments until an episode, the budget or a callback ends; the flag says whether to go on."""
        assert self.env is not None
        while self.num_timesteps < total_timesteps:
            states = self.env.unwrapped.vector.get_state() if self.saves_states else None  # type: ignore[attr-defined]
            actions = self._behave(self._last_obs)  # type: ignore[arg-type]
            observations, rewards, dones, infos = self.env.step(actions)
            self.num_timesteps += self.env.num_envs
            self._last_obs = observations  # type: ignore[assignment]
            episodes = self.recorder.record(actions, observations, rewards, dones, infos, states)  # type: ignore[arg-type]
            self._update_info_buffer(infos, dones)
            callback.update_locals(locals())
            going_on = callback.on_step()
            if episodes is not None or not going_on:
                return episodes, going_on
        return None, True

    def _behave(self, observations: dict[str, Array]) -> Array:
        """What the behaviour policy does: anything, until there is a policy to follow."""
        if self.learner.updates == 0 and not self._knows:
            return self.behaviour.random_actions(len(observations["observation"]))
        return self.behaviour.actions(observations, self.policy, self.recorder, self.learner.buffers)

    def predict(
        self,
        observation: Array | dict[str, Array],
        state: tuple[Array, ...] | None = None,
        episode_start: Array | None = None,
        deterministic: bool = False,
    ) -> tuple[Array, tuple[Array, ...] | None]:
        """The policy's action, or the null action where the goal already holds. It is always deterministic."""
        actions, state = super().predict(observation, state, episode_start, deterministic)
        if self._null_action is None or not hasattr(self, "is_success"):  # nobody can tell a reached goal
            return actions, state
        assert isinstance(observation, dict)
        single = observation["achieved_goal"].ndim == len(self.observation_space["achieved_goal"].shape)  # type: ignore[index]
        achieved, desired = (
            observation[key][None] if single else observation[key] for key in ("achieved_goal", "desired_goal")
        )
        reached = self.is_success(achieved, desired)
        holding = reached.reshape(-1, *[1] * self._null_action.ndim) & ~np.isnan(self._null_action)
        held = np.where(holding, self._null_action, actions)
        return held[0] if single else held, state

    def continuation(self) -> dict[int, float]:
        """For each i, the fraction of recent i-step pairs that the policy solves in i steps; {} without a simulator."""
        make_probe = getattr(self.env.unwrapped, "make_probe", None) if self.env is not None else None
        if not self.saves_states or make_probe is None:
            return {}
        self._probe = self._probe or Probe(make_probe())
        return self.learner.continuation(self.policy, self._probe)

    @property
    def episodes(self) -> int:
        """Episodes that have ended."""
        return self._episode_num

    @property
    def K(self) -> int:
        """The longest piece that is learned from now."""
        return self.learner.curriculum.K[-1]

    def diagnostics(self) -> dict[str, Any]:
        """What the learner knows of itself, for the metrics of a run."""
        fractions = self.continuation()
        lengths = range(self.K_step, self.K_max + 1, self.K_step)
        return {
            **self.learner.diagnostics(),
            **{f"continuation_{k}": fractions.get(k) for k in lengths},
            **(self._verdicts(lengths[1:]) if self.learner.truth is not None else {}),
        }

    def _verdicts(self, lengths: range) -> dict[str, float]:
        """How right TEST was, for each k."""
        verdicts = {k: self.learner.verdicts.get(k, Verdicts()) for k in lengths}
        accuracy = {f"test_accuracy_{k}": found.accuracy for k, found in verdicts.items()}
        return {**accuracy, **{f"test_recall_{k}": found.recall for k, found in verdicts.items()}}

    @property
    def test_steps(self) -> int:
        """Simulator steps spent inside TEST."""
        return self.learner.test.steps

    def _log(self, episodes: Episodes) -> None:
        learner, record = self.learner, self.logger.record
        record("rollout/success", float(np.mean(self.ep_success_buffer)) if self.ep_success_buffer else float("nan"))
        record("rollout/return", float(episodes.total_reward.mean()))
        record("train/loss", self.learner.last_loss)
        record("train/K", learner.curriculum.K[-1])
        record("train/pairs", len(learner.buffers))
        record("test/steps", self.test_steps)
        record("test/pass_rate", learner.kept / learner.offered if learner.offered else float("nan"))
        record("time/episodes", self._episode_num)
        self.logger.dump(step=self.num_timesteps)

    def state(self) -> dict[str, Any]:
        """Everything that training depends on, for an exact checkpoint."""
        assert self.env is not None
        if not isinstance(self.env.unwrapped, GoalVecEnv):
            raise InputError("an exact checkpoint needs environments made by GoalVecEnv.make")
        return {
            "policy": dict(self.policy.state_dict()),
            "learner": self.learner.state(),
            "recorder": self.recorder.state(),
            "environment": self.env.unwrapped.state(),
            "behaviour": self.behaviour.state(),
            "counts": [self.num_timesteps, self._episode_num],
            **({"knows": True} if self._knows else {}),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on as if training had never stopped; `learn(..., reset_num_timesteps=False)` follows."""
        assert self.env is not None and isinstance(self.env.unwrapped, GoalVecEnv)
        load_module_state(self.policy, state["policy"])
        self.learner.load_state(state["learner"])
        self.recorder.load_state(state["recorder"])
        self.env.unwrapped.load_state(state["environment"])
        self.behaviour.load_state(state["behaviour"])
        self.num_timesteps, self._episode_num = state["counts"]
        self._knows = state.get("knows", False)
        self._n_updates = self.learner.updates
        self._last_obs = self.recorder.last_observations()

    def save(self, path: Any, exclude: Any = None, include: Any = None) -> None:
        """Write the trained agent to one safetensors file (`.safetensors` is added to a name without an ending)."""
        save_agent(self, path)

    @classmethod
    def load(  # type: ignore[override]
        cls, path: str | Path, env: Environment | None = None, device: torch.device | str = "auto", **kwargs: Any
    ) -> Self:
        """Read an agent back; nothing in the file can run code. A policy class of your own is named by `policy=`."""
        return load_agent(cls, path, env, device, **kwargs)

    def _named_seed(self, name: str) -> int:
        assert self.seed is not None
        return named_seed(self.seed, name)


class PCHID(HindsightAlgorithm):
    """Policy Continuation with Hindsight Inverse Dynamics: K grows by one whenever the policy has converged."""

    method = "pchid"

    def _curriculum(self) -> Curriculum:
        return Continuation(self.K_max, self.convergence, self.K_step)


class PEHID(HindsightAlgorithm):
    """Policy Evolution with Hindsight Inverse Dynamics: all k at once, in one buffer."""

    method = "pehid"

    def _curriculum(self) -> Curriculum:
        return Evolution(self.K_max, self.K_step)


def as_vec_env(env: Environment) -> VecEnv:
    """Any form of goal environment as a `VecEnv`, restorable and with a probe wherever that is possible."""
    if isinstance(env, VecEnv):
        return env
    if isinstance(env, str):
        return GoalVecEnv.make(env)
    return GoalVecEnv(env) if isinstance(env, VectorEnv) else GoalVecEnv.of_single(env)


MAX_STEPS = sys.maxsize // 2
"""As `total_timesteps`: no limit but `total_episodes`."""
