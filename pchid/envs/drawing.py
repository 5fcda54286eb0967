"""Anti-aliased shapes on an RGB image, with NumPy alone, for the pictures of the domains (Fig. 1).

Each shape is given by its signed distance: a pixel half a pixel inside is covered, half a pixel outside is
not, and in between it is blended. That gives smooth edges without drawing anything larger than the image.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
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

    def cells(self, left: int, top: int, side: int, mask: NDArray[np.bool_], colour: Colour, *, gap: int = 0) -> None:
        """Colour the squares, `side` pixels wide, of a grid where the (rows, columns) mask is true."""
        inside = np.zeros((side, side), dtype=np.bool_)
        inside[: side - gap, : side - gap] = True
        where = np.kron(mask, inside)
        rows, columns = where.shape
        self.pixels[top : top + rows, left : left + columns][where] = colour
