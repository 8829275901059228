"""The last lines that the log of a run has told, for who watches it."""

from __future__ import annotations

import time
from collections import deque

MOST_LINES = 50


class RecentLines:
    """`lines` are the last, each with when it was told, in monotonic seconds, and whether it was a
    warning.
    """

    def __init__(self) -> None:
        self.lines: deque[tuple[float, str, bool]] = deque(maxlen=MOST_LINES)

    def add(self, text: str, *, warning: bool = False) -> None:
        """Add a line."""
        self.lines.append((time.monotonic(), text, warning))
