"""Rollouts that move: the GIFs of `pchid watch`, as part of the page.

In: results/animations/*.gif, and captions.json beside them. Out: data URIs of each animation and of its first picture,
which is all that is seen until someone plays it.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from pchid.errors import InputError
from pchid.report.collect import read_json


@dataclass(frozen=True)
class Animation:
    """A GIF with its first picture."""

    name: str
    caption: str
    gif: str
    still: str
    width: int
    height: int


def animations(folder: Path) -> list[Animation]:
    """All animations of a folder, by name; a folder that does not exist has none."""
    captions = read_json(folder / "captions.json") if (folder / "captions.json").exists() else {}
    if not isinstance(captions, dict):
        raise InputError(f"{folder / 'captions.json'} must map the name of each animation to a sentence")
    return [_read(path, str(captions.get(path.stem, path.stem))) for path in sorted(folder.glob("*.gif"))]


def _read(path: Path, caption: str) -> Animation:
    data, still = path.read_bytes(), io.BytesIO()
    try:
        with Image.open(io.BytesIO(data)) as picture:
            width, height = picture.size
            picture.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(still, "PNG", optimize=True)
    except (UnidentifiedImageError, OSError, ValueError):
        raise InputError(f"{path} is not a picture that can be read") from None
    return Animation(path.stem, caption, data_uri(data, "gif"), data_uri(still.getvalue(), "png"), width, height)


def width(path: Path) -> int:
    """How wide a drawing is shown, in the pixels of a page: as large as it was drawn, at 150 dots an inch."""
    try:
        with Image.open(path) as picture:
            return round(picture.width * 96 / 150)
    except (UnidentifiedImageError, OSError, ValueError):
        raise InputError(f"{path} is not a picture that can be read") from None


def data_uri(data: bytes, kind: str) -> str:
    """A picture as an address that holds it."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
