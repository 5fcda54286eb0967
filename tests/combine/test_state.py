"""An algorithm of Stable-Baselines3 that is saved and loaded goes on bit for bit, or refuses with one sentence."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor, VecNormalize

from pchid.checkpoint import load_checkpoint, save_checkpoint
from pchid.combine.features import GoalFeatures
from pchid.combine.noise import EpisodeNoise
from pchid.combine.state import load_model_state, model_state
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError, RunError

try:
    from sb3_contrib import TQC
except ImportError:
    TQC = None

BITS = ("BitFlip-v0", {"n_bits": 4})
REACH = ("FetchReach-v4", {"horizon": 10})


@dataclass(frozen=True)
class Case:
    """A training, and where it is stopped."""

    algorithm: Any
    env: tuple[str, dict[str, Any]]
    settings: dict[str, Any]
    slots: int = 1
    noise: Callable[[], ActionNoise] | None = None
    normalise: dict[str, Any] | None = None
    networks: dict[str, Any] = field(default_factory=lambda: {"net_arch": [6]})
    stop: int = 26
    total: int = 52

    def make_env(self) -> VecEnv:
        env: VecEnv = GoalVecEnv.make(self.env[0], self.slots, **self.env[1])
        return env if self.normalise is None else VecNormalize(env, **self.normalise)

    def make(self, seed: int, env: VecEnv | None = None) -> Any:
        settings = dict(self.settings)
        if self.noise is not None:
            settings["action_noise"] = self.noise()
        return self.algorithm(
            "MultiInputPolicy",
            env or self.make_env(),
            policy_kwargs=dict(self.networks),
            seed=seed,
            device="cpu",
            **settings,
        )


def ou_noise() -> ActionNoise:
    return OrnsteinUhlenbeckActionNoise(np.zeros(4, np.float32), 0.5 * np.ones(4), dt=1.0)


def normal_noise() -> ActionNoise:
    return NormalActionNoise(np.zeros(4), 0.3 * np.ones(4))


OFF = {"buffer_size": 500, "learning_starts": 12, "batch_size": 8}
HER = {**OFF, "replay_buffer_class": HerReplayBuffer}
Q = {"train_freq": 3, "target_update_interval": 7, "exploration_fraction": 0.9, "learning_rate": 1e-2}
ON = {"n_steps": 6, "learning_rate": lambda left: 0.02 * left}  # a schedule, which must go on from where it was
PROXIMAL = {**ON, "batch_size": 6, "n_epochs": 2}
FULL = {"buffer_size": 20}

CASES = {
    "dqn": Case(DQN, BITS, {**OFF, **Q}),
    "dqn, still warming up": Case(DQN, BITS, {**OFF, **Q, "learning_starts": 40}),
    "dqn, several slots, full buffer": Case(DQN, BITS, {**OFF, **Q, **FULL}, slots=3),
    "dqn+her": Case(DQN, BITS, {**HER, **Q}),
    "dqn+her, several slots, full buffer": Case(DQN, BITS, {**HER, **Q, **FULL}, slots=2),
    "dqn+her, whole episodes": Case(DQN, BITS, {**HER, **Q, "train_freq": (2, "episode"), "gradient_steps": -1}),
    "dqn, normalised rewards": Case(DQN, BITS, {**OFF, **Q}, normalise={"norm_obs": False}),
    "ppo, discrete": Case(PPO, BITS, PROXIMAL, slots=2),
    "ppo, continuous": Case(PPO, REACH, PROXIMAL, slots=2),
    "ppo, normalised": Case(PPO, REACH, PROXIMAL, slots=2, normalise={}),
    "a2c": Case(A2C, BITS, ON, slots=2),
    "sac+her": Case(SAC, REACH, HER),
    "sac+her, fixed entropy, full buffer": Case(SAC, REACH, {**HER, **FULL, "ent_coef": 0.1}),
    "sac+her, normalised, several slots": Case(SAC, REACH, {**HER, "learning_starts": 25}, slots=2, normalise={}),
    "sac, normalised": Case(SAC, REACH, OFF, normalise={}),
    "td3+her": Case(TD3, REACH, HER, noise=normal_noise),
    "td3+her, several slots": Case(TD3, REACH, {**HER, "learning_starts": 25}, slots=2, noise=ou_noise),
    "ddpg": Case(DDPG, REACH, OFF, noise=ou_noise),
    "ddpg+her, calm and wild episodes, normalised inputs": Case(
        DDPG,
        REACH,
        {**HER, "learning_starts": 25},
        slots=2,
        noise=lambda: EpisodeNoise(4, 1.0, 0.1, persistence=0.5),
        networks={"net_arch": [6], "features_extractor_class": GoalFeatures},
    ),
    "tqc+her": Case(TQC, REACH, HER),
}
cases = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=pytest.mark.skipif(case.algorithm is None, reason="sb3-contrib is missing"))
        for name, case in CASES.items()
    ],
)


class SaveOnce(BaseCallback):
    """Writes a checkpoint at the first rollout that starts at the given step or later."""

    def __init__(self, folder: Path, at: int) -> None:
        super().__init__()
        self.folder, self.at = folder, at
        self.saved_at: int | None = None

    def _on_rollout_start(self) -> None:
        if self.saved_at is None and self.num_timesteps >= self.at:
            save_checkpoint(self.folder, 1, model_state(self.model))
            self.saved_at = self.num_timesteps

    def _on_step(self) -> bool:
        return True


def train(case: Case, seed: int, folder: Path) -> Any:
    """The whole training in one go, with a checkpoint on its way."""
    model = case.make(seed)
    saving = SaveOnce(folder, case.stop)
    model.learn(case.total, callback=saving)
    assert saving.saved_at is not None
    assert case.stop <= saving.saved_at < case.total
    return model


def go_on(case: Case, state: dict[str, Any], env: VecEnv | None = None) -> Any:
    """The rest of the training, in a model and a world that share nothing with the first but the settings."""
    model = case.make(1234, env)
    scramble()
    load_model_state(model, state)
    model.learn(case.total - model.num_timesteps, reset_num_timesteps=False)
    return model


def scramble() -> None:
    for draw in (random.seed, np.random.seed, torch.manual_seed):
        draw(987)
    random.gauss(0, 1)
    np.random.standard_normal()  # leaves a second one behind


def everything(model: Any) -> dict[str, Any]:
    """What a training has come to, gathered without the module under test; arrays as type, shape and bytes."""
    found: dict[str, Any] = {}

    def add(path: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            value = value.detach().numpy()
        if isinstance(value, dict):
            for key, part in value.items():
                add(f"{path}/{key}", part)
        elif isinstance(value, np.ndarray):
            if value.dtype != object:
                found[path] = (str(value.dtype), value.shape, value.tobytes())
        else:
            found[path] = value

    for name, parameters in model.get_parameters().items():
        add(name, parameters["state"] if name.endswith("optimizer") else parameters)
    for name in model._get_torch_save_params()[1]:
        add(name, getattr(model, name))
    for name in ("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates", "_n_calls", "exploration_rate"):
        add(name, getattr(model, name, None))
    add("_last_obs", model._last_obs)
    add("_last_episode_starts", model._last_episode_starts)
    add("successes", [float(success) for success in model.ep_success_buffer or ()])
    if getattr(model, "replay_buffer", None) is not None:
        for name in ("pos", "full", "observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
            add(f"replay/{name}", getattr(model.replay_buffer, name))
        for name in ("ep_start", "ep_length", "_current_ep_start"):
            add(f"replay/{name}", getattr(model.replay_buffer, name, None))
        add("_last_original_obs", model._last_original_obs)  # which on-policy algorithms do not keep up to date
    if isinstance(model.env, VecNormalize):
        for key, running in {**vars(model.env).get("obs_rms", {}), "returns": model.env.ret_rms}.items():
            add(f"normalised/{key}", {"mean": np.array(running.mean), "var": np.array(running.var)})
            add(f"normalised/{key}/count", running.count)
        add("normalised/running returns", model.env.returns)
    add("random/numpy", np.random.get_state(legacy=False))
    add("random/torch", torch.get_rng_state())
    add("random/python", str(random.getstate()))
    add("random/actions", model.action_space.np_random.bit_generator.state)
    return found


def differences(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    return [path for path in sorted({*left, *right}) if left.get(path, "missing") != right.get(path, "missing")]


@cases
def test_a_loaded_training_goes_on_bit_for_bit(case: Case, tmp_path: Path) -> None:
    straight = train(case, 5, tmp_path)
    expected = everything(straight)
    state = load_checkpoint(tmp_path)
    assert straight._n_updates > state["counts"]["_n_updates"]
    if "buffer_size" in case.settings:
        assert straight.replay_buffer.full == state["replay"]["full"] == (case.settings["buffer_size"] == 20)
    assert differences(everything(go_on(case, state)), expected) == []


def test_an_untrained_model_goes_on_too(tmp_path: Path) -> None:
    case = replace(CASES["dqn+her"], stop=0)
    expected = everything(train(case, 5, tmp_path))
    assert load_checkpoint(tmp_path)["counts"]["num_timesteps"] == 0
    assert differences(everything(go_on(case, load_checkpoint(tmp_path))), expected) == []


@pytest.mark.parametrize("name", ["dqn+her", "ppo, normalised", "ddpg"])
def test_to_be_saved_changes_nothing(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    alone = case.make(5)
    alone.learn(case.total)
    expected = everything(alone)
    assert differences(everything(train(case, 5, tmp_path)), expected) == []


# The tests above can fail: each part of a state makes a difference.

RICH = Case(SAC, REACH, {**HER, "learning_starts": 12}, noise=ou_noise, normalise={})


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> tuple[GoalVecEnv, dict[str, Any], Path, Path]:
    """An environment to share, the outcome of a training, its checkpoint, and that of another seed at the same step."""
    one, other = (tmp_path_factory.mktemp(name) for name in ("one", "other"))
    expected = everything(train(RICH, 5, one))
    train(RICH, 6, other)
    return GoalVecEnv.make(REACH[0], RICH.slots, **REACH[1]), expected, one, other


@pytest.mark.parametrize(
    "path",
    [
        *("nothing", "networks", "variables", "optimizers", "last", "replay", "noise", "normalisation", "environment"),
        *("random/torch", "random/numpy", "random/python", "random/action_space"),
    ],
)
def test_each_part_is_needed(rich: tuple[GoalVecEnv, dict[str, Any], Path, Path], path: str) -> None:
    env, expected, one, other = rich
    state, foreign = load_checkpoint(one), load_checkpoint(other)
    *folders, name = path.split("/")
    target, source = state, foreign
    for folder in folders:
        target, source = target[folder], source[folder]
    if path != "nothing":
        target[name] = source[name]
    found = differences(everything(go_on(RICH, state, VecNormalize(env))), expected)
    assert bool(found) == (path != "nothing")
    if path in ("networks", "variables", "optimizers", "last", "replay", "noise", "environment", "random/torch"):
        assert any(name.startswith("policy/actor") for name in found)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("counts/_n_calls", [1]),
        ("counts/_n_updates", [1]),
        ("recent/successes", [[]]),
        ("rates/exploration_rate", [0.0, 1.0]),  # the next action is random or not: one of them is wrong
    ],
)
def test_so_are_counts_and_rates(path: str, values: list[Any], tmp_path: Path) -> None:
    case = CASES["dqn"]
    expected = everything(train(case, 5, tmp_path))
    found = []
    for value in values:
        state = load_checkpoint(tmp_path)
        put(path, value)(state)
        found += differences(everything(go_on(case, state)), expected)
    assert found


# What is saved and what a loaded model shows.


def test_only_the_filled_rows_of_a_replay_buffer_are_saved(tmp_path: Path) -> None:
    train(replace(CASES["dqn+her"], slots=2), 5, tmp_path)
    replay = load_checkpoint(tmp_path)["replay"]
    arrays = replay["arrays"]
    assert not replay["full"]
    assert {len(arrays[name]) for name in arrays if name != "_current_ep_start"} == {replay["pos"]}
    assert arrays["_current_ep_start"].shape == (2,)
    assert {"observations.achieved_goal", "next_observations.desired_goal", "ep_start", "timeouts"} < set(arrays)


def test_as_many_slots_as_rows_do_not_confuse_it(tmp_path: Path) -> None:
    settings = {**HER, **Q, "buffer_size": 36, "learning_starts": 30, "train_freq": 1}
    case = Case(DQN, BITS, settings, slots=6, stop=30, total=60)
    expected = everything(train(case, 5, tmp_path))
    state = load_checkpoint(tmp_path)
    assert state["replay"]["pos"] == 5 < len(state["replay"]["arrays"]["_current_ep_start"])
    assert differences(everything(go_on(case, state)), expected) == []


def test_a_state_taken_in_memory_is_copied_when_it_is_loaded() -> None:
    case = CASES["sac+her"]
    first = case.make(5)
    first.learn(case.stop)
    second = case.make(6)
    load_model_state(second, model_state(first))
    before = everything(second)
    generators = random.getstate(), np.random.get_state(), torch.get_rng_state()
    first.learn(case.stop, reset_num_timesteps=False)
    random.setstate(generators[0])
    np.random.set_state(generators[1])
    torch.set_rng_state(generators[2])
    assert differences(everything(second), before) == []
    assert differences(everything(first), before)


def test_a_loaded_model_knows_where_its_environments_are(tmp_path: Path) -> None:
    case = CASES["ppo, normalised"]
    train(case, 5, tmp_path)
    model = case.make(6)
    load_model_state(model, load_checkpoint(tmp_path))
    assert not model._last_episode_starts.any()  # which is so in the middle of an episode
    shown = model.env.unwrapped.vector.observe()
    for raw in (model._last_original_obs, model.env.get_original_obs()):
        for key, values in shown.items():
            np.testing.assert_array_equal(raw[key], values)


def test_logs_show_the_same_recent_episodes(tmp_path: Path) -> None:
    case = CASES["dqn"]
    model = case.make(5, VecMonitor(case.make_env()))
    model.learn(case.total, callback=SaveOnce(tmp_path, 40))
    state = load_checkpoint(tmp_path)
    saved = state["recent"]
    assert len(saved["episodes"]) > 5
    assert {"r", "l"} <= set(saved["episodes"][0])
    copy = case.make(6, VecMonitor(case.make_env()))
    load_model_state(copy, state)
    count = len(saved["episodes"])
    assert [info["l"] for info in copy.ep_info_buffer] == [info["l"] for info in model.ep_info_buffer][:count]
    assert [info["r"] for info in copy.ep_info_buffer] == [info["r"] for info in model.ep_info_buffer][:count]
    assert list(copy.ep_success_buffer) == list(model.ep_success_buffer)[:count]
    assert copy.ep_success_buffer.maxlen == 100


def test_a_generator_for_relabelling_is_kept(tmp_path: Path) -> None:
    models = [CASES["dqn"].make(seed) for seed in (5, 6, 7)]
    for model in models[:2]:
        model.relabel_rng = np.random.default_rng(model.seed)
    models[0].relabel_rng.random(7)
    save_checkpoint(tmp_path, 1, model_state_after_reset(models[0]))
    load_model_state(models[1], load_checkpoint(tmp_path))
    np.testing.assert_array_equal(models[1].relabel_rng.random(5), models[0].relabel_rng.random(5))
    with pytest.raises(RunError, match="random/relabel"):
        load_model_state(models[2], load_checkpoint(tmp_path))


def model_state_after_reset(model: Any) -> dict[str, Any]:
    model._setup_learn(1)
    return model_state(model)


@pytest.mark.parametrize("with_state", [True, False])
def test_environments_that_cannot_be_restored_start_new_episodes(with_state: bool, tmp_path: Path) -> None:
    case = Case(DQN, ("UserLine-v0", {}), {**HER, **Q, "learning_starts": 60, "train_freq": 1}, stop=70, total=140)

    def make_env() -> VecEnv:
        return (
            case.make_env() if with_state else DummyVecEnv([lambda: gym.make("UserLine-v0", disable_env_checker=True)])
        )

    first = case.make(5, make_env())
    first.learn(case.total, callback=SaveOnce(tmp_path, case.stop))
    state = load_checkpoint(tmp_path)
    with pytest.warns(UserWarning, match="truncated"):
        model = go_on(case, state, make_env())
    buffer, seen = model.replay_buffer, model.replay_buffer.observations["observation"][:, 0]
    assert buffer.size() == model.num_timesteps == case.total
    for row in range(case.total - 1):  # a transition leads to the next one, unless its episode ends
        follows = np.array_equal(buffer.next_observations["observation"][row, 0], seen[row + 1])
        assert follows or buffer.dones[row, 0]
    assert buffer.dones[case.stop - 1, 0]
    assert buffer.ep_length[case.stop - 1, 0] > 0
    if with_state:  # and the episodes of before do not come again
        assert model.env.unwrapped.vector.episode_numbers[0] > state["environment"]["episode_numbers"][0] > 0


def test_observations_need_no_names(tmp_path: Path) -> None:
    def make(seed: int) -> Any:
        env = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))
        return PPO("MlpPolicy", env, n_steps=8, batch_size=8, n_epochs=1, seed=seed, device="cpu")

    first, copy = make(5), make(6)
    first.learn(16)
    save_checkpoint(tmp_path, 1, model_state(first))
    load_model_state(copy, load_checkpoint(tmp_path))
    for name, values in first.policy.state_dict().items():
        assert torch.equal(copy.policy.state_dict()[name], values)
    assert copy.env.obs_rms.mean.tolist() == first.env.obs_rms.mean.tolist()
    assert copy.env.obs_rms.count == first.env.obs_rms.count > 16
    copy.learn(8, reset_num_timesteps=False)
    assert copy.num_timesteps == 24


# What is refused.


class Strange(ActionNoise):
    def __call__(self) -> np.ndarray:
        return np.zeros(4)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (Case(SAC, REACH, {**OFF, "use_sde": True}), "use_sde"),
        (Case(PPO, REACH, {**PROXIMAL, "use_sde": True}), "use_sde"),
        (Case(DQN, BITS, {**HER, "replay_buffer_kwargs": {"copy_info_dict": True}}), "copy_info_dict"),
        (Case(DDPG, REACH, OFF, noise=Strange), "Strange"),
        (Case(DDPG, REACH, OFF, noise=Strange, slots=2), "Strange"),
    ],
)
def test_what_cannot_go_on_exactly_is_refused(case: Case, words: str) -> None:
    model = case.make(5)
    for call in (lambda: model_state(model), lambda: load_model_state(model, {})):
        with pytest.raises(InputError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_so_is_a_model_without_environments_or_with_a_thrifty_buffer() -> None:
    settings = {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}
    model = DQN("MlpPolicy", gym.make("CartPole-v1"), buffer_size=10, device="cpu", **settings)
    with pytest.raises(InputError, match="optimize_memory_usage"):
        model_state(model)
    model.env = None
    with pytest.raises(InputError, match="set_env"):
        model_state(model)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    train(replace(CASES["dqn+her"], slots=2), 5, folder)
    return folder


SAVED = replace(CASES["dqn+her"], slots=2)
ELSEWHERE = {
    "algorithm": (Case(PPO, BITS, PROXIMAL, slots=2), "DQN, not of PPO"),
    "network": (replace(SAVED, networks={"net_arch": [7]}), r"networks/policy/q_net.*\(6,\).*\(7,\)"),
    "layers": (replace(SAVED, networks={"net_arch": [6, 6]}), "networks/policy/q_net.*"),
    "environment": (replace(SAVED, env=("BitFlip-v0", {"n_bits": 5})), r"networks/policy"),
    "slots": (replace(SAVED, slots=3), r"last/.*\(2,.*\(3,"),
    "buffer": (replace(SAVED, settings={**SAVED.settings, "buffer_size": 20}), "10 rows, too few"),
    "kind of buffer": (Case(DQN, BITS, {**OFF, **Q}, slots=2), "replay/arrays/.*ep_"),
}


@pytest.mark.parametrize(("case", "words"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_state_of_another_model_is_refused_and_changes_nothing(saved: Path, case: Case, words: str) -> None:
    assert_refused(case.make(5), load_checkpoint(saved), words)


def assert_refused(model: Any, state: Any, words: str) -> None:
    before, seeds = everything(model), model.env.unwrapped._seeds
    with pytest.raises(RunError, match=words) as caught:
        load_model_state(model, state)
    assert "\n" not in str(caught.value)
    assert differences(everything(model), before) == []
    assert model.env.unwrapped._seeds == seeds


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        *folders, name = path.split("/")
        for folder in folders:
            state = state[folder]
        if value is None:
            del state[name]
        else:
            state[name] = value

    return change


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *((path, None) for path in ("networks", "networks/policy", "networks/policy/q_net.q_net.0.bias", "optimizers")),
        *((path, None) for path in ("last", "last/observations", "last/observations/achieved_goal", "random/numpy")),
        *((path, None) for path in ("replay", "replay/pos", "replay/arrays/actions", "counts/_n_calls", "algorithm")),
        *((path, None) for path in ("environment", "optimizers/policy.optimizer")),
        ("networks/policy/new", np.zeros(3)),
        ("counts/save", 3),
        ("counts/num_timesteps", "many"),
        ("rates/exploration_rate", [0.5]),
        ("optimizers/policy.optimizer/0/exp_avg", np.zeros((2, 2))),
        ("optimizers/policy.optimizer/99", {"exp_avg": np.zeros((2, 2))}),
        ("replay/pos", -3),
        ("replay/pos", 3),
        ("replay/full", True),
        ("replay/arrays/rewards", np.zeros((4, 4))),
        ("last/observations/observation", np.zeros((2, 3))),
        ("random/python/words", np.zeros(3)),
        ("random/action_space/state", {}),
        ("environment/seeds", np.arange(5)),
        ("environment", {"seeds": 3}),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(saved: Path, path: str, value: Any) -> None:
    state = load_checkpoint(saved)
    put(path, value)(state)
    assert_refused(SAVED.make(5), state, "state")


def test_a_model_in_use_takes_no_state(saved: Path) -> None:
    model = SAVED.make(5)
    model.learn(10)
    with pytest.raises(InputError, match="fresh model"):
        load_model_state(model, load_checkpoint(saved))
