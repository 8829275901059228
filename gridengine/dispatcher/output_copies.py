"""Copies of what is written to `sys.stdout` and `sys.stderr` while a call runs in this process."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

_STREAMS = threading.RLock()


@contextlib.contextmanager
def copied(wanted: bool) -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Keep a copy of what is written to `sys.stdout` and `sys.stderr` meanwhile; it still goes
    where it went.
    """
    copies = io.StringIO(), io.StringIO()
    if not wanted:
        yield copies
        return
    with _copying("stdout", copies[0]), _copying("stderr", copies[1]):
        yield copies


@contextlib.contextmanager
def _copying(name: str, copy: io.StringIO) -> Iterator[None]:
    """Copy what is written to a stream of `sys` meanwhile. Calls of several threads may end in any
    order.
    """
    with _STREAMS:
        present = getattr(sys, name)
        tee = present if isinstance(present, _Tee) else _Tee(present)
        tee.copies.append(copy)
        setattr(sys, name, tee)
    try:
        yield
    finally:
        with _STREAMS:
            tee.copies.remove(copy)
            setattr(sys, name, tee if tee.copies else tee.stream)


class _Tee:
    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.copies: list[io.StringIO] = []

    def write(self, text: str) -> int:
        """Write to all."""
        for copy in tuple(self.copies):
            copy.write(text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
