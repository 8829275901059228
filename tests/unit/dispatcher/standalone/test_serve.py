"""What a dispatcher that stands on its own tells of itself."""

from __future__ import annotations

import platform
from types import SimpleNamespace
from typing import Any

from gridengine.dispatcher.standalone.serve import _description


def test_status_tells_the_python_of_dispatcher_and_workers() -> None:
    names = ["workers", "waiting", "calls_running", "done", "failed", "cancelled"]
    counts = dict.fromkeys(names, 0)
    dispatcher: Any = SimpleNamespace(snapshot=lambda: SimpleNamespace(clients={}, **counts))
    listener: Any = SimpleNamespace(seen=list, left=list)
    assert _description(dispatcher, listener)["python"] == platform.python_version()
