"""Guidance: a network that hindsight alone teaches goes first, and the algorithm goes on from where it got.

In: an algorithm with an actor and a critic. Out: the same, whose actor is at first a copy of the hindsight network,
then follows the critic, and is held to the copy less and less. A critic that has seen nothing but failures cannot tell
good actions from bad ones; by the time it decides here, it has seen a policy that gets somewhere.
"""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3 import TD3
from torch import Tensor
from torch.optim import Optimizer

from pchid.combine.extend import extend
from pchid.combine.module import SeparateModule
from pchid.combine.noise import EpisodeNoise, check_scales, noises_of
from pchid.combine.student import outputs
from pchid.errors import InputError


class Guidance(SeparateModule):
    """`model.learn(steps, callback=Guidance(actor_starts=100_000, evolve=True))`: for DDPG and TD3.

    Until `actor_starts` the hindsight network collects the episodes and learns from them, the actor copies it, and the
    critic learns what it is worth. From then on the network rests; the actor follows the critic, and the copying counts
    `weight` times the size of the critic's values beside it, less and less, until `2 * actor_starts`. After `learn` the
    model is left to itself.

    :param actor_starts: the environment step from which on the algorithm acts and improves by itself
    :param noise: the largest scale of exploration until then; the algorithm's `action_noise` must be an `EpisodeNoise`
        to be set so. By default it stays the same throughout
    :param least_noise: the smallest; by default `noise`
    :param persistence: of the exploration until then

    See `SeparateModule` for the others.
    """

    def __init__(
        self,
        *args: Any,
        actor_starts: int = 100_000,
        noise: float | None = None,
        least_noise: float | None = None,
        persistence: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if actor_starts < 1:
            raise InputError(f"actor_starts is {actor_starts}, but guidance takes at least one step")
        if noise is None and (least_noise is not None or persistence):
            raise InputError("least_noise and persistence go with a noise, which is not given")
        self.actor_starts = actor_starts
        self._leading_noise: tuple[float, float, float] | None = None
        if noise is not None:
            self._leading_noise = (noise, noise if least_noise is None else least_noise, persistence)
            check_scales(*self._leading_noise)
        self._own_noise: list[tuple[float, float, float]] = []
        self._at_work = False
        self._led = True  # until the algorithm has taken over, which happens once
        self._over = False  # when a later call of `learn` has begun to count anew

    def prepare(self, model: Any) -> None:
        """See `HindsightModule`; from now on the model's actor and its way to collect can be guided."""
        if not isinstance(model, TD3):  # DDPG is one
            raise InputError(
                f"guidance is for algorithms with a deterministic actor (DDPG, TD3), not {type(model).__name__}"
            )
        noises = noises_of(model)
        if self._leading_noise is not None and not (noises and all(isinstance(one, EpisodeNoise) for one in noises)):
            raise InputError("a noise for guidance needs an algorithm whose action_noise is an EpisodeNoise")
        prepared = hasattr(self, "learner")
        super().prepare(model)
        if not prepared:
            extend(model.policy, _Led, self)
            model.actor.optimizer.register_step_pre_hook(self._guide)

    @property
    def leads(self) -> bool:
        """Whether the hindsight network goes first now."""
        return self._at_work and self.weight > 0.0 and self._led and self.model.num_timesteps < self.actor_starts

    @property
    def pull(self) -> float:
        """How much the copying counts now."""
        if self.leads:
            return self.weight
        made = self.model.num_timesteps / self.actor_starts
        holds = self._at_work and not self._over and made >= 1.0
        return self.weight * max(2.0 - made, 0.0) if holds else 0.0

    def _on_training_start(self) -> None:
        super()._on_training_start()
        if self._at_work:  # the last `learn` was interrupted
            self._rest()
        self._at_work = True
        self._over = self._over or (not self._led and self.model.num_timesteps < self.actor_starts)
        if self._leading_noise is not None:
            self._own_noise = [(one.noise, one.least_noise, one.persistence) for one in self._noises()]

    def _on_training_end(self) -> None:
        super()._on_training_end()
        self._rest()

    def _rest(self) -> None:
        self._at_work = False
        self._set_noise()

    def _on_rollout_start(self) -> None:
        super()._on_rollout_start()
        self._set_noise()

    def _learn_from_episodes(self) -> None:
        if self._led or self.weight == 0.0:
            super()._learn_from_episodes()
        else:
            for episodes in self.tap.take():
                self.episodes_seen += len(episodes)

    def _noises(self) -> list[Any]:
        return noises_of(self.model)

    def _set_noise(self) -> None:
        """The exploration that goes with who leads; its scale counts from each slot's next episode on."""
        for noise, own in zip(self._noises(), self._own_noise, strict=False):
            scales = self._leading_noise if self.leads and self._leading_noise is not None else own
            noise.noise, noise.least_noise, noise.persistence = scales

    def _guide(self, optimizer: Optimizer, *_: Any) -> None:
        """Before each step on the actor: put the copying's gradient beside the critic's, or in its place."""
        if self.leads:
            optimizer.zero_grad()
        elif self._at_work and self._led and self.weight > 0.0:
            self._led = False
            # What Adam remembers of the sizes of gradients is of the copying's, which were small.
            optimizer.state.clear()
        if self.pull == 0.0 or not self.trained:
            return
        model: Any = self.model
        seen = model.replay_buffer.sample(model.batch_size, env=model._vec_normalize_env).observations
        actions = outputs(model.policy, seen)
        loss = self.pull * self._size_of_values(seen, actions.detach()) * (actions - self.outputs(seen)).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]

    def _size_of_values(self, observations: dict[str, Tensor], actions: Tensor) -> Tensor:
        model: Any = self.model
        with torch.no_grad():
            size: Tensor = model.critic(observations, actions)[0].abs().mean()
        return size

    def state(self) -> dict[str, Any]:
        """See `HindsightModule`."""
        return {**super().state(), "led": self._led, "over": self._over}

    def load_state(self, state: dict[str, Any]) -> None:
        """See `HindsightModule`."""
        super().load_state(state)
        self._led, self._over = state["led"], state["over"]


class _Led:
    """How a guided policy collects episodes; asked for its best action, it answers by itself."""

    extension: Guidance
    _base: Any

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        led = self.extension.leads and self.extension.trained and not deterministic
        action: Tensor = (
            self.extension.outputs(observation) if led else self._base._predict(self, observation, deterministic)
        )
        return action
