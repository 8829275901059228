"""Reset signals to the state of a fresh process. Signals that a script, a shell or a batch system
has blocked or ignored stay so across fork and exec.
"""

from __future__ import annotations

import signal

_PYTHON_IGNORES = {signal.SIGPIPE, signal.SIGXFSZ}
_UNCATCHABLE = {signal.SIGKILL, signal.SIGSTOP}


def restore_dispositions() -> None:
    """Give each ignored signal its default action, except those that Python itself ignores.

    While SIGCHLD is ignored no child can be waited for (wait(2)), and a process that ignores
    SIGTERM runs on for the whole grace time.
    """
    for number in signal.valid_signals() - _PYTHON_IGNORES - _UNCATCHABLE:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def unblock() -> None:
    """Unblock all signals. Signals that arrived while they were blocked are delivered now, so set
    handlers before.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
