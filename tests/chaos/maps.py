"""Calls that need nothing of each other: half of them by one `map`, the others by one
`imap_unordered` of another thread, by the same workers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from call_log import LARGE, RETRIES, Tally, raised_by, write

import gridengine


def work(index: int, seconds: float, path: str) -> tuple[int, Any]:
    """Say that it begins, take its time, say that it ends; some results are large."""
    write(path, "begun", index)
    if seconds:
        time.sleep(seconds)
    write(path, "ended", index)
    return index, result_of(index)


def result_of(index: int) -> Any:
    """Return what the call of this index is to give."""
    return bytes([index % 256]) * LARGE if index % 500 == 0 else index * index


def make_calls(
    scheduler: Any, calls: list[tuple[int, float, str]], tally: Tally, seed: int
) -> None:
    """Make them all, and check each result."""
    half = len(calls) // 2
    tally.expected.update(index for index, *_ in calls)

    def take(results: Iterable[tuple[int, Any]]) -> None:
        for index, result in results:
            tally.given[index] += 1
            if result != result_of(index):
                tally.wrong.append(f"call {index} returned {result!r:.80}")

    def one_by_one() -> None:
        with gridengine.imap_unordered(
            work, *zip(*calls[half:], strict=True), scheduler=scheduler, retries=RETRIES
        ) as results:
            take(results)

    failed: list[BaseException] = []
    other = threading.Thread(target=lambda: failed.extend(raised_by(one_by_one)))
    other.start()
    take(
        gridengine.starmap(work, calls[:half], scheduler=scheduler, retries=RETRIES, progress=False)
    )
    other.join()
    if failed:
        raise failed[0]
