"""Signals as a fresh process has them: what a script, a shell or a batch system has blocked or
ignored is passed on by fork and exec.
"""

from __future__ import annotations

import signal

_PYTHON_IGNORES = {signal.SIGPIPE, signal.SIGXFSZ}
_UNCATCHABLE = {signal.SIGKILL, signal.SIGSTOP}


def restore_dispositions() -> None:
    """Give each signal that is ignored its default action, but for those that Python itself
    ignores.

    While SIGCHLD is ignored no child can be waited for (wait(2)), and one that ignores SIGTERM runs
    on for the whole grace time.
    """
    for number in signal.valid_signals() - _PYTHON_IGNORES - _UNCATCHABLE:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def unblock() -> None:
    """Have no signal blocked. What came while it was blocked comes now: so handlers are set
    before.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
