"""`pchid watch`: rollouts of a trained policy to look at.

In: a run directory. Out: an animation, a strip of pictures or a window.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from pchid.errors import InputError, at_least


@dataclass
class Watch:
    """Watch the policy of a run play, in a window or in a file."""

    run_directory: Annotated[Path, tyro.conf.Positional]
    """The directory of the run."""
    env: Annotated[str | None, tyro.conf.Positional] = None
    """For a run on module:id, the id again, so that the module may be imported; for a policy of pchid fit with no
    environment known, one to play in."""
    out: Path | None = None
    """An animation (.gif, .mp4) or a strip of pictures (.png); by default a window opens."""
    episodes: int = 6
    """How many episodes."""
    seed: int = 7
    """Decides their starts and goals, as in pchid evaluate."""
    fps: int | None = None
    """Pictures a second; by default the environment's own pace, or as many as end in ten seconds."""
    only: Literal["successes", "failures"] | None = None
    """Only episodes that end so, out of the first 1000."""
    maps: Path | None = None
    """For GridWorld: an .npz file of maps, as in pchid evaluate."""

    def run(self) -> None:
        """Play, show or write, and count."""
        from pchid.runs import RunDirectory
        from pchid.watch import watch_run

        at_least(1, **{"--episodes": self.episodes})
        at_least(0, **{"--seed": self.seed})
        if self.fps is not None and not 1 <= self.fps <= 50:
            raise InputError(f"--fps is {self.fps}, but must lie between 1 and 50")
        directory = RunDirectory(self.run_directory)
        shown = watch_run(directory, self.out, self.episodes, self.seed, self.env, self.maps, self.only, self.fps)
        if self.out is not None:
            print(self.out)
        print(f"{sum(episode.success for episode in shown)} of {len(shown)} episodes reached the goal")
