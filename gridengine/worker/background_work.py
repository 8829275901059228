"""What calls leave running in their process: threads, and children of `multiprocessing`, that are
not daemons.

A process of `multiprocessing` that is about to end waits for them, and so does a runner.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import sys
import threading
from collections.abc import Iterator

SAY_SECONDS = 5.0
"""After how long a job says what it waits for."""


def left() -> Iterator[str]:
    """Yield what a process waits for before it ends, for people. Nothing is reaped for it: another
    thread may be waiting.
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
    """Return whether something is left that a process waits for before it ends; so many daemons
    are our own.
    """
    # Those beside the main thread; `threading.active_count` is paid for with a lock, each call.
    if _thread._count() > own_threads:
        main = threading.main_thread()
        if any(not thread.daemon and thread is not main for thread in threading.enumerate()):
            return True
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is not None and any(
        not child.daemon for child in multiprocessing.active_children()
    )


def is_left(own_threads: int = 0) -> bool:
    """Return whether this process is to end by `finish`, and not at once: something is running, or
    `multiprocessing` has to give back what it holds in the system's name (semaphores, folders).
    """
    util = sys.modules.get("multiprocessing.util")
    return bool(util is not None and util._finalizer_registry) or is_running(own_threads)


def finish(what: str = "") -> None:
    """Wait for all of it, and have `multiprocessing` give back what it holds, as its
    `process.BaseProcess._bootstrap` does. That takes as long as it takes (a pool of loky's has its
    processes for minutes): after a while standard error is told, of `what`, if that is said.

    After that this process can only end: executors that have finished take no more work.
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
                f"{what} waits for what its function left running: {waited_for}\n"
                "  try: shut that down before the function returns",
                file=sys.stderr,
                flush=True,
            )
