"""The domains of the paper as Gymnasium environments; importing this package registers them.

BitFlip-v0 (Sec. 3.2), GridWorld-v0 (Sec. 4.1) and Hanoi-v0 (Sec. 1) work with `gymnasium.make` and
`gymnasium.make_vec`.
"""

from __future__ import annotations

import contextlib
import functools
import io

import gymnasium

_MODULES = {"BitFlip": "bit_flip", "GridWorld": "grid_world", "Hanoi": "hanoi"}


def register() -> None:
    """Make the domains known to Gymnasium, once."""
    for name, module in _MODULES.items():
        if f"{name}-v0" not in gymnasium.registry:
            # No max_episode_steps: each domain's horizon depends on its options, so it truncates itself.
            gymnasium.register(
                id=f"{name}-v0",
                entry_point=f"pchid.envs.{module}:{name}Env",
                vector_entry_point=f"pchid.envs.{module}:{name}VectorEnv",
            )


@functools.cache
def register_robotics() -> None:
    """Make the environments of gymnasium-robotics known to Gymnasium, if it is installed."""
    # It prints a notice about Adroit versions when it is imported, which would only puzzle here.
    with contextlib.suppress(ImportError), contextlib.redirect_stderr(io.StringIO()):
        import gymnasium_robotics

        gymnasium.register_envs(gymnasium_robotics)


register()
