"""One run in a process: what an engine starts, `python -m pchid.experiments.worker DIR WORDS...`.

In: a directory and what follows `pchid train`. Out: the exit code; the run goes on from its last checkpoint, if any.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from pchid.cli import main
from pchid.runs import RunDirectory

ENGINE = "PCHID_ENGINE"
"""The environment variable with the process id of the engine."""


def train_in(directory: Path, words: list[str]) -> int:
    """Begin the run or go on with it; a finished one is left alone."""
    run = RunDirectory(directory)
    if run.finished:
        return 0
    resume = ["--resume"] if run.exists else []
    return main(["train", *words, "--out", str(directory), "--quiet", *resume])


def end_with_parent() -> None:
    """If the engine is killed, its runs end too, so that nobody trains in their directories when it is called again."""
    # Not getppid(): if the engine was killed while this process was starting, that is somebody else already.
    parent = int(os.environ.get(ENGINE, os.getppid()))

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    end_with_parent()
    sys.exit(train_in(Path(sys.argv[1]), sys.argv[2:]))
