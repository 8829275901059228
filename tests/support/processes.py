"""Commands as processes, and what they say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any


def completed(
    command: Sequence[str | os.PathLike[str]],
    *,
    check: bool = False,
    timeout: float = 150,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever its status; return its output and errors as text."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=check, **options
    )
