"""What calls leave running in their process: threads, and children of `multiprocessing`, that are
not daemons.

A process of `multiprocessing` that is about to end waits for them, and so does a runner.
"""

from __future__ import annotations

import _thread
import sys
import threading


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


def finish() -> None:
    """Wait for all of it, as `multiprocessing.process.BaseProcess._bootstrap` does.

    After that this process can only end: executors that have finished take no more work.
    """
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._exit_function()
    threading._shutdown()  # type: ignore[attr-defined]
