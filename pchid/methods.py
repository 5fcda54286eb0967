"""The names of methods: ours alone, or an algorithm of Stable-Baselines3 with hindsight beside it.

In: a name such as `pchid`, `sac+her` or `ppo+her+pchid`. Out: its parts, or one sentence about what is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pchid.errors import InputError

OURS = ("id", "hid", "pchid", "pehid")
BASES = ("dqn", "ppo", "ddpg", "td3", "sac", "tqc")
MODULES = ("hid", "pchid", "pehid")
COMBINATIONS = ("joint", "average", "intrinsic", "guide")
WEIGHTS = {"joint": 1.0, "average": 0.5, "intrinsic": 0.1, "guide": 1.0}
"""How much the module counts if nobody says."""


@dataclass(frozen=True)
class Method:
    """The parts of a method's name."""

    base: str | None
    """The algorithm of Stable-Baselines3; None if PCHID runs alone."""
    her: bool
    """Whether it learns from relabelled transitions (or rollouts, for PPO)."""
    module: str | None
    """The hindsight module; for our own methods, the method itself."""

    @property
    def one_step(self) -> bool:
        """Whether it learns from pieces of one step alone."""
        return self.module in ("id", "hid")


def parse_method(name: str) -> Method:
    """Take a method's name apart: BASE, then +her, then one of +hid, +pchid, +pehid; or one of ours alone."""
    if name in OURS:
        return Method(None, False, name)
    base, *parts = name.split("+")
    her = parts[:1] == ["her"]
    modules = parts[1:] if her else parts
    if base not in BASES or len(modules) > 1 or any(module not in MODULES for module in modules):
        raise InputError(
            f"unknown method '{name}': it is one of {', '.join(OURS)}, or one of {', '.join(BASES)} followed by +her, "
            "by +hid, +pchid or +pehid, or by both (as in ppo+her+pchid)"
        )
    return Method(base, her, modules[0] if modules else None)
