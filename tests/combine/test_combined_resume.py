"""A run of an algorithm with hindsight beside it goes on as if it had never been stopped, byte for byte."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, PPO, SAC, HerReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize
from support import QUICK
from test_resume import newest, result, start, straight, train_in_pieces, wait_until, words_of

import pchid.cli
from pchid import AveragedOutputs, GoalVecEnv, HindsightPPO, IntrinsicReward, JointTraining
from pchid.combine import load_training, save_training
from pchid.errors import RunError

NETWORK = ("--sb3.policy_kwargs", "{'net_arch': [16]}")
BITS = ("BitFlip-v0", "--env.n_bits", 4, "--K-max", 2, "--updates-per-episode", 2, *NETWORK)
REACH = ("FetchReach-v4", "--env.horizon", 6, "--updates-per-episode", 2, *NETWORK)
LEARNING = ("--sb3.learning_starts", 8, "--sb3.batch_size", 16, "--sb3.buffer_size", 60)
ROLLOUT = ("--sb3.n_steps", 6, "--sb3.batch_size", 6, "--sb3.n_epochs", 2)
OFTEN = ("--checkpoint-seconds", 0)
RUNS: dict[str, tuple[Any, ...]] = {
    "dqn+her+pchid": (*BITS, "--method", "dqn+her+pchid", *LEARNING, "--episodes", 24),
    "dqn+pchid, average": (*BITS, "--method", "dqn+pchid", *LEARNING, "--combine", "average", "--episodes", 24),
    "ppo+pchid, intrinsic": (*BITS, "--method", "ppo+pchid", *ROLLOUT, "--combine", "intrinsic", "--episodes", 24),
    "ppo+her+pehid, intrinsic": (
        *(*BITS, "--method", "ppo+her+pehid", *ROLLOUT, "--combine", "intrinsic"),
        *("--test", "rnd", "--episodes", 24),
    ),
    "ppo+her+pchid, average": (*BITS, "--method", "ppo+her+pchid", *ROLLOUT, "--combine", "average", "--steps", 90),
    "sac+her+hid": (*REACH, "--method", "sac+her+hid", *LEARNING, "--episodes", 12),
    "td3+pchid, average": (*REACH, "--method", "td3+pchid", *LEARNING, "--combine", "average", "--episodes", 8),
    "td3+her+pehid, guide": (
        *(*REACH, "--method", "td3+her+pehid", *LEARNING, "--combine", "guide", "--actor-starts", 60),
        *("--policy.hidden_sizes", "[16]", "--noise", 0.5, "--least-noise", 0.2),
        *("--sb3.action_noise", 0.2, "--sb3.least_action_noise", 0.1, "--sb3.learning_starts", 18),
        *("--num-envs", 3, "--steps", 150),
    ),
    "dqn+her, three slots": (
        *(*BITS, "--method", "dqn+her+pchid", *LEARNING, "--sb3.learning_starts", 30),
        *("--num-envs", 3, "--steps", 120),
    ),
}
ALSO_FAST = ("ppo+pchid, intrinsic",)


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, id=name, marks=[pytest.mark.slow] * (name not in ALSO_FAST)) for name, words in RUNS.items()],
)
def test_a_stopped_run_goes_on_as_if_it_had_not_been(tmp_path: Path, words: tuple[Any, ...]) -> None:
    expected = straight(tmp_path / "straight", *words, *OFTEN)
    rounds = 7 if "ppo" in str(words) or "guide" in words else 30
    stops = train_in_pieces(tmp_path / "straight", tmp_path / "pieces", rounds)
    assert stops >= 1
    assert result(tmp_path / "pieces") == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn+pchid, average", "ppo+pchid, intrinsic"])
def test_it_does_so_too_when_checkpoints_are_rare(tmp_path: Path, name: str) -> None:
    words = (*RUNS[name], "--checkpoint-seconds", 1000)
    expected = straight(tmp_path / "straight", *words)
    assert train_in_pieces(tmp_path / "straight", tmp_path / "pieces", 40 if "dqn" in name else 8) >= 1
    assert result(tmp_path / "pieces") == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn+her+pchid", "ppo+pchid, intrinsic"])
def test_a_killed_run_ends_alike(tmp_path: Path, name: str) -> None:
    words = RUNS[name]
    expected = straight(tmp_path / "straight", *words, *OFTEN)
    out, last = tmp_path / "killed", newest(tmp_path / "straight")
    command = words_of("train", *words, *QUICK, *OFTEN, "--out", out)
    for moment in (last // 4, last // 2):
        with start(command) as process:
            wait_until(process, lambda moment=moment: newest(out) >= moment)  # type: ignore[misc]
            assert process.poll() is None
            process.kill()
        command = words_of("train", "--resume", "--quiet", "--out", out)
    assert not (out / "summary.json").exists()
    assert pchid.cli.main(command) == 0
    assert result(out) == expected


@pytest.mark.slow
def test_a_finished_run_that_is_made_longer_forgets_no_episode(tmp_path: Path) -> None:
    out = tmp_path / "run"
    straight(out, *RUNS["ppo+pchid, intrinsic"][:-1], 5)
    assert pchid.cli.main(words_of("train", "--resume", "--episodes", 20, "--quiet", "--out", out)) == 0
    assert result(out)["summary"]["episodes"] == 20


# For users of Python.


SMALL: dict[str, Any] = {"device": "cpu", "policy_kwargs": {"net_arch": [16]}}
PROXIMAL: dict[str, Any] = {**SMALL, "n_steps": 10, "batch_size": 10, "n_epochs": 2}
OFF: dict[str, Any] = {**SMALL, "learning_starts": 20, "batch_size": 16, "buffer_size": 200, "train_freq": 2}
HER: dict[str, Any] = {**OFF, "replay_buffer_class": HerReplayBuffer}


def bits() -> Any:
    return GoalVecEnv.make("BitFlip-v0", 2, n_bits=4)


def reach() -> Any:
    return GoalVecEnv.make("FetchReach-v4", 2, horizon=7)


def line() -> Any:
    return VecNormalize(GoalVecEnv.make("UserRestorableLine-v0", 2))


MODELS: dict[str, tuple[Any, Callable[[], Any], dict[str, Any]]] = {
    "dqn+her": (DQN, bits, HER),
    "dqn, normalised": (DQN, line, OFF),
    "ppo": (PPO, bits, PROXIMAL),
    "ppo, normalised": (PPO, line, PROXIMAL),
    "ppo+her": (HindsightPPO, bits, PROXIMAL),
    "sac+her": (SAC, reach, HER),
}
STRATEGIES = [JointTraining, AveragedOutputs, IntrinsicReward]
pairs = pytest.mark.parametrize(
    ("name", "strategy"),
    [
        pytest.param(name, strategy, marks=[pytest.mark.slow] * (name != "ppo"))
        for name in MODELS
        for strategy in STRATEGIES
    ],
)


def make(name: str, strategy: Any, seed: int, **others: Any) -> tuple[Any, Any]:
    kind, make_env, settings = MODELS[name]
    separate = {} if strategy is JointTraining else {"policy_kwargs": {"hidden_sizes": [16]}}
    few: dict[str, Any] = {"K_max": 2, "weight": 0.5, "updates_per_episode": 2, "batch_size": 16, "seed": 5}
    model = kind("MultiInputPolicy", make_env(), seed=seed, **copy.deepcopy({**settings, **others}))
    return model, strategy(**{**few, **separate})


def contents(model: Any, module: Any) -> dict[str, Any]:
    """What both have come to."""
    found = {f"policy.{name}": value for name, value in model.policy.state_dict().items()}
    if hasattr(module, "network"):
        found |= {f"network.{name}": value for name, value in module.network.state_dict().items()}
    for index, memory in module.learner.optimizer.state_dict()["state"].items():
        found |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in memory.items()}
    counts = {
        "steps": model.num_timesteps,
        "updates": module.updates,
        "episodes": module.episodes_seen,
        "pairs": len(module.learner.buffers),
        "tests": module.test_steps,
        "K": list(module.learner.curriculum.K),
        "loss": module.learner.last_loss,
    }
    return {**{name: value.detach().numpy().tobytes() for name, value in found.items()}, **counts}


def differences(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    return [name for name in sorted({*left, *right}) if left.get(name, "missing") != right.get(name, "missing")]


@pairs
def test_saved_between_two_calls_it_goes_on_exactly(tmp_path: Path, name: str, strategy: Any) -> None:
    model, module = make(name, strategy, seed=1)
    model.learn(60, callback=module)
    save_training(tmp_path, model, module)
    model.learn(60, callback=module, reset_num_timesteps=False)
    expected = contents(model, module)
    assert module.updates > 0

    np.random.seed(9)
    torch.manual_seed(9)
    model, module = make(name, strategy, seed=8)
    load_training(tmp_path, model, module)
    model.learn(60, callback=module, reset_num_timesteps=False)
    assert differences(contents(model, module), expected) == []


class Save(BaseCallback):
    """Saves at the start of a rollout."""

    def __init__(self, folder: Path, module: Any, at: int) -> None:
        super().__init__()
        self.folder, self.module, self.at = folder, module, at

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.at:
            save_training(self.folder, self.model, self.module)
            self.saved_at, self.at = self.num_timesteps, 10**9


def saved_on_its_way(folder: Path, name: str, strategy: Any, module_first: bool) -> None:
    model, module = make(name, strategy, seed=1)
    saving = Save(folder, module, 56)
    model.learn(120, callback=[module, saving] if module_first else [saving, module])
    expected = contents(model, module)

    model, module = make(name, strategy, seed=8)
    load_training(folder, model, module)
    assert model.num_timesteps == saving.saved_at
    model.learn(120 - saving.saved_at, callback=module, reset_num_timesteps=False)
    assert differences(contents(model, module), expected) == []


@pairs
def test_saved_at_the_start_of_a_rollout_it_goes_on_exactly(tmp_path: Path, name: str, strategy: Any) -> None:
    saved_on_its_way(tmp_path, name, strategy, module_first=True)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_so_it_does_if_it_is_saved_before_the_module_has_learned(tmp_path: Path, strategy: Any) -> None:
    saved_on_its_way(tmp_path, "ppo", strategy, module_first=False)


def test_the_newest_is_loaded(tmp_path: Path) -> None:
    model, module = make("ppo", JointTraining, seed=1)
    for _ in range(3):
        model.learn(20, callback=module, reset_num_timesteps=False)
        save_training(tmp_path, model, module)
    second, again = make("ppo", JointTraining, seed=2)
    load_training(tmp_path, second, again)
    assert second.num_timesteps == model.num_timesteps == 60
    assert again.updates == module.updates


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    model, module = make("ppo", JointTraining, seed=1)
    model.learn(20, callback=module)
    save_training(tmp_path, model, module)
    for other, others in (("dqn+her", {}), ("ppo", {"policy_kwargs": {"net_arch": [8]}})):
        second, again = make(other, JointTraining, seed=2, **others)
        with pytest.raises(RunError) as caught:
            load_training(tmp_path, second, again)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("saved", "loaded"), [(JointTraining, AveragedOutputs), (AveragedOutputs, JointTraining)])
def test_a_checkpoint_of_another_module_is_refused(tmp_path: Path, saved: Any, loaded: Any) -> None:
    model, module = make("ppo", saved, seed=1)
    model.learn(40, callback=module)
    save_training(tmp_path, model, module)
    second, again = make("ppo", loaded, seed=2)
    with pytest.raises(RunError) as caught:
        load_training(tmp_path, second, again)
    assert "\n" not in str(caught.value)
