"""A few threads for many simulators: MuJoCo releases the GIL while it steps, so slots can be stepped side by side.

In: a function and the items to call it with. Out: its results, in order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

from pchid.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Threads:
    """The calling thread and its helpers, which take one item after the other until none is left."""

    def __init__(self, count: int | None = None) -> None:
        """`count` threads in all, by default as many as `default_threads` says; they start when they are needed."""
        if count is not None and count < 1:
            raise InputError(f"threads must be at least 1, got {count}")
        self.count = count or default_threads()
        self._pool: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """`[function(item) for item in items]`, side by side."""
        helpers = min(self.count, len(items)) - 1
        if helpers < 1:
            return [function(item) for item in items]
        results: list[Any] = [None] * len(items)
        work = iter(range(len(items)))  # shared: under the GIL, each thread takes the next one

        def labour() -> None:
            for index in work:
                results[index] = function(items[index])

        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count - 1, "simulator")
        futures = [self._pool.submit(labour) for _ in range(helpers)]
        try:
            labour()
        finally:
            wait(futures)  # also after an error: nobody may go on with a simulator that is still being stepped
        for future in futures:
            future.result()
        return results

    def close(self) -> None:
        """End the helpers."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def default_threads() -> int:
    """The cores that this process may use, or OMP_NUM_THREADS where that says fewer: other runs may want the rest."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    said = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(said)) if said.isdecimal() and int(said) > 0 else cores
