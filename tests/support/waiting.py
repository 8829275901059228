"""Waiting for what comes about by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """Return what the condition gives when that is true; fail when it is not in time."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.02)
    return result
