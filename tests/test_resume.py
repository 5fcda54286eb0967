"""A run that is stopped, killed or damaged goes on as if nothing had happened, byte for byte."""

from __future__ import annotations

import csv
import errno
import gc
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import QUICK, Outcome

import pchid.cli
import pchid.training
from pchid.checkpoint import numbers
from pchid.evaluation import evaluate
from pchid.runs import RunDirectory
from pchid.training import train

Call = Callable[..., Outcome]
BITS = ("BitFlip-v0", "--env.n_bits", 5, "--method", "hid", "--updates-per-episode", 4)
TOWERS = ("Hanoi-v0", "--env.n_discs", 2, "--K-max", 3, "--num-envs", 4, "--updates-per-episode", 2)
PUSH = ("FetchPush-v4", "--method", "pehid", "--num-envs", 4, "--env.horizon", 6, "--policy.hidden_sizes", "[16]")
OFTEN = ("--checkpoint-seconds", 0)
slow = pytest.mark.slow


def words_of(*words: object) -> list[str]:
    return [str(word) for word in words]


def result(out: Path) -> dict[str, Any]:
    """What must not depend on how often a run was stopped."""
    with (out / "metrics.csv").open() as file:
        rows = [[cell for cell in row.items() if cell[0] != "wall_seconds"] for row in csv.DictReader(file)]
    summary = json.loads((out / "summary.json").read_text())
    summary.pop("wall_seconds")
    return {"rows": rows, "summary": summary, "policy": (out / "policy" / "agent.safetensors").read_bytes()}


def straight(out: Path, *words: object) -> dict[str, Any]:
    assert pchid.cli.main(words_of("train", *words, *QUICK, "--out", out)) == 0
    return result(out)


class StopError(Exception):
    """Stops a run from within."""


def stop_after(rounds: int) -> Callable[..., None]:
    """A display that lets some rounds pass."""
    passed = iter(range(rounds))

    def show(*_: object) -> None:
        if next(passed, None) is None:
            raise StopError

    return show


def train_in_pieces(reference: Path, out: Path, rounds: int) -> int:
    """The run of `reference` again, stopped and resumed every few rounds; returns how often."""
    config = RunDirectory(reference).read_config()
    for stops in range(1000):
        try:
            train(config, RunDirectory(out), stop_after(rounds))
        except StopError:
            pass
        else:
            return stops
    raise AssertionError("the run makes no progress")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param((*BITS, "--episodes", 16), id="one step"),
        pytest.param((*TOWERS, "--episodes", 50), id="continuation"),
        pytest.param((*TOWERS, "--test", "ground-truth", "--episodes", 50), id="ground truth", marks=slow),
        pytest.param((*BITS[:3], "--method", "pehid", "--test", "rnd", "--episodes", 16), id="novelty", marks=slow),
        pytest.param((*BITS, "--steps", 90, "--num-envs", 3), id="steps", marks=slow),
        pytest.param(("UserLine-v0", "--K-max", 2, "--updates-per-episode", 4, "--episodes", 9), id="not restorable"),
        pytest.param(("UserRestorableLine-v0", "--num-envs", 2, "--K-max", 2, "--episodes", 14), id="one at a time"),
    ],
)
def test_a_stopped_run_goes_on_as_if_it_had_not_been(tmp_path: Path, words: tuple[object, ...]) -> None:
    expected = straight(tmp_path / "straight", *words, *OFTEN)
    stops = train_in_pieces(tmp_path / "straight", tmp_path / "pieces", rounds=6)
    assert stops >= 1
    assert result(tmp_path / "pieces") == expected


def test_it_does_so_too_when_checkpoints_are_rare(tmp_path: Path) -> None:
    expected = straight(tmp_path / "straight", *BITS, "--episodes", 24, "--checkpoint-seconds", 1000)
    stops = train_in_pieces(tmp_path / "straight", tmp_path / "pieces", rounds=9)
    assert stops >= 1
    assert result(tmp_path / "pieces") == expected


@slow
@pytest.mark.parametrize(
    "words",
    [
        ("FetchReach-v4", "--K-max", 2, "--episodes", 4, "--updates-per-episode", 3),
        ("GridWorld-v0", "--env.size", 6, "--K-max", 2, "--episodes", 24, "--updates-per-episode", 1),
        # All that is recommended with an object: noise that lasts, draws, symmetries, way points, averaging.
        (*PUSH, "--K-max", 3, "--min-displacement", 0, "--passes-per-pair", 0.1, "--wander", 0.1, "--episodes", 24),
    ],
)
def test_so_do_mujoco_and_value_iteration(tmp_path: Path, words: tuple[object, ...]) -> None:
    base = ("train", *words, "--batch-size", 16, "--eval-episodes", 1, "--final-episodes", 2, "--quiet", *OFTEN)
    assert pchid.cli.main(words_of(*base, "--out", tmp_path / "straight")) == 0
    assert train_in_pieces(tmp_path / "straight", tmp_path / "pieces", rounds=4) >= 1
    assert result(tmp_path / "pieces") == result(tmp_path / "straight")


def test_resuming_before_the_first_checkpoint_starts_again(tmp_path: Path) -> None:
    expected = straight(tmp_path / "straight", *BITS, "--episodes", 10)
    (tmp_path / "run").mkdir()
    shutil.copy(tmp_path / "straight" / "config.json", tmp_path / "run")
    assert pchid.cli.main(words_of("train", "--resume", "--quiet", "--out", tmp_path / "run")) == 0
    assert result(tmp_path / "run") == expected


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException, int], None]:
    """Let the evaluation fail that comes after so many."""

    def fail(error: BaseException, after: int) -> None:
        passed = iter(range(after))

        def evaluate_or_fail(*given: Any) -> Any:
            if next(passed, None) is None:
                raise error
            return evaluate(*given)

        monkeypatch.setattr(pchid.training, "evaluate", evaluate_or_fail)

    return fail


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (KeyboardInterrupt(), "stopped; there was no checkpoint yet, so the same call starts anew"),
        (ValueError("your own step"), "pchid: your own step"),
        (OSError(errno.ENOSPC, "no space"), "make room, then: the same call again"),
    ],
)
def test_before_the_first_checkpoint_the_same_call_may_come_again(
    call: Call, tmp_path: Path, failing: Callable[[BaseException, int], None], error: BaseException, sentence: str
) -> None:
    words = ("train", *BITS, "--episodes", 6, *QUICK, "--out", tmp_path / "run")
    failing(error, 0)
    outcome = call(*words)
    assert (outcome.code, outcome.out) == (1, "")
    assert sentence in outcome.err
    assert list(tmp_path.iterdir()) == []
    failing(error, 100)
    assert call(*words).code == 0
    assert result(tmp_path / "run") == straight(tmp_path / "straight", *BITS, "--episodes", 6)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (KeyboardInterrupt(), "`pchid train --resume --out DIR` goes on from the last checkpoint"),
        (OSError(errno.ENOSPC, "no space"), "make room, then: pchid train --resume --out"),
    ],
)
def test_after_it_the_run_stays_and_goes_on(
    call: Call, tmp_path: Path, failing: Callable[[BaseException, int], None], error: BaseException, sentence: str
) -> None:
    failing(error, 1)
    outcome = call("train", *BITS, "--episodes", 6, *QUICK, "--out", tmp_path / "run")
    assert outcome.code == 1
    assert sentence in outcome.err
    failing(error, 100)
    assert call("train", "--resume", "--quiet", "--out", tmp_path / "run").code == 0
    assert result(tmp_path / "run") == straight(tmp_path / "straight", *BITS, "--episodes", 6)


def test_a_run_that_has_used_up_its_budget_says_so(call: Call, tmp_path: Path) -> None:
    straight(tmp_path / "run", *BITS, "--episodes", 4)
    words = ("train", "--resume", "--out", tmp_path / "run")
    for more in ((), ("--episodes", 3)):
        outcome = call(*words, *more)
        assert (outcome.code, outcome.err) == (0, "")
        nothing = "nothing was left to do: this run has used up its 4 episodes; --episodes with a larger number makes"
        assert nothing in outcome.out
        assert "final success" in outcome.out
    assert call(*words, "--quiet").out == ""
    longer = call(*words, "--episodes", 5)
    assert longer.code == 0
    assert "nothing was left" not in longer.out


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    expected = straight(tmp_path / "run", *BITS, "--episodes", 10)
    for _ in range(2):
        assert pchid.cli.main(words_of("train", "--resume", "--quiet", "--out", tmp_path / "run")) == 0
        assert result(tmp_path / "run") == expected


def test_a_finished_run_is_free_for_the_next(tmp_path: Path) -> None:
    gc.disable()  # the lock must not wait for the garbage collector
    try:
        straight(tmp_path / "run", *BITS, "--episodes", 4)
        assert pchid.cli.main(words_of("train", "--resume", "--quiet", "--out", tmp_path / "run")) == 0
    finally:
        gc.enable()


@slow
def test_a_lengthened_run_that_is_stopped_keeps_its_new_length(tmp_path: Path) -> None:
    straight(tmp_path / "run", *BITS, "--episodes", 6, "--num-envs", 1, *OFTEN)
    command = words_of("train", "--resume", "--episodes", 60, "--quiet", "--out", tmp_path / "run")
    with start(command) as process:
        wait_until(process, lambda: newest(tmp_path / "run") >= 20)
        process.kill()
    assert not (tmp_path / "run" / "summary.json").exists()  # it says that a run is finished, and this one is not
    assert pchid.cli.main(words_of("train", "--resume", "--quiet", "--out", tmp_path / "run")) == 0
    assert result(tmp_path / "run")["summary"]["episodes"] == 60


# Damage.


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; its newest checkpoint is its end, and the one before lies within its last round."""
    out = tmp_path_factory.mktemp("finished") / "run"
    straight(out, *BITS, "--episodes", 12, *OFTEN)
    return out


FILES = ["arrays.safetensors", "state.json", "manifest.json"]


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def altered(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [truncated, altered])
def test_a_damaged_checkpoint_is_named_and_the_one_before_works(
    call: Call, finished: Path, tmp_path: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    before, last = numbers(out / "checkpoint")
    file = out / "checkpoint" / f"{last:07d}" / name
    file.write_bytes(damage(file.read_bytes()))
    refused = call("train", "--resume", "--quiet", "--out", out)
    assert refused.code == 1
    (line,) = refused.err.splitlines()
    assert f"checkpoint {last} is damaged" in line
    assert f"--checkpoint {before}" in line
    assert call("train", "--resume", "--checkpoint", before, "--quiet", "--out", out).code == 0
    assert result(out) == result(finished)
    # And from then on the run is whole again.
    assert call("train", "--resume", "--quiet", "--out", out).code == 0


def test_with_both_damaged_nothing_is_offered(call: Call, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    for folder in (tmp_path / "run" / "checkpoint").iterdir():
        (folder / "state.json").write_text("{}")
    refused = call("train", "--resume", "--quiet", "--out", tmp_path / "run")
    assert refused.code == 1
    assert "damaged" in refused.err
    before, _ = numbers(tmp_path / "run" / "checkpoint")
    again = call("train", "--resume", "--checkpoint", before, "--quiet", "--out", tmp_path / "run")
    assert again.code == 1
    assert "there is none before it" in again.err


# Killed processes.


def start(words: list[str], limit: int | None = None) -> subprocess.Popen[str]:
    def lower() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        assert limit is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, "-m", "pchid.cli", *words],
        cwd=Path(__file__).parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=None if limit is None else lower,
    )


def newest(out: Path) -> int:
    return max(numbers(out / "checkpoint"), default=0) if (out / "checkpoint").exists() else 0


def wait_until(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    while process.poll() is None and not happened():
        time.sleep(0.002)


@slow
@pytest.mark.parametrize(
    ("seed", "words"),
    [
        (1, (*BITS, "--episodes", 180)),
        (2, (*TOWERS, "--test", "interaction", "--episodes", 450)),
        (3, (*TOWERS, "--test", "rnd", "--episodes", 350)),
    ],
)
def test_a_run_killed_at_five_random_moments_ends_alike(tmp_path: Path, seed: int, words: tuple[object, ...]) -> None:
    expected = straight(tmp_path / "straight", *words, *OFTEN)
    if words[0] == TOWERS[0]:
        assert expected["summary"]["K"] == 3
    rng = random.Random(seed)
    out = tmp_path / "killed"
    first = words_of("train", *words, *QUICK, *OFTEN, "--out", out)
    again = words_of("train", "--resume", "--quiet", "--out", out)
    last = newest(tmp_path / "straight")
    moments = sorted(rng.sample(range(1, last - 10), 5))
    killed_alive = 0
    for moment in moments:
        with start(again if (out / "config.json").exists() else first) as process:
            wait_until(process, lambda moment=moment: newest(out) >= moment)  # type: ignore[misc]
            time.sleep(rng.uniform(0.0, 0.05))  # in the middle of whatever it does then
            killed_alive += process.poll() is None
            process.kill()
    assert killed_alive == 5
    assert not (out / "summary.json").exists()
    with start(again) as process:
        _, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert result(out) == expected


@slow
def test_a_run_killed_while_it_starts_can_be_started_or_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = words_of("train", *BITS, "--episodes", 8, *QUICK, "--out", out)
    with start(words) as process:
        wait_until(process, out.exists)
        process.kill()
    resuming = (out / "config.json").exists()
    assert pchid.cli.main(words_of("train", "--resume", "--quiet", "--out", out) if resuming else words) == 0
    assert result(out) == straight(tmp_path / "straight", *BITS, "--episodes", 8)


# Disks without space.


@pytest.fixture
def little_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 150 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=150k", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def can_mount() -> bool:
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


if os.geteuid() == 0 and shutil.which("unshare") and can_mount():

    @slow
    def test_a_full_disk_stops_the_run_and_space_lets_it_go_on(tmp_path: Path, little_disk: Path) -> None:
        words = (*BITS, "--episodes", 120)
        expected = straight(tmp_path / "straight", *words, *OFTEN)
        out = little_disk / "run"
        with start(words_of("train", *words, *QUICK, *OFTEN, "--out", out)) as process:
            _, err = process.communicate()
        assert process.returncode == 1
        (line,) = err.splitlines()
        assert "disk is full" in line
        assert f"--resume --out {out}" in line
        assert newest(out) >= 1
        assert not list(out.rglob("*.tmp"))
        subprocess.run(["mount", "-o", "remount,size=20m", str(little_disk)], check=True)
        assert pchid.cli.main(words_of("train", "--resume", "--quiet", "--out", out)) == 0
        assert result(out) == expected


def test_a_write_that_fails_for_lack_of_space_stops_the_run_in_one_line(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "run"
    (out / "policy").mkdir(parents=True)
    (out / "policy" / ".agent.safetensors.tmp").symlink_to("/dev/full")
    words = ("train", *BITS, "--episodes", 10, *QUICK)
    outcome = call(*words, "--out", out)
    assert outcome.code == 1
    (line,) = outcome.err.splitlines()
    assert "disk is full" in line
    assert f"pchid train --resume --out {out}" in line
    assert call("train", "--resume", "--quiet", "--out", out).code == 0
    assert result(out) == straight(tmp_path / "straight", *BITS, "--episodes", 10)


@slow
def test_a_file_that_may_not_grow_stops_the_run_in_one_line(tmp_path: Path) -> None:
    words = (*BITS, "--episodes", 120)
    expected = straight(tmp_path / "straight", *words, *OFTEN)
    out = tmp_path / "run"
    with start(words_of("train", *words, *QUICK, *OFTEN, "--out", out), limit=40_000) as process:
        _, err = process.communicate()
    assert process.returncode == 1
    (line,) = err.splitlines()
    assert os.strerror(errno.EFBIG) in line
    assert newest(out) >= 1
    assert not list(out.rglob("*.tmp"))
    assert pchid.cli.main(words_of("train", "--resume", "--quiet", "--out", out)) == 0
    assert result(out) == expected
