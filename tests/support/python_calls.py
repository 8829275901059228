"""Counts the Python calls that one call takes in the caller, the I/O thread and the runner.

Run as a script it prints a JSON object for each way to call: the least number of Python calls by
thread; and of a call that took the least, how many modules of the package it ran through, and how
often it came back to one that it had left (`ways_back`). With `--each` it prints how often each
function is called, on average.
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
Round: TypeAlias = list[tuple[str, str]]
"""The Python calls of one warm call: the thread, and the function."""


class Profile:
    """Counts the calls of each function, by thread, while it is `on`."""

    def __init__(self) -> None:
        self.on = False
        self.calls: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if self.on and event == "call":
            self.calls.append((thread_name(), name_of(frame.f_code)))


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


in_runner: list[list[str]] = []
"""In a runner: what has been called there, up to the first call of `abs` and between each two."""


def profile(frame: FrameType, event: str, arg: object) -> None:
    """Count in a runner."""
    if event == "call":
        in_runner[-1].append(name_of(frame.f_code))
    elif event == "c_call" and arg is abs:
        in_runner.append([])


def begin(value: int) -> int:
    """Count in this runner from here on; return which it is."""
    sys.setprofile(None)
    in_runner[:] = [[]]
    sys.setprofile(profile)
    return os.getpid()


def end(value: int) -> tuple[int, list[list[str]]]:
    """Count no more in this runner; return which it is and what was counted for each round."""
    sys.setprofile(None)
    return os.getpid(), [*in_runner[1:-1], in_runner[-2]]


def measure(way: Way) -> list[Round]:
    """Return the Python calls of each round of one warm call, in their order within each thread."""
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
        rounds.append(here.calls)
        here.calls = []
    sys.setprofile(None)
    last, answer = way(end, 0)
    if last != runner:
        raise RuntimeError("one runner, the one that ended last, was to run all calls")
    for one, counted in zip(rounds, answer, strict=True):
        one += [("runner", name) for name in counted]
    return rounds


CURRENT: list[Profile] = []
"""What counts now, for threads that were started before."""


def relay(frame: FrameType, event: str, arg: object) -> None:
    """Count in a thread that was started before."""
    if CURRENT:
        CURRENT[0](frame, event, arg)


def least(rounds: list[Round]) -> dict[str, int]:
    """Return the least number of calls in each thread: now and then the I/O thread has more to do
    than the call, and the more often the slower the machine is.
    """
    return {
        thread: min(sum(where == thread for where, _ in one) for one in rounds)
        for thread in THREADS
    }


def modules_of(one: Round) -> dict[str, int]:
    """Return how many modules of the package a round ran through, and how often it came back to one
    that it had left.
    """
    found, entered = set[str](), 0
    for thread in THREADS:
        before = ""
        for where, name in one:
            module = name.partition(":")[0]
            if where == thread and "/" in module:
                entered += module != before
                found.add(module)
                before = module
    return {"modules": len(found), "ways_back": entered - len(found)}


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
            quickest = min(rounds, key=len)
            print(json.dumps({name: {**least(rounds), **modules_of(quickest)}}))
            if "--each" in sys.argv:
                calls = collections.Counter(call for one in rounds for call in one)
                for (thread, function), count in calls.most_common():
                    print(f"{count / ROUNDS:8.2f} {thread:12} {function}")


if __name__ == "__main__":
    from python_calls import main as importable  # so that runners find the functions by name

    importable()
