"""Joint training: what is recorded of the algorithm's episodes, on which network it is taught, and in which worlds."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
)
from user_envs import Line, LoggedLine

import pchid
from pchid import AveragedOutputs, GoalFeatures, GoalVecEnv, Interaction, IntrinsicReward, JointTraining
from pchid.curriculum import Convergence
from pchid.distillation import RandomNetworkDistillation
from pchid.envs.make import find_spec
from pchid.episodes import Episodes
from pchid.errors import InputError

SMALL: dict[str, Any] = {"seed": 1, "device": "cpu", "policy_kwargs": {"net_arch": [16]}}
ON: dict[str, Any] = {**SMALL, "n_steps": 20}
PROXIMAL: dict[str, Any] = {**ON, "batch_size": 20, "n_epochs": 1}
OFF: dict[str, Any] = {**SMALL, "learning_starts": 24, "batch_size": 16, "buffer_size": 500}
HURRY = Convergence(pairs=4, tolerance=1.0)  # K grows as soon as it can
FEW: dict[str, Any] = {"updates_per_episode": 2, "batch_size": 16}


def new(kind: Any, env: Any, settings: dict[str, Any], policy: str = "MultiInputPolicy", **others: Any) -> Any:
    """A model; its settings are copied, because Stable-Baselines3 writes into `policy_kwargs`."""
    return kind(policy, env, **copy.deepcopy({**settings, **others}))


def plain_fetch(**options: Any) -> Any:
    find_spec("FetchReach-v4")
    return gym.make("FetchReach-v4", **options)


class Kept(JointTraining):
    """Keeps the episodes that it learns from."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kept: list[Episodes] = []

    def _on_rollout_start(self) -> None:
        self.kept += self.tap.episodes
        super()._on_rollout_start()


def assert_it_worked(module: Any) -> None:
    assert module.episodes_seen > 0
    assert module.updates > 0
    assert len(module.learner.buffers) > 0


# TEST by interaction, with what a user has at hand.


def test_a_plain_environment_serves_for_training_and_for_test() -> None:
    find_spec("FetchReach-v4")
    model = new(SAC, "FetchReach-v4", {**OFF, "learning_starts": 100})
    module = JointTraining(K_max=5, test=Interaction(plain_fetch), convergence=HURRY, **FEW)
    model.learn(160, callback=module)
    assert_it_worked(module)
    assert module.learner.curriculum.K == [1, 2]
    model.learn(110, callback=module, reset_num_timesteps=False)
    assert module.learner.curriculum.K[-1] > 2
    assert module.test_steps > 0


def test_so_does_a_vector_environment() -> None:
    env = GoalVecEnv.make("FetchReach-v4", 2, horizon=10)
    module = JointTraining(
        K_max=5, test=Interaction(lambda: pchid.make_probe("FetchReach-v4")), convergence=HURRY, **FEW
    )
    new(PPO, env, PROXIMAL).learn(160, callback=module)
    assert_it_worked(module)
    assert module.test_steps > 0


def test_by_itself_it_takes_interaction_where_it_can() -> None:
    for env in (GoalVecEnv.make("BitFlip-v0", 2, n_bits=4), DummyVecEnv([lambda: plain_fetch(max_episode_steps=5)])):
        module = JointTraining(K_max=3, **FEW)
        module.prepare(new(PPO, env, PROXIMAL))
        assert isinstance(module.learner.test, Interaction)


# What is recorded.


class Wide(LoggedLine):
    """Actions with bounds that are neither one nor symmetric."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(np.array([-0.5, -2.0]), np.array([3.0, 0.25]), (2,), np.float64)


def wide_lines() -> Any:
    return DummyVecEnv([lambda: TimeLimit(Wide(), 6)] * 2)


LOOSE = {"net_arch": [16], "log_std_init": 1.0}
SQUASHED = {"net_arch": [16], "squash_output": True}
SAMPLERS: dict[str, Callable[[Any], Any]] = {
    "ppo": lambda env: new(PPO, env, PROXIMAL, policy_kwargs=LOOSE),
    "a2c": lambda env: new(A2C, env, ON, policy_kwargs=LOOSE),
    "ppo, squashed": lambda env: new(PPO, env, PROXIMAL, use_sde=True, policy_kwargs=SQUASHED),
    "sac": lambda env: new(SAC, env, OFF),
    "td3": lambda env: new(TD3, env, OFF),
}


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize(
    "make_model",
    [
        pytest.param(make, id=name, marks=[pytest.mark.slow] * (name in ("a2c", "td3")))
        for name, make in SAMPLERS.items()
    ],
)
def test_the_record_is_what_the_environment_saw(make_model: Callable[[Any], Any], normalise: bool) -> None:
    env = wide_lines()
    module = Kept(K_max=1, **FEW)
    make_model(VecNormalize(VecMonitor(env)) if normalise else env).learn(120, callback=module)
    assert len(module.kept) >= 6
    actions = []
    for number, episodes in enumerate(module.kept):
        assert episodes.length.tolist() == [6, 6]
        for slot, single in enumerate(env.envs):
            before, executed, after = (np.array(part) for part in zip(*single.unwrapped.log, strict=True))
            steps = slice(6 * number, 6 * number + 6)
            np.testing.assert_array_equal(episodes.action[slot], executed[steps])
            np.testing.assert_array_equal(episodes.observation[slot, :-1], before[steps])
            np.testing.assert_array_equal(episodes.achieved_goal[slot, 1:], after[steps])
            np.testing.assert_array_equal(episodes.state[slot, :, 1:3], before[steps])
            actions.append(episodes.action[slot])
    found, space = np.concatenate(actions), env.action_space
    assert (found >= space.low).all()
    assert (found <= space.high).all()
    assert (found[:, 0] > 1.0).any()  # so they are not the scaled ones
    assert (found[:, 1] < -1.0).any()


def test_ppo_is_taught_the_clipped_action() -> None:
    env = wide_lines()
    module = Kept(K_max=1, **FEW)
    SAMPLERS["ppo"](env).learn(100, callback=module)
    actions = np.concatenate([episodes.action.reshape(-1, 2) for episodes in module.kept])
    assert (actions == env.action_space.high).any(axis=0).all()
    assert (actions == env.action_space.low).any(axis=0).all()


def test_the_goals_are_those_of_each_episode() -> None:
    env = wide_lines()
    module = Kept(K_max=1, **FEW)
    new(PPO, VecNormalize(env), PROXIMAL).learn(100, callback=module)
    goals = np.concatenate([episodes.desired_goal for episodes in module.kept])
    assert len(np.unique(goals, axis=0)) == len(goals)
    assert (np.abs(goals) <= 3.0).all()
    assert np.abs(goals).max() > 1.5


def test_an_episode_between_two_calls_is_recorded_as_a_whole() -> None:
    env = wide_lines()
    module = Kept(K_max=1, **FEW)
    model = new(SAC, VecNormalize(env), {**OFF, "train_freq": 1})
    for _ in range(6):
        model.learn(10, callback=module, reset_num_timesteps=False)
    assert [episodes.length.tolist() for episodes in module.kept] == [[6, 6]] * 4


# What it is taught on.


def pairs_of(module: Any) -> Any:
    return module.learner.buffers.sample(400, np.random.default_rng(0))


def loss_by_hand(model: Any, pairs: Any) -> float:
    """How unlikely, or how far away, the executed actions are, asked of the algorithm's own policy."""
    with torch.no_grad():
        seen = model.policy.obs_to_tensor(pairs.observations)[0]
        if not isinstance(model.action_space, spaces.Discrete):
            said = model.predict(pairs.observations, deterministic=True)[0]
            return float(np.square(said - pairs.action).mean())
        if isinstance(model, DQN):
            scores = torch.log_softmax(model.q_net(seen), dim=1)
            return float(-scores[torch.arange(len(pairs.action)), torch.as_tensor(pairs.action)].mean())
        return float(-model.policy.get_distribution(seen).log_prob(torch.as_tensor(pairs.action)).mean())


def bits() -> Any:
    return GoalVecEnv.make("BitFlip-v0", 2, n_bits=4)


def plane() -> Any:
    return GoalVecEnv.make("UserLoggedLine-v0", 2)


LATE: dict[str, Any] = {**OFF, "learning_starts": 10_000}
STILL: dict[str, Any] = {**PROXIMAL, "learning_rate": 0.0}  # of its own accord it learns nothing
TAUGHT: dict[str, Callable[[], Any]] = {
    "dqn": lambda: new(DQN, bits(), LATE),
    "ppo, discrete": lambda: new(PPO, bits(), STILL),
    "ppo, continuous": lambda: new(PPO, plane(), STILL),
    "sac": lambda: new(SAC, plane(), LATE),
    "td3": lambda: new(TD3, plane(), LATE),
}
taught = pytest.mark.parametrize(
    "make_model",
    [pytest.param(make, id=name, marks=[pytest.mark.slow] * ("ppo" in name)) for name, make in TAUGHT.items()],
)


def teach(model: Any, weight: float) -> Any:
    module = JointTraining(K_max=1, weight=weight, learning_rate=1e-2, updates_per_episode=6, batch_size=64)
    model.learn(160, callback=module)
    return module


@taught
def test_the_algorithm_itself_comes_to_act_as_it_was_taught(make_model: Callable[[], Any]) -> None:
    student, bystander = make_model(), make_model()
    pairs = pairs_of(teach(student, weight=5.0))
    teach(bystander, weight=0.0)
    assert loss_by_hand(student, pairs) < 0.6 * loss_by_hand(bystander, pairs)


@pytest.mark.slow
@taught
def test_it_is_taught_by_an_optimiser_of_its_own(make_model: Callable[[], Any]) -> None:
    model = make_model()
    module = teach(model, weight=1.0)
    own = [
        optimizer
        for name in model._get_torch_save_params()[0]
        if isinstance(optimizer := _attribute(model, name), torch.optim.Optimizer)
    ]
    assert own
    assert all(optimizer is not module.learner.optimizer for optimizer in own)
    assert module.learner.optimizer.state
    if not isinstance(model, PPO):  # which has not trained yet
        assert not any(optimizer.state for optimizer in own)


def _attribute(model: Any, path: str) -> Any:
    for name in path.split("."):
        model = getattr(model, name)
    return model


def test_inputs_are_normalised_by_what_is_taught_too() -> None:
    def counted(weight: float) -> tuple[float, float]:
        """How many batches the actor's inputs were normalised by, and how well, before the first step of its own."""
        env, inputs = GoalVecEnv.make("FetchReach-v4", 4), {"features_extractor_class": GoalFeatures, "net_arch": [16]}
        model = new(TD3, env, OFF, learning_starts=10_000, policy_kwargs=inputs)
        module = JointTraining(K_max=2, weight=weight, **FEW)
        model.learn(410, module)
        features: Any = model.actor.features_extractor
        seen = {
            key: torch.as_tensor(values)
            for key, values in module.learner.buffers.sample(200, np.random.default_rng(0)).observations.items()
        }
        with torch.no_grad():
            return float(features.normaliser.running_count), float(features.eval()(seen).mean(0).abs().max())

    batches, shift = counted(weight=1.0)
    assert batches == 2 and shift < 0.5
    untouched, shift = counted(weight=0.0)
    assert untouched == 0 and shift > 1.0


def test_the_weight_multiplies_the_length_of_a_supervised_step() -> None:
    moves = []
    for weight in (1.0, 3.0):
        module = JointTraining(K_max=1, weight=weight, updates_per_episode=1, batch_size=64)
        model = TAUGHT["dqn"]()
        model.learn(12, callback=module)
        model.policy.load_state_dict(TAUGHT["dqn"]().policy.state_dict())
        module.learner.rng = np.random.default_rng(0)
        module.learner.optimizer.state.clear()
        before = [parameter.detach().clone() for parameter in model.policy.q_net.parameters()]
        module.learner.update(module.policy, 1)
        after = model.policy.q_net.parameters()
        moves.append(torch.cat([(new - old).flatten() for new, old in zip(after, before, strict=True)]).detach())
    assert moves[0].abs().max() > 0
    torch.testing.assert_close(moves[1], 3.0 * moves[0], rtol=1e-2, atol=1e-7)


# In which worlds.


def line() -> Any:
    return gym.make("UserLine-v0")


def restorable_line() -> Any:
    return gym.make("UserRestorableLine-v0")


WORLDS: dict[str, Callable[[], Any]] = {
    "ours": bits,
    "ours, watched": lambda: VecMonitor(bits()),
    "several single ones": lambda: DummyVecEnv([line] * 3),
    "several that can be restored": lambda: VecMonitor(DummyVecEnv([restorable_line] * 2)),
    "ours, single": lambda: DummyVecEnv([lambda: gym.make("BitFlip-v0", n_bits=4)] * 2),
    "in other processes": lambda: SubprocVecEnv([line] * 2, start_method="fork"),
    "normalised in other processes": lambda: VecNormalize(SubprocVecEnv([restorable_line] * 2, start_method="fork")),
}


@pytest.mark.parametrize("make_env", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("kind", [PPO, pytest.param(DQN, marks=pytest.mark.slow)])
def test_it_works_in(make_env: Callable[[], Any], kind: Any) -> None:
    env = make_env()
    with contextlib.closing(env):
        module = JointTraining(K_max=2, convergence=HURRY, **FEW)
        new(kind, env, PROXIMAL if kind is PPO else OFF).learn(120, callback=module)
        assert_it_worked(module)
        assert module.learner.curriculum.K == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("wrapped", [False, True])
def test_it_works_with_fetch_in_other_processes(wrapped: bool) -> None:
    env: Any = SubprocVecEnv([lambda: plain_fetch(max_episode_steps=6)] * 2, start_method="fork")
    with contextlib.closing(env):
        module = JointTraining(K_max=2, convergence=HURRY, **FEW)
        new(SAC, VecNormalize(env) if wrapped else env, OFF).learn(80, callback=module)
        assert_it_worked(module)
        assert isinstance(module.learner.test, RandomNetworkDistillation)


def test_where_states_cannot_be_had_test_asks_what_is_new() -> None:
    env = SubprocVecEnv([line] * 2, start_method="fork")
    with contextlib.closing(env):
        module = JointTraining(K_max=2)
        module.prepare(new(PPO, env, PROXIMAL))
        assert isinstance(module.learner.test, RandomNetworkDistillation)
        with pytest.raises(InputError, match="restored"):
            JointTraining(K_max=2, test=Interaction(restorable_line)).prepare(new(PPO, env, PROXIMAL))


class Distant(VecEnvWrapper):
    """Shows the policy everything at another scale, and says so or not."""

    def __init__(self, env: Any, says_so: bool) -> None:
        bound = spaces.Box(-500.0, 500.0, (1,), np.float32)
        space = spaces.Dict(observation=bound, achieved_goal=bound, desired_goal=bound) if says_so else None
        super().__init__(env, observation_space=space)

    def reset(self) -> Any:
        return {key: 5.0 * values for key, values in self.venv.reset().items()}

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        return {key: 5.0 * values for key, values in observations.items()}, rewards, dones, infos


CHANGED: dict[str, Callable[[], Any]] = {
    "stacked": lambda: VecFrameStack(DummyVecEnv([line] * 2), 3),
    "scaled": lambda: Distant(DummyVecEnv([line] * 2), says_so=True),
    "scaled in secret": lambda: Distant(DummyVecEnv([line] * 2), says_so=False),
}


@pytest.mark.parametrize("make_env", CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize("kind", [JointTraining, AveragedOutputs, IntrinsicReward])
def test_a_wrapper_that_changes_what_is_seen_is_refused(make_env: Callable[[], Any], kind: Any) -> None:
    model = new(PPO, make_env(), PROXIMAL)
    with pytest.raises(InputError, match="wrapper") as caught:
        model.learn(40, callback=kind(**FEW))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [JointTraining, AveragedOutputs, IntrinsicReward])
def test_an_environment_without_goals_is_refused(kind: Any) -> None:
    for model in (new(PPO, "CartPole-v1", PROXIMAL, "MlpPolicy"), new(DQN, "CartPole-v1", OFF, "MlpPolicy")):
        with pytest.raises(InputError, match="not a goal environment"):
            model.learn(40, callback=kind())
        assert model.num_timesteps == 0


class MoreToSee(Line):
    """An observation of which hindsight knows nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(
            {**self.observation_space.spaces, "weather": spaces.Box(-1.0, 1.0, (2,), np.float32)}  # type: ignore[attr-defined]
        )

    def look(self) -> Any:
        return {**super().look(), "weather": np.zeros(2, np.float32)}


def test_a_policy_that_sees_more_is_refused() -> None:
    model = new(PPO, DummyVecEnv([lambda: TimeLimit(MoreToSee(), 6)]), PROXIMAL)
    with pytest.raises(InputError, match="weather"):
        model.learn(40, callback=JointTraining())


@pytest.mark.parametrize("weight", [-0.5, float("nan")])
@pytest.mark.parametrize("kind", [JointTraining, AveragedOutputs, IntrinsicReward])
def test_a_weight_below_0_is_refused(kind: Any, weight: float) -> None:
    with pytest.raises(InputError, match="weight"):
        kind(weight=weight)


# What is left behind.


@pytest.mark.parametrize(
    "kind",
    [JointTraining, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (AveragedOutputs, IntrinsicReward))],
)
def test_the_environments_are_left_as_they_were(kind: Any) -> None:
    inner: Any = DummyVecEnv([lambda: plain_fetch(max_episode_steps=5)] * 2)
    singles, names = list(inner.envs), {*vars(inner), "actions"}  # which its own step_async keeps
    env = VecNormalize(VecMonitor(inner))
    module = kind(K_max=2, **FEW)
    model = new(PPO, env, PROXIMAL)
    model.learn(80, callback=module)
    assert_it_worked(module)
    assert set(vars(inner)) == names
    assert all(now is before for now, before in zip(inner.envs, singles, strict=True))
    assert model.get_env() is env
    seen = module.episodes_seen
    model.learn(80, reset_num_timesteps=False)
    assert module.episodes_seen == seen  # nobody listens any more


def test_vector_environments_are_left_as_they_were() -> None:
    env = bits()
    names = set(vars(env))
    new(PPO, env, PROXIMAL).learn(40, callback=JointTraining(**FEW))
    assert set(vars(env)) == names


def assert_refused_or_seen(model: Any, module: Any, callbacks: Any = None) -> None:
    seen = module.episodes_seen
    try:
        model.learn(80, callback=callbacks or module, reset_num_timesteps=False)
    except InputError:
        return
    assert module.episodes_seen > seen


def test_a_model_with_a_new_environment_is_listened_to_there() -> None:
    model, module = new(PPO, bits(), PROXIMAL), JointTraining(K_max=1, **FEW)
    model.learn(80, callback=module)
    model.set_env(bits())
    assert_refused_or_seen(model, module)


def test_a_module_is_not_taken_to_another_model_unnoticed() -> None:
    module = JointTraining(K_max=1, **FEW)
    new(PPO, bits(), PROXIMAL).learn(80, callback=module)
    assert_refused_or_seen(new(PPO, bits(), PROXIMAL), module)


def test_two_modules_hear_both_or_are_refused() -> None:
    model = new(PPO, bits(), PROXIMAL)
    first, second = JointTraining(K_max=1, **FEW), IntrinsicReward(K_max=1, **FEW)
    assert_refused_or_seen(model, first, [first, second])
