"""Read keys at a terminal, one by one."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import termios
import tty
from typing import Any

_ARROWS = {"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down"}

_LONG = "up", "down", "click"
_SEQUENCE = re.compile(r"\x1b[\[O][0-?]*[ -/]*[@-~]|.", re.DOTALL)
"""A key as terminals send it: a control sequence (ECMA-48, 5.4), or a character."""


_MOUSE = re.compile(r"\x1b\[<(\d+);(\d+);(\d+)M")
"""A pressed mouse button and its position (xterm's control sequences, SGR 1006)."""
_WHEEL = {"64": "up", "65": "down"}
_MOUSE_ON, _MOUSE_OFF = b"\x1b[?1000h\x1b[?1006h", b"\x1b[?1006l\x1b[?1000l"


def keys_in(typed: str) -> list[str]:
    """Return the keys in a terminal's input: characters, and `up` and `down`, which the mouse's
    wheel sends too. The first mouse button gives `click X Y`, from 0. Other keys are ignored.
    """
    keys = map(_key, _SEQUENCE.findall(typed))
    return [key for key in keys if len(key) == 1 or key.partition(" ")[0] in _LONG]


def _key(typed: str) -> str:
    mouse = _MOUSE.fullmatch(typed)
    if mouse is None:
        return _ARROWS.get(typed, typed)
    button, x, y = mouse.groups()
    return f"click {int(x) - 1} {int(y) - 1}" if button == "0" else _WHEEL.get(button, "")


class TerminalKeys:
    """Within the `with`, the terminal sends each key and click at once, without echo.

    Args:
        woken: a socket that becomes readable to end a wait, when a signal has come, for example.
    """

    def __init__(self, fd: int, woken: socket.socket) -> None:
        self._fd = fd
        self._woken = woken
        self._before: list[Any] = []

    def __enter__(self) -> TerminalKeys:
        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd)
        os.write(self._fd, _MOUSE_ON)
        return self

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            os.write(self._fd, _MOUSE_OFF)
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def wait(self) -> list[str]:
        """Wait for keys and return them as they come; arrows are `up` and `down`. Return none when
        woken.
        """
        ready, _, _ = select.select([self._fd, self._woken.fileno()], [], [])
        if self._woken.fileno() in ready:
            self._woken.recv(4096)
        if self._fd not in ready:
            return []
        typed = os.read(self._fd, 1024).decode(errors="replace")
        if not typed:  # the terminal is gone
            return ["q"]
        return keys_in(typed)
