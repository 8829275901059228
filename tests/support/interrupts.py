"""Ctrl-C, for tests that are started without it, as by `nohup make test &`."""

from __future__ import annotations

import signal


def take_interrupts() -> None:
    """Have SIGINT its default effect, in this process and in all that it starts. A process that was
    started with SIGINT ignored would hand that on to each script of the tests.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
