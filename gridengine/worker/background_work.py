"""The threads and children of `multiprocessing` that calls leave running, other than daemons.

A process of `multiprocessing` waits for them before it ends, and so does a runner: for a job's
without a limit, for others' during the grace time when the worker ends. The standard library waits
for all of them, and hangs at the end on a library's service thread.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import sys
import threading
from collections.abc import Iterator

SAY_SECONDS = 5.0
"""After this time a job says what it waits for."""


def left() -> Iterator[str]:
    """Yield names, for people, of the threads and processes that this process waits for. No process
    is reaped: another thread may be waiting for it.
    """
    multiprocessing = sys.modules.get("multiprocessing.process")
    for child in list(getattr(multiprocessing, "_children", ())):
        if not child.daemon and child.pid is not None and _is_alive(child.pid):
            yield f"the process {child.name} ({child.pid})"
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            yield f"the thread {thread.name}"


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def is_running(own_threads: int = 0) -> bool:
    """Return whether threads or processes are left that this process waits for before it ends. This
    many daemon threads are our own.
    """
    # Counts the threads beside the main one. `threading.active_count` takes a lock each time.
    if _thread._count() > own_threads:
        main = threading.main_thread()
        if any(not thread.daemon and thread is not main for thread in threading.enumerate()):
            return True
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is not None and any(
        not child.daemon for child in multiprocessing.active_children()
    )


def finish(what: str = "") -> None:
    """Wait for all threads and processes that are left, as
    `multiprocessing.process.BaseProcess._bootstrap` does, without a limit: loky's pool keeps its
    processes for minutes. After a while, standard error says what `what` (if given) waits for.

    Afterwards this process can only end: executors that have shut down take no more work.
    """
    if what:
        teller = threading.Timer(SAY_SECONDS, _tell, (what,))
        teller.daemon = True
        teller.start()
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._exit_function()
    threading._shutdown()  # type: ignore[attr-defined]


def _tell(what: str) -> None:
    waited_for = ", ".join(left())
    if waited_for:
        with contextlib.suppress(Exception):  # user code may have closed or replaced it
            print(
                f"{what} waits for processes or threads that its function left running: "
                f"{waited_for}\n  try: end them before the function returns",
                file=sys.stderr,
                flush=True,
            )
