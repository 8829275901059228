"""Ctrl-C: for tests that are started without it, as by `nohup make test &`; at chosen points."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

from gridengine.errors import is_own


def take_interrupts() -> None:
    """Have SIGINT its default effect, in this process and in all that it starts. A process that was
    started with SIGINT ignored would hand that on to each script of the tests.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def at_each_point(act: Callable[[], object]) -> Iterator[int]:
    """Call `act` again and again, with a Ctrl-C at one point after the other; yield after each.

    A point is where Python looks for signals: a Python function begins, or a C function has
    returned. Only the points of the package count: at some of the standard library's, a Ctrl-C
    leaves a lock of the process taken.
    """
    return itertools.takewhile(lambda number: _is_interrupted(act, number), itertools.count(1))


def _is_interrupted(act: Callable[[], object], number: int) -> bool:
    """Call `act` with a Ctrl-C at the point of this number; return whether it has so many."""
    points = itertools.count(1)

    def look(frame: FrameType, event: str, arg: object) -> None:
        caller = frame.f_back if event == "call" else frame
        is_point = event in ("call", "c_return") and (_is_own(frame) or _is_own(caller))
        if is_point and next(points) == number:
            sys.setprofile(None)
            raise KeyboardInterrupt

    try:
        sys.setprofile(look)
        act()
        return False
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)


def _is_own(frame: FrameType | None) -> bool:
    return frame is not None and is_own(frame.f_code.co_filename)
