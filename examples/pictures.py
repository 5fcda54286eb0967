"""Draw the README's pictures of the domains."""

from pathlib import Path

import gymnasium as gym
import matplotlib
import matplotlib.image
import numpy as np

import pchid  # noqa: F401  (registers the domains)

IMAGES = Path("docs/images")


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    for env_id, seed, steps in (("BitFlip-v0", 3, 2), ("GridWorld-v0", 11, 0), ("Hanoi-v0", 5, 3)):
        env = gym.make(env_id, render_mode="rgb_array")
        env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        for _ in range(steps):
            env.step(int(rng.integers(env.action_space.n)))
        name = env_id.split("-")[0].lower()
        matplotlib.image.imsave(IMAGES / f"{name}.png", env.render())
        env.close()


if __name__ == "__main__":
    main()
