"""Counts the Python calls that one call takes in the caller, the I/O thread and the runner.

Run as a script it prints a JSON object for each way to call: the least number of Python calls by
thread. With `--each` it prints how often each function is called, on average.
"""

from __future__ import annotations

import collections
import functools
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

import gridengine

ROUNDS = 100
PLACE = Path(gridengine.__file__).parent
THREADS = "caller", "I/O thread", "runner"

Function: TypeAlias = Callable[[int], Any]
Way: TypeAlias = Callable[[Function, int], Any]


class Profile:
    """Counts the calls of each function, by thread, while it is `on`."""

    def __init__(self) -> None:
        self.on = False
        self.calls = collections.Counter[tuple[str, str]]()

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if self.on and event == "call":
            self.calls[thread_name(), name_of(frame.f_code)] += 1


def thread_name() -> str:
    """Return which of the threads this is; empty for one that is not in the way of a call."""
    name = threading.current_thread().name
    if name == "MainThread":
        return "caller"
    return "I/O thread" if name.startswith("gridengine-2") else ""


@functools.cache  # the slower the counting is, the more of what time alone brings is counted
def name_of(code: CodeType) -> str:
    """Return where a function is defined and its name."""
    path = Path(code.co_filename)
    place = path.relative_to(PLACE) if path.is_relative_to(PLACE) else path.name
    return f"{place}:{code.co_qualname}"


in_runner: list[collections.Counter[str]] = []
"""In a runner: what has been called there, up to the first call of `abs` and between each two."""


def profile(frame: FrameType, event: str, arg: object) -> None:
    """Count in a runner."""
    if event == "call":
        in_runner[-1][name_of(frame.f_code)] += 1
    elif event == "c_call" and arg is abs:
        in_runner.append(collections.Counter())


def begin(value: int) -> int:
    """Count in this runner from here on; return which it is."""
    sys.setprofile(None)
    in_runner[:] = [collections.Counter()]
    sys.setprofile(profile)
    return os.getpid()


def end(value: int) -> tuple[int, list[collections.Counter[str]]]:
    """Count no more in this runner; return which it is and what was counted for each round."""
    sys.setprofile(None)
    return os.getpid(), [*in_runner[1:-1], in_runner[-2]]


def measure(way: Way) -> list[collections.Counter[tuple[str, str]]]:
    """Return how often each function was called in each round of one warm call."""
    here, rounds = Profile(), []
    sys.setprofile(here)
    CURRENT[:] = [here]
    for value in range(20):
        way(abs, value)
    runner = way(begin, 0)
    for value in range(ROUNDS):
        here.on = True
        way(abs, value)
        here.on = False
        rounds.append(here.calls.copy())
        here.calls.clear()
    sys.setprofile(None)
    last, answer = way(end, 0)
    if last != runner:
        raise RuntimeError("one runner, the one that ended last, was to run all calls")
    for one, counted in zip(rounds, answer, strict=True):
        one.update({("runner", name): count for name, count in counted.items()})
    return rounds


CURRENT: list[Profile] = []
"""What counts now, for threads that were started before."""


def relay(frame: FrameType, event: str, arg: object) -> None:
    """Count in a thread that was started before."""
    if CURRENT:
        CURRENT[0](frame, event, arg)


def least(rounds: list[collections.Counter[tuple[str, str]]]) -> dict[str, float]:
    """Return the least number of calls in each thread: now and then the I/O thread has more to do
    than the call, and the more often the slower the machine is.
    """
    return {
        thread: min(
            sum(count for (where, _), count in one.items() if where == thread) for one in rounds
        )
        for thread in THREADS
    }


def main() -> None:
    """Measure, and print."""
    threading.setprofile(relay)
    with (
        gridengine.ProcessScheduler(2) as scheduler,
        gridengine.Executor(scheduler=scheduler) as executor,
    ):
        ways: dict[str, Way] = {
            "map": lambda f, value: gridengine.map(f, [value], scheduler=scheduler)[0],
            "submit": lambda f, value: executor.submit(f, value).result(),
        }
        for name, way in ways.items():
            rounds = measure(way)
            print(json.dumps({name: least(rounds)}))
            if "--each" in sys.argv:
                calls = sum(rounds, collections.Counter[tuple[str, str]]())
                for (thread, function), count in calls.most_common():
                    print(f"{count / ROUNDS:8.2f} {thread:12} {function}")


if __name__ == "__main__":
    from python_calls import main as importable  # so that runners find the functions by name

    importable()
