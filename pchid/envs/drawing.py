"""Anti-aliased shapes on an RGB image, with NumPy alone (text: Pillow), for the pictures of the domains (Fig. 1).

Each shape is given by its signed distance: a pixel half a pixel inside is covered, half a pixel outside is
not, and in between it is blended. That gives smooth edges without drawing anything larger than the image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
Point = tuple[float, float]
Picture = NDArray[np.uint8]
_Field = NDArray[np.float64]

PAPER: Colour = (246, 244, 239)
PANEL: Colour = (236, 232, 223)
WHITE: Colour = (255, 255, 255)
LINE: Colour = (214, 209, 198)
MUTED: Colour = (150, 148, 142)
INK: Colour = (52, 60, 74)
WALL: Colour = (92, 102, 120)
STATE: Colour = (46, 108, 176)
GOAL: Colour = (226, 146, 38)
WRONG: Colour = (211, 78, 66)


class Canvas:
    """An image of `width` by `height` pixels; positions are in pixels from the top left corner."""

    def __init__(self, width: int, height: int, background: Colour = PAPER) -> None:
        """Start with a plain background."""
        self.pixels: NDArray[np.float64] = np.full((height, width, 3), background, dtype=np.float64)

    def image(self) -> NDArray[np.uint8]:
        """Return the picture as (height, width, 3) bytes."""
        return np.rint(self.pixels).astype(np.uint8)

    def _fill(
        self,
        box: tuple[float, float, float, float],
        signed_distance: Callable[[_Field, _Field], _Field],
        colour: Colour,
        opacity: float,
    ) -> None:
        """Blend a shape over the pixels of its bounding box (left, top, right, bottom)."""
        height, width = self.pixels.shape[:2]
        left, top = max(int(box[0]) - 1, 0), max(int(box[1]) - 1, 0)
        right, bottom = min(int(box[2]) + 2, width), min(int(box[3]) + 2, height)
        x = np.arange(left, right)[None, :] + 0.5
        y = np.arange(top, bottom)[:, None] + 0.5
        cover = np.clip(0.5 - signed_distance(x, y), 0.0, 1.0)[:, :, None] * opacity
        region = self.pixels[top:bottom, left:right]
        region += cover * (np.asarray(colour, dtype=np.float64) - region)

    def tile(
        self,
        left: float,
        top: float,
        width: float,
        height: float,
        colour: Colour,
        *,
        radius: float = 0.0,
        line: float = 0.0,
        opacity: float = 1.0,
    ) -> None:
        """Draw a rectangle with rounded corners: filled, or only its outline if `line` is its width."""
        centre_x, centre_y = left + width / 2, top + height / 2

        def signed_distance(x: _Field, y: _Field) -> _Field:
            across = np.abs(x - centre_x) - width / 2 + radius
            down = np.abs(y - centre_y) - height / 2 + radius
            outside = np.hypot(np.maximum(across, 0.0), np.maximum(down, 0.0))
            solid: _Field = outside + np.minimum(np.maximum(across, down), 0.0) - radius
            # An outline lies inside the edge, so that it takes the same room as a filled tile.
            return np.abs(solid + line / 2) - line / 2 if line else solid

        self._fill((left, top, left + width, top + height), signed_distance, colour, opacity)

    def disc(
        self, x: float, y: float, radius: float, colour: Colour, *, line: float = 0.0, opacity: float = 1.0
    ) -> None:
        """Draw a disc around (x, y), or a ring if `line` is its width."""
        box = (x - radius, y - radius, 2 * radius, 2 * radius)
        self.tile(*box, colour, radius=radius, line=line, opacity=opacity)

    def line(self, start: Point, end: Point, width: float, colour: Colour, *, opacity: float = 1.0) -> None:
        """Draw a stroke with round ends from one (x, y) to another."""
        (x0, y0), (x1, y1) = start, end
        along_x, along_y = x1 - x0, y1 - y0
        length = max(along_x**2 + along_y**2, 1e-12)

        def signed_distance(x: _Field, y: _Field) -> _Field:
            share = np.clip(((x - x0) * along_x + (y - y0) * along_y) / length, 0.0, 1.0)
            distance: _Field = np.hypot(x - x0 - share * along_x, y - y0 - share * along_y) - width / 2
            return distance

        box = (min(x0, x1) - width, min(y0, y1) - width, max(x0, x1) + width, max(y0, y1) + width)
        self._fill(box, signed_distance, colour, opacity)

    def arrow(self, start: Point, end: Point, width: float, colour: Colour, *, head: float) -> None:
        """Draw an arrow from one (x, y) to another, its two barbs `head` pixels wide and long."""
        (x0, y0), (x1, y1) = start, end
        length = max(float(np.hypot(x1 - x0, y1 - y0)), 1e-6)
        x, y = (x1 - x0) / length * head, (y1 - y0) / length * head
        for tail in (start, (x1 - x - y, y1 - y + x), (x1 - x + y, y1 - y - x)):
            self.line(tail, end, width, colour)

    def text(self, x: float, y: float, words: str, size: float, colour: Colour, *, right: bool = False) -> None:
        """Write a line whose middle is at height `y`: from `x` on or, if `right`, up to there."""
        from PIL import Image, ImageDraw, ImageFont

        cover = Image.new("L", (self.pixels.shape[1], self.pixels.shape[0]))
        ImageDraw.Draw(cover).text((x, y), words, 255, ImageFont.load_default(size), "rm" if right else "lm")
        self.pixels += np.asarray(cover)[:, :, None] / 255.0 * (np.asarray(colour) - self.pixels)

    def cells(self, left: int, top: int, side: int, mask: NDArray[np.bool_], colour: Colour, *, gap: int = 0) -> None:
        """Colour the squares, `side` pixels wide, of a grid where the (rows, columns) mask is true."""
        inside = np.zeros((side, side), dtype=np.bool_)
        inside[: side - gap, : side - gap] = True
        where = np.kron(mask, inside)
        rows, columns = where.shape
        self.pixels[top : top + rows, left : left + columns][where] = colour


def resize(picture: Picture, width: int) -> Picture:
    """Return the picture as wide as that, in its own proportions."""
    from PIL import Image

    size = (width, round(picture.shape[0] * width / picture.shape[1]))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


def sheet(pictures: Sequence[Picture | None], columns: int, gap: int) -> Picture:
    """Return pictures of one size side by side, row by row, with room around each; None leaves a place empty."""
    height, width = next(picture.shape[:2] for picture in pictures if picture is not None)
    rows = -(-len(pictures) // columns)
    whole = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap, 3), PAPER, np.uint8)
    for index, picture in enumerate(pictures):
        if picture is not None:
            row, column = divmod(index, columns)
            top, left = gap + row * (height + gap), gap + column * (width + gap)
            whole[top : top + height, left : left + width] = picture
    return whole
