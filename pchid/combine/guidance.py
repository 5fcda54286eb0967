"""Guidance: a network that hindsight alone teaches goes first, and the algorithm goes on from where it got.

In: an algorithm with an actor and a critic. Out: the same, whose actor is at first a copy of the hindsight network,
then follows the critic, and is held to the copy less and less. A critic that has seen nothing but failures cannot tell
good actions from bad ones; by the time it decides here, it has seen a policy that gets somewhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from pchid.combine.extend import extend
from pchid.combine.module import SeparateModule
from pchid.combine.noise import EpisodeNoise, noises_of
from pchid.combine.student import outputs
from pchid.errors import InputError


class Guidance(SeparateModule):
    """`model.learn(steps, callback=Guidance(actor_starts=100_000, evolve=True))`: for DDPG, TD3, SAC and TQC.

    Until `actor_starts` the hindsight network collects the episodes and learns from them, the actor copies it, and the
    critic learns what it is worth. From then on the network rests; the actor follows the critic, and the copying counts
    `weight` times the size of the critic's values beside it, less and less, until `2 * actor_starts`.

    :param actor_starts: the environment step from which on the algorithm acts and improves by itself
    :param noise: the largest scale of exploration until then, if the algorithm's `action_noise` is an `EpisodeNoise`;
        by default the same as afterwards
    :param least_noise: the smallest; by default `noise`

    See `SeparateModule` for the others.
    """

    def __init__(
        self,
        *args: Any,
        actor_starts: int = 100_000,
        noise: float | None = None,
        least_noise: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if actor_starts < 1:
            raise InputError(f"actor_starts is {actor_starts}, but guidance takes at least one step")
        self.actor_starts, self.noise, self.least_noise = actor_starts, noise, least_noise
        self._led = True
        self._own_scales: list[tuple[float, float]] = []

    def prepare(self, model: Any) -> None:
        """See `HindsightModule`; from now on the model's actor and its way to collect are guided."""
        if getattr(model, "actor", None) is None or getattr(model, "critic", None) is None:
            name = type(model).__name__
            raise InputError(f"guidance is for algorithms with an actor and a critic (DDPG, TD3, SAC, TQC), not {name}")
        prepared = hasattr(self, "learner")
        super().prepare(model)
        if not prepared:
            extend(model.policy, _Led, self)
            model.actor.optimizer.register_step_pre_hook(self._guide)

    @property
    def leads(self) -> bool:
        """Whether the hindsight network still goes first."""
        return self.weight > 0.0 and self.model.num_timesteps < self.actor_starts

    @property
    def pull(self) -> float:
        """How much the copying counts now."""
        gone = self.model.num_timesteps / self.actor_starts
        return self.weight * min(max(2.0 - gone, 0.0), 1.0)

    def _learn_from_episodes(self) -> None:
        if self.leads or self.weight == 0.0:
            super()._learn_from_episodes()
        else:
            for episodes in self.tap.take():
                self.episodes_seen += len(episodes)

    def _on_rollout_start(self) -> None:
        super()._on_rollout_start()
        self._set_noise()
        if self._led and not self.leads and self.weight > 0.0:
            self._led = False
            # What Adam remembers of the sizes of gradients is of the copying's, which were small.
            self.model.actor.optimizer.state.clear()  # type: ignore[attr-defined]

    def _set_noise(self) -> None:
        """The scale of exploration that goes with who leads; it counts from each slot's next episode on."""
        noises = [noise for noise in noises_of(self.model) if isinstance(noise, EpisodeNoise)]
        if not self._own_scales:
            self._own_scales = [(noise.least_noise, noise.noise) for noise in noises]
        for noise, scales in zip(noises, self._own_scales, strict=True):
            if self.leads and self.noise is not None:
                scales = (self.noise if self.least_noise is None else self.least_noise, self.noise)
            noise.least_noise, noise.noise = scales

    def _guide(self, optimizer: Optimizer, *_: Any) -> None:
        """Before each step on the actor: put the copying's gradient beside the critic's, or in its place."""
        if self.leads:
            optimizer.zero_grad()
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
        return {**super().state(), "led": self._led}

    def load_state(self, state: dict[str, Any]) -> None:
        """See `HindsightModule`."""
        super().load_state(state)
        self._led = state["led"]


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
