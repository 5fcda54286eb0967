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
from stable_baselines3.common.callbacks import BaseCallback

import pchid.cli
from pchid import EpisodeNoise, GoalFeatures, GoalVecEnv, Guidance, HindsightReplayBuffer
from pchid.combine.student import outputs
from pchid.config import new_config
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


def parameters_of(network: Any) -> list[torch.Tensor]:
    """Without the running statistics of its inputs."""
    return [parameter.detach().clone() for parameter in network.parameters()]


def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


class Scales(BaseCallback):
    """Notes the scale of noise of each slot's episode."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, list[float]] = {}

    def _on_step(self) -> bool:
        noises: Any = self.model.action_noise  # type: ignore[attr-defined]
        self.found[self.num_timesteps] = [float(noise.noise_prev[0]) for noise in noises.noises]
        return True


class Notes(BaseCallback):
    """Notes who leads, how much copying counts, and how many steps Adam remembers of the actor, after each round."""

    def __init__(self, module: Guidance) -> None:
        super().__init__()
        self.module, self.found = module, {}  # type: ignore[var-annotated]

    def _on_step(self) -> bool:
        memory = self.model.actor.optimizer.state  # type: ignore[attr-defined]
        steps = int(next(iter(memory.values()))["step"]) if memory else 0
        self.found[self.num_timesteps] = (self.module.leads, self.module.pull, steps)
        return True


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
    critic = parameters_of(model.critic)
    first = distance(model, module)
    module.updates_per_episode = 0  # now that it knows something, it stays
    model.learn(12 * ROUND, module, reset_num_timesteps=False)
    assert distance(model, module) < 0.5 * first
    assert not same(critic, parameters_of(model.critic))
    seen, actions = last_actions(model, 4)
    # There is no noise, so the network played just this, but for how its inputs have been normalised since.
    assert torch.allclose(actions, module.outputs(seen), atol=0.05)
    with torch.no_grad():
        assert not torch.allclose(actions, model.actor(seen), atol=0.1)


def test_while_it_leads_the_critic_does_not_touch_the_actor() -> None:
    model, module = new(TD3), guidance(10_000, updates_per_episode=0)  # so there is nothing to copy either
    actor, critic = parameters_of(model.actor), parameters_of(model.critic)
    model.learn(4 * ROUND, module)
    assert same(actor, parameters_of(model.actor))
    assert not same(critic, parameters_of(model.critic))


@pytest.mark.parametrize("kind", [TD3, DDPG])
def test_then_the_algorithm_acts_and_improves_and_hindsight_rests(kind: Any) -> None:
    starts = 6 * ROUND
    model, module = new(kind), guidance(starts)
    model.learn(starts + SLOTS, module)
    updates, test_steps, copied = module.updates, module.test_steps, parameters_of(model.actor)
    assert updates > 0 and test_steps > 0
    model.learn(8 * ROUND, module, reset_num_timesteps=False)
    assert (module.updates, module.test_steps) == (updates, test_steps)
    assert module.pull == 0.0
    assert not same(copied, parameters_of(model.actor))
    actor = copy.deepcopy(model.actor)
    model.learn(SLOTS, module, reset_num_timesteps=False)
    seen, actions = last_actions(model, 1)
    with torch.no_grad():
        assert torch.allclose(actions, actor.eval()(seen), atol=1e-5)


def test_the_pull_fades_and_adam_forgets_the_copying() -> None:
    starts = 4 * ROUND
    model, module = new(TD3), guidance(starts, weight=0.5)
    notes = Notes(module)
    model.learn(3 * starts, [module, notes])
    assert {steps: led for steps, (led, _, _) in notes.found.items()} == {
        steps: steps < starts for steps in notes.found
    }
    pulls = {steps: pull for steps, (_, pull, _) in notes.found.items()}
    assert pulls[starts - SLOTS] == pulls[starts] == 0.5
    assert pulls[starts * 3 // 2] == pytest.approx(0.25)
    assert pulls[2 * starts] == pulls[3 * starts] == 0.0
    # Eight steps of the critic, four of the actor, for each of all slots; noted before those of the round.
    remembered = {steps: count for steps, (_, _, count) in notes.found.items()}
    assert remembered[starts] > 20
    assert remembered[starts + SLOTS] == 4 and remembered[starts + 2 * SLOTS] == 8


def test_it_lets_go_when_training_ends() -> None:
    noise = EpisodeNoise(4, 0.1, 0.05)
    model, module = new(TD3, action_noise=noise), guidance(3 * ROUND, noise=1.5, least_noise=1.0)
    model.learn(2 * ROUND, module)
    assert not module.leads and module.pull == 0.0
    assert [(slot.least_noise, slot.noise) for slot in model.action_noise.noises] == [(0.05, 0.1)] * SLOTS
    seen = {key: values[0] for key, values in model.replay_buffer.observations.items()}
    assert np.array_equal(model.predict(seen)[0], model.predict(seen, deterministic=True)[0])
    model.learn(4 * ROUND, module, reset_num_timesteps=False)
    far = distance(model, module)
    model.learn(2 * ROUND, module)  # from step 0 on once more: the algorithm has taken over for good
    assert not module.leads and module.updates > 0
    model.learn(6 * ROUND)
    assert distance(model, module) > 0.5 * far


class Interrupt(BaseCallback):
    """As Ctrl-C in a notebook does."""

    def _on_step(self) -> bool:
        if self.num_timesteps >= ROUND + SLOTS:
            raise KeyboardInterrupt
        return True


def test_an_interrupted_call_can_be_followed_by_another() -> None:
    model = new(TD3, action_noise=EpisodeNoise(4, 0.1, 0.05))
    module = guidance(3 * ROUND, noise=1.5, least_noise=1.0)
    with pytest.raises(KeyboardInterrupt):
        model.learn(2 * ROUND, [module, Interrupt()])
    model.learn(2 * ROUND, module, reset_num_timesteps=False)
    assert module.updates > 0
    assert [(slot.least_noise, slot.noise) for slot in model.action_noise.noises] == [(0.05, 0.1)] * SLOTS


def test_when_steps_are_counted_anew_the_old_network_does_not_pull_once_more() -> None:
    starts = 2 * ROUND
    model, module = new(TD3), guidance(starts)
    model.learn(3 * starts, module)
    notes = Notes(module)
    model.learn(3 * starts, [module, notes])
    assert max(notes.found) > 2 * starts
    assert {(led, pull) for led, pull, _ in notes.found.values()} == {(False, 0.0)}
    again = guidance(starts)
    again.prepare(new(TD3))
    again.load_state(module.state())
    again._at_work, again.model.num_timesteps = True, starts
    assert again.pull == 0.0


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
    notes = Scales()
    model.learn(7 * ROUND, [module, notes])
    assert all(1.0 <= scale <= 1.5 for steps in range(2, 4) for scale in notes.found[steps * ROUND])
    assert all(0.05 <= scale <= 0.1 for steps in range(6, 8) for scale in notes.found[steps * ROUND])
    for wrong in ({"noise": 0.1, "least_noise": 5.0}, {"noise": -3.0}, {"least_noise": 0.9}):
        with pytest.raises(InputError, match="noise"):
            guidance(100, **wrong)
    with pytest.raises(InputError, match="EpisodeNoise"):
        new(TD3).learn(10, guidance(100, noise=1.0))


@pytest.mark.parametrize(("kind", "env"), [(SAC, "FetchReach-v4"), (PPO, "FetchReach-v4"), (DQN, "BitFlip-v0")])
def test_what_it_cannot_guide_is_refused(kind: Any, env: str) -> None:
    model = kind("MultiInputPolicy", GoalVecEnv.make(env), device="cpu")
    with pytest.raises(InputError, match=f"a deterministic actor .*, not {kind.__name__}"):
        model.learn(10, Guidance())


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--combine", "guide", "--actor-starts", "0"), "guidance takes at least one step"),
        (("--combine", "guide", "--actor-starts", "100"), "leaves nothing of 100 steps"),
        (("--combine", "guide"), "leaves nothing of 100 steps"),
        (("--combine", "average", "--actor-starts", "5"), "goes with --combine guide"),
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


def test_the_actor_must_start_before_the_last_episode_ends() -> None:
    words = {"env": "FetchReach-v4", "method": "td3+her+pehid", "combine": "guide", "actor_starts": 200}
    with pytest.raises(InputError, match="leaves nothing of 4 episodes"):
        new_config({**words, "episodes": 4})
    assert new_config({**words, "episodes": 5})["actor_starts"] == 200
    assert new_config({**words, "episodes": 4, "env_options": {"horizon": 60}})["actor_starts"] == 200


def test_a_guided_agent_is_saved_as_its_actor(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["--method", "td3+her+pehid", "--combine", "guide", "--actor-starts", "300", "--env.horizon", "10"]
    more = ["--steps", "400", "--eval-every", "200", "--eval-episodes", "4", "--final-episodes", "8", "--quiet"]
    assert pchid.cli.main(["train", "FetchReach-v4", *words, *more, "--out", str(run)]) == 0
    arrays = load_file(run / "policy" / "agent.safetensors")
    assert arrays and all(name.startswith("policy.") and np.isfinite(values).all() for name, values in arrays.items())
    assert pchid.cli.main(["evaluate", str(run), "--episodes", "4"]) == 0
