"""A few threads for many simulators."""

from __future__ import annotations

import os
import threading
import time

import pytest

from pchid.envs.parallel import Threads
from pchid.errors import InputError


class BrokenError(Exception):
    """Raised by the work itself."""


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("items", [0, 1, 2, 7, 100])
def test_results_come_in_the_order_of_the_items(count: int, items: int) -> None:
    threads = Threads(count)
    for _ in range(3):
        assert threads.map(lambda item: item * item, list(range(items))) == [item * item for item in range(items)]
    threads.close()


def test_they_do_when_the_first_items_take_longest() -> None:
    def work(item: int) -> int:
        time.sleep(0.02 if item < 2 else 0.0)
        return -item

    assert Threads(2).map(work, list(range(10))) == [-item for item in range(10)]


@pytest.mark.parametrize("count", [2, 3])
def test_the_threads_work_side_by_side_and_the_caller_is_one_of_them(count: int) -> None:
    barrier = threading.Barrier(count, timeout=30)  # which nobody passes alone

    def work(_: int) -> int:
        barrier.wait()
        return threading.get_ident()

    found = Threads(count).map(work, list(range(count)))
    assert len(set(found)) == count
    assert threading.get_ident() in found


def test_one_thread_is_the_caller_alone() -> None:
    assert Threads(1).map(lambda _: threading.get_ident(), range(5)) == [threading.get_ident()] * 5


def test_every_item_is_worked_on_once() -> None:
    done: list[int] = []
    Threads(4).map(done.append, list(range(1000)))
    assert sorted(done) == list(range(1000))


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("in_caller", [True, False])
def test_an_exception_reaches_the_caller_and_the_next_call_works(count: int, in_caller: bool) -> None:
    threads = Threads(count)
    barrier = threading.Barrier(count, timeout=30)
    caller = threading.get_ident()

    def work(item: int) -> int:
        barrier.wait()  # each thread has one item
        if (threading.get_ident() == caller) == (in_caller or count == 1):
            raise BrokenError(f"item {item}")
        return item

    for _ in range(2):
        with pytest.raises(BrokenError, match="item"):
            threads.map(work, list(range(count)))
        assert threads.map(str, [5, 6, 7]) == ["5", "6", "7"]


@pytest.mark.parametrize("broken", ["caller", "simulator_0", "simulator_1"])
def test_nothing_goes_on_behind_an_exception(broken: str) -> None:
    """Whoever catches it may use the simulators again, so no thread may still be stepping one."""
    caller = threading.get_ident()
    barrier = threading.Barrier(3, timeout=30)
    finished: list[str] = []

    def work(_: int) -> None:
        barrier.wait()  # each thread has one item
        name = "caller" if threading.get_ident() == caller else threading.current_thread().name
        if name == broken:
            raise BrokenError
        time.sleep(0.0 if name == "caller" else 0.2)
        finished.append(name)

    with pytest.raises(BrokenError):
        Threads(3).map(work, list(range(3)))
    assert sorted(finished) == sorted({"caller", "simulator_0", "simulator_1"} - {broken})


def test_closed_threads_end_and_start_again_when_they_are_needed() -> None:
    threads = Threads(3)
    barrier = threading.Barrier(3, timeout=30)

    def work(_: int) -> threading.Thread:
        barrier.wait()
        return threading.current_thread()

    for _ in range(2):
        helpers = {*threads.map(work, list(range(3)))} - {threading.current_thread()}
        assert len(helpers) == 2
        threads.close()
        assert not any(helper.is_alive() for helper in helpers)
    threads.close()


@pytest.mark.parametrize(("said", "expected"), [("1", 1), ("", None), ("0", None), ("many", None), ("4096", None)])
def test_by_default_there_are_as_many_as_cores_or_fewer_if_that_is_said(
    monkeypatch: pytest.MonkeyPatch, said: str, expected: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    cores = len(os.sched_getaffinity(0))
    assert Threads().count == (cores if expected is None else expected)


@pytest.mark.parametrize("count", [0, -1])
def test_fewer_than_one_are_refused(count: int) -> None:
    with pytest.raises(InputError, match=f"threads must be at least 1, got {count}"):
        Threads(count)
