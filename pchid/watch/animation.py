"""From episodes in pictures to a file or a window.

In: `Episode`s. Out: the bytes of a .gif, .mp4 or .png, or a window that plays them.
"""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pchid.envs.drawing import INK, Canvas, Picture, sheet

CAPTION, GAP = 26, 8  # pixels: the height of a caption, the space between pictures
STRIP_PICTURES = 6  # of an episode
REACHED, FAILED = (34, 139, 84), (200, 52, 44)


@dataclass(frozen=True)
class Moment:
    """One picture of an episode."""

    picture: Picture
    step: int
    reached: bool
    over: bool


@dataclass(frozen=True)
class Episode:
    """An episode in pictures; its number counts from 0, as in an evaluation with the same seed."""

    number: int
    limit: int | None
    success: bool
    moments: list[Moment]


def tile(episode: Episode, moment: Moment) -> Picture:
    """A picture with its caption."""
    width, limit = moment.picture.shape[1], "" if episode.limit is None else f" of {episode.limit}"
    canvas, inset = Canvas(width, CAPTION), 0.036 * width
    # A letter is about half as wide as high; there must be room for the last step's number and for "not reached".
    size = min(14.0, 2 * width / (len(f"#{episode.number + 1}   step {2 * limit}") + 10))
    canvas.text(inset, CAPTION / 2, f"#{episode.number + 1}   step {moment.step}{limit}", size, INK)
    if moment.reached or moment.over:
        word, colour = ("reached", REACHED) if moment.reached else ("not reached", FAILED)
        canvas.text(width - inset, CAPTION / 2, word, size, colour, right=True)
    return np.concatenate([canvas.image(), moment.picture])


def frames(episodes: Sequence[Episode]) -> Iterator[Picture]:
    """All episodes at once, each holding its last picture until the longest has ended."""
    tiles = [[tile(episode, moment) for moment in episode.moments] for episode in episodes]
    columns = columns_for(len(tiles), *tiles[0][0].shape[1::-1])
    for index in range(max(map(len, tiles))):
        yield sheet([own[min(index, len(own) - 1)] for own in tiles], columns, GAP)


def columns_for(count: int, width: int, height: int) -> int:
    """How many tiles go side by side, so that all are about half as wide again as high and few places stay empty."""

    def cost(columns: int) -> float:
        rows = -(-count // columns)
        shape = columns * width / (rows * height)
        return abs(math.log(shape / 1.5)) + 0.4 * (rows * columns - count)

    return min(range(1, count + 1), key=cost)


def strip(episodes: Sequence[Episode]) -> Picture:
    """A row for each episode: its first and last picture, and some between."""
    tiles: list[Picture | None] = []
    for episode in episodes:
        chosen = np.unique(np.linspace(0, len(episode.moments) - 1, STRIP_PICTURES).round().astype(int)).tolist()
        tiles += [tile(episode, episode.moments[index]) for index in chosen]
        tiles += [None] * (STRIP_PICTURES - len(chosen))
    return sheet(tiles, STRIP_PICTURES, GAP)


def png(episodes: Sequence[Episode], fps: float) -> bytes:
    """The strip."""
    from PIL import Image

    data = io.BytesIO()
    Image.fromarray(strip(episodes)).save(data, "PNG", optimize=True)
    return data.getvalue()


def gif(episodes: Sequence[Episode], fps: float) -> bytes:
    """An animation in 255 colours, which its first and last pictures decide, and one for all that does not change."""
    from PIL import Image

    ends = [tile(episode, episode.moments[index]) for episode in episodes for index in (0, -1)]
    palette = Image.fromarray(sheet(ends, len(ends), 0)).quantize(255, Image.Quantize.FASTOCTREE)
    first, *rest = (
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames(episodes)
    )
    data = io.BytesIO()
    times = [*[1000 / fps] * len(rest), 1000 + 1000 / fps]
    first.save(data, "GIF", save_all=True, append_images=rest, duration=times, loop=0)
    return data.getvalue()


def mp4(episodes: Sequence[Episode], fps: float) -> bytes:
    """An animation that any player can show: H.264, with an even number of pixels a side."""
    import imageio_ffmpeg

    even = [frame[: len(frame) // 2 * 2, : frame.shape[1] // 2 * 2].copy() for frame in frames(episodes)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "animation.mp4"
        exact = ["-fflags", "+bitexact"]
        writer = imageio_ffmpeg.write_frames(
            str(path), even[0].shape[1::-1], fps=fps, macro_block_size=2, output_params=exact
        )
        writer.send(None)
        for frame in [*even, *even[-1:] * round(fps)]:
            writer.send(frame)
        writer.close()
        return path.read_bytes()


WRITERS = {".gif": gif, ".mp4": mp4, ".png": png}


def show(episodes: Sequence[Episode], fps: float) -> None:
    """Play the animation in a window, again and again until it is closed."""
    from matplotlib import pyplot
    from matplotlib.animation import FuncAnimation

    pictures = list(frames(episodes))
    height, width = pictures[0].shape[:2]
    figure = pyplot.figure("pchid watch", figsize=(width / 100, height / 100), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    image = axes.imshow(pictures[0])

    def turn_to(index: int) -> list[Any]:
        image.set_data(pictures[min(index, len(pictures) - 1)])
        return [image]

    held = len(pictures) + round(fps)
    animation = FuncAnimation(figure, turn_to, held, interval=round(1000 / fps))
    pyplot.show()
    del animation  # until now it had to be kept
