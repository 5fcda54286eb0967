"""Watch a trained policy: the episodes of `pchid evaluate`, in pictures.

In: a run directory. Out: an animation (.gif, .mp4), a strip of pictures (.png) or a window; each picture says which
episode and step it shows, and whether the goal is reached.
"""

from pchid.watch.animation import Episode, Moment
from pchid.watch.episodes import watch_run

__all__ = ["Episode", "Moment", "watch_run"]
