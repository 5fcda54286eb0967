"""What must hold before any picture is taken.

In: where pictures go, and an environment. Out: how to draw it, or one clear sentence.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pchid.envs.fetch import FetchVectorEnv
from pchid.envs.make import make_vector
from pchid.envs.single import SingleEnvsVectorEnv
from pchid.errors import InputError
from pchid.watch.animation import WRITERS

SLOTS = 50  # episodes that are played at a time
CAMERA = {"distance": 1.7, "azimuth": 132.0, "elevation": -20.0, "lookat": np.array([1.28, 0.75, 0.58])}
"""Nearer to Fetch's table than gymnasium-robotics goes, so that the goal can be seen."""
SLIDE_CAMERA = {"distance": 1.75, "azimuth": 132.0, "elevation": -28.0, "lookat": np.array([1.42, 0.75, 0.5])}
"""The same for its longer table."""
TRIAL = "import mujoco as m; r = m.Renderer(m.MjModel.from_xml_string('<mujoco/>'), 8, 8); r.render(); r.close()"


def check_out(out: Path | None) -> None:
    """Refuse a file that cannot be written, or a window without a display."""
    if out is None:
        check_window()
    elif out.suffix.lower() not in WRITERS:
        raise InputError(f"--out must end in .gif, .mp4 or .png, but {out} does not")
    elif out.is_dir() or any(parent.is_file() for parent in out.parents):
        raise InputError(f"{out} cannot be written: it is a folder, or lies inside a file")
    elif out.suffix.lower() == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise InputError("an .mp4 needs imageio-ffmpeg: pip install 'pchid[video]', or write a .gif")


def check_window() -> None:
    """Refuse to open a window where there is no display."""
    import matplotlib
    from matplotlib import pyplot
    from matplotlib.backends.registry import BackendFilter, backend_registry

    windows: Any = backend_registry
    with contextlib.suppress(ImportError):  # of a backend that was asked for, but cannot run here
        pyplot.switch_backend(matplotlib.get_backend())
        if matplotlib.get_backend().lower() in windows.list_builtin(BackendFilter.INTERACTIVE):
            return
    raise InputError("there is no display for a window; write a file instead, for example --out watch.gif")


def check_rendering(env_id: str, options: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Refuse an environment that cannot draw; returns how many slots may draw at a time, and options for that."""
    plain = make_vector(env_id, 1, autoreset=False, **options)
    plain.close()
    if "rgb_array" not in plain.metadata.get("render_modes", ()):
        raise InputError(f"'{env_id}' cannot be watched: it has no render mode 'rgb_array'")
    if isinstance(plain, FetchVectorEnv):
        choose_renderer()
        return SLOTS, {"default_camera_config": SLIDE_CAMERA if "Slide" in env_id else CAMERA}
    if not isinstance(plain, SingleEnvsVectorEnv):
        return SLOTS, {}
    if plain.of_mujoco:
        choose_renderer()
    return 1, {}  # the renderers of several environments in one process may disturb each other


def choose_renderer() -> None:
    """Let MuJoCo draw by what MUJOCO_GL names or, without it and without a display, by EGL or else by OSMesa."""
    given = os.environ.get("MUJOCO_GL")
    if given is None and (sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)):
        return
    for name in ("egl", "osmesa") if given is None else (given,):
        # In a process of its own, since a library that was loaded in vain would keep out the next one.
        trial = subprocess.run(
            [sys.executable, "-c", TRIAL], env={**os.environ, "MUJOCO_GL": name}, capture_output=True
        )
        if trial.returncode == 0:
            os.environ["MUJOCO_GL"] = name
            return
    tried = "without a display" if given is None else f"by MUJOCO_GL={given}"
    raise InputError(f"MuJoCo cannot draw here {tried}; install a renderer: apt install libosmesa6")
