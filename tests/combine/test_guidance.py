"""Guidance: the hindsight network goes first and is copied; then the algorithm goes on by itself."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from stable_baselines3 import DDPG, DQN, PPO, SAC, TD3

import pchid.cli
from pchid import EpisodeNoise, GoalFeatures, GoalVecEnv, Guidance, HindsightReplayBuffer
from pchid.combine.student import outputs
from pchid.errors import InputError

SLOTS, HORIZON = 4, 6
OFF: dict[str, Any] = {
    "seed": 1,
    "device": "cpu",
    "learning_starts": SLOTS * HORIZON,
    "batch_size": 32,
    "buffer_size": 2000,
    "gradient_steps": 8,
    "policy_kwargs": {"net_arch": [32], "features_extractor_class": GoalFeatures},
    "replay_buffer_class": HindsightReplayBuffer,
}
ROUND = SLOTS * HORIZON  # the steps of one episode in each slot


def new(kind: Any, **others: Any) -> Any:
    env = GoalVecEnv.make("FetchReach-v4", SLOTS, horizon=HORIZON)
    return kind("MultiInputPolicy", env, **copy.deepcopy({**OFF, **others}))


def guidance(actor_starts: int, **others: Any) -> Guidance:
    settings: dict[str, Any] = {"updates_per_episode": 10, "batch_size": 32, "policy_kwargs": {"hidden_sizes": [32]}}
    return Guidance(K_max=2, evolve=True, actor_starts=actor_starts, **{**settings, **others})


def distance(model: Any, module: Guidance) -> float:
    """How far the actor's best actions are from the network's, on what was replayed."""
    seen = model.replay_buffer.sample(200).observations
    with torch.no_grad():
        return float((outputs(model.policy, seen) - module.outputs(seen)).square().mean())


def last_actions(model: Any, count: int) -> Any:
    """The newest stored observations and the actions played there, of all slots."""
    buffer = model.replay_buffer
    rows = slice(buffer.pos - count, buffer.pos)
    seen = {key: values[rows].reshape(-1, *values.shape[2:]) for key, values in buffer.observations.items()}
    return {key: torch.as_tensor(values) for key, values in seen.items()}, torch.as_tensor(
        buffer.actions[rows].reshape(-1, 4)
    )


@pytest.mark.parametrize("kind", [TD3, DDPG])
def test_while_it_leads_the_network_collects_and_the_actor_copies_it(kind: Any) -> None:
    model, module = new(kind), guidance(10_000)
    model.learn(4 * ROUND, module)
    before = copy.deepcopy(model.critic.state_dict())
    first = distance(model, module)
    module.updates_per_episode = 0  # now that it knows something, it stays
    model.learn(12 * ROUND, module, reset_num_timesteps=False)
    assert distance(model, module) < 0.5 * first
    assert any(not torch.equal(value, before[name]) for name, value in model.critic.state_dict().items())
    seen, actions = last_actions(model, 4)
    # There is no noise, so the network played just this, but for how its inputs have been normalised since.
    assert torch.allclose(actions, module.outputs(seen), atol=0.05)
    with torch.no_grad():
        assert not torch.allclose(actions, model.actor(seen), atol=0.1)


@pytest.mark.parametrize("kind", [TD3, SAC])
def test_then_the_algorithm_acts_and_improves_and_hindsight_rests(kind: Any) -> None:
    starts = 6 * ROUND
    model, module = new(kind), guidance(starts)
    model.learn(starts, module)
    updates, test_steps = module.updates, module.test_steps
    assert updates > 0 and test_steps > 0
    copied = copy.deepcopy(model.actor.state_dict())
    model.learn(4 * ROUND, module, reset_num_timesteps=False)
    assert module.updates <= updates + 10 * SLOTS and module.test_steps == test_steps
    assert module.episodes_seen == 10 * SLOTS
    assert any(not torch.equal(value, copied[name]) for name, value in model.actor.state_dict().items())
    if kind is TD3:
        actor = copy.deepcopy(model.actor)
        model.learn(SLOTS, module, reset_num_timesteps=False)
        seen, actions = last_actions(model, 1)
        with torch.no_grad():
            assert torch.allclose(actions, actor.eval()(seen), atol=1e-5)


def test_the_pull_fades() -> None:
    model, module = new(TD3), guidance(100, weight=0.5)
    module.prepare(model)
    found = {}
    for steps in (0, 99, 100, 150, 200, 1000):
        model.num_timesteps = steps
        found[steps] = (module.leads, module.pull)
    assert found == {
        0: (True, 0.5),
        99: (True, 0.5),
        100: (False, 0.5),
        150: (False, 0.25),
        200: (False, 0.0),
        1000: (False, 0.0),
    }


def test_while_it_pulls_the_actor_stays_nearer_to_the_network() -> None:
    distances = []
    for weight in (0.001, 100.0):
        model, module = new(TD3), guidance(8 * ROUND, weight=weight)
        model.learn(12 * ROUND, module)
        distances.append(distance(model, module))
    assert distances[1] < 0.5 * distances[0]


def test_noise_is_of_the_scale_that_goes_with_who_leads() -> None:
    noise = EpisodeNoise(4, 0.1, 0.05, 0.5)
    model, module = new(TD3, action_noise=noise), guidance(4 * ROUND, noise=1.5, least_noise=1.0)
    model.learn(2 * ROUND, module)
    assert [(slot.least_noise, slot.noise) for slot in model.action_noise.noises] == [(1.0, 1.5)] * SLOTS
    assert all(slot.noise_prev[0] >= 1.0 for slot in model.action_noise.noises)
    model.learn(4 * ROUND, module, reset_num_timesteps=False)
    assert [(slot.least_noise, slot.noise) for slot in model.action_noise.noises] == [(0.05, 0.1)] * SLOTS
    assert all(slot.noise_prev[0] <= 0.1 for slot in model.action_noise.noises)


@pytest.mark.parametrize(("kind", "env"), [(PPO, "FetchReach-v4"), (DQN, "BitFlip-v0")])
def test_what_it_cannot_guide_is_refused(kind: Any, env: str) -> None:
    model = kind("MultiInputPolicy", GoalVecEnv.make(env), device="cpu")
    with pytest.raises(InputError, match=f"an actor and a critic .*, not {kind.__name__}"):
        model.learn(10, Guidance())


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--combine", "guide", "--actor-starts", "0"), "guidance takes at least one step"),
        (("--combine", "average", "--actor-starts", "5"), "for joint training and guidance"),
        (("--combine", "joint", "--least-noise", "0.1"), "pchid's own methods"),
        (("--sb3.symmetries", "True"), "symmetries needs an environment"),
        (("--sb3.symmetries", "True", "--method", "td3+pehid"), "or add +her"),
    ],
)
def test_bad_settings_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], complaint: str
) -> None:
    start = ["train", "FetchReach-v4", "--method", "td3+her+pehid", "--steps", "100", "--out", str(tmp_path / "run")]
    assert pchid.cli.main([*start, *words]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_guided_agent_is_saved_as_its_actor(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["--method", "td3+her+pehid", "--combine", "guide", "--actor-starts", "300", "--env.horizon", "10"]
    more = ["--steps", "400", "--eval-every", "200", "--eval-episodes", "4", "--final-episodes", "8", "--quiet"]
    assert pchid.cli.main(["train", "FetchReach-v4", *words, *more, "--out", str(run)]) == 0
    arrays = load_file(run / "policy" / "agent.safetensors")
    assert arrays and all(name.startswith("policy.") and np.isfinite(values).all() for name, values in arrays.items())
    assert pchid.cli.main(["evaluate", str(run), "--episodes", "4"]) == 0
