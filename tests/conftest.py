"""Settings for all tests: one thread each, the users' environments registered, no time limits on examples."""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, and for the processes that tests start

import pytest
import torch
import user_envs
from hypothesis import HealthCheck, settings
from support import Outcome

import pchid.cli

torch.set_num_threads(1)
user_envs.register()
settings.register_profile("pchid", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("pchid")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Call the command line within this process."""

    def call_cli(*words: object) -> Outcome:
        capsys.readouterr()
        try:
            code = pchid.cli.main([str(word) for word in words])
        except SystemExit as stop:  # as the interpreter would: no code is 0, and text is an error
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call_cli
