"""Find out which event loop runs in this thread, without importing one: code that runs a loop has
imported it.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any


def in_trio() -> bool:
    """Return whether this code runs in a task of trio."""
    trio: Any = sys.modules.get("trio")
    if trio is not None:
        with contextlib.suppress(RuntimeError):
            trio.lowlevel.current_task()
            return True
    return False


def in_event_loop() -> bool:
    """Return whether this code runs in a task of asyncio or trio."""
    asyncio: Any = sys.modules.get("asyncio")
    return in_trio() or (asyncio is not None and asyncio._get_running_loop() is not None)
