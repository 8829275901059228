"""Ctrl-C: for tests that are started without it, as by `nohup make test &`; at chosen points."""

from __future__ import annotations

import functools
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
    """Call `act` again and again, with a Ctrl-C at one point after the other; yield after each that
    has come out of it.

    A point is where Python looks for signals: a Python function begins, or a C function has
    returned. Only the points of the package count: at some of the standard library's, a Ctrl-C
    leaves a lock of the process taken.
    """
    for number in itertools.count(1):
        points = iter(range(number, 0, -1))
        try:
            sys.setprofile(functools.partial(_look, points))
            act()
        except KeyboardInterrupt:
            yield number
        finally:
            sys.setprofile(None)
        if next(points, None) is not None:  # it has fewer
            return


def _look(points: Iterator[int], frame: FrameType, event: str, arg: object) -> None:
    """Raise at the last of these points."""
    caller = frame.f_back if event == "call" else frame
    is_point = event in ("call", "c_return") and (_is_own(frame) or _is_own(caller))
    if is_point and next(points, 0) == 1:
        sys.setprofile(None)
        raise KeyboardInterrupt


def _is_own(frame: FrameType | None) -> bool:
    return frame is not None and is_own(frame.f_code.co_filename)
