"""What a dispatcher does as OpenMetrics text, in a file for who collects such, a node exporter,
say.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gridengine.dispatcher.core.status import Status
from gridengine.errors import ConfigurationError

log = logging.getLogger("gridengine")

FIRST_SECONDS, METRICS_SECONDS = 1.0, 10.0
"""After how long the file is written first, and how long there is between two writings of it."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics(status: Status, run_id: str, name: str) -> str:
    """Return the text (OpenMetrics 1.0)."""
    of = f'run="{_quoted(run_id)}",name="{_quoted(name)}"'
    ended = {f'{of},outcome="done"': status.done, f'{of},outcome="failed"': status.failed}
    left = {f'{of},state="waiting"': status.waiting, f'{of},state="running"': status.running}
    workers = {f'{of},state="{state}"': count for state, count in status.statuses.items()}
    waited = max((one.waited_seconds for one in status.launches), default=0.0)
    memory = {f'{of},function="{_quoted(one.name)}"': one.peak_memory for one in status.functions}
    lines = [
        *_family("calls", "counter", "Calls that have ended, by how.", ended),
        *_family("retries", "counter", "Attempts followed by another.", {of: status.retried}),
        *_family("open_calls", "gauge", "Calls that have not ended.", left),
        *_family("workers", "gauge", "Workers by what they do.", workers),
        *_family("lost_workers", "counter", "Lost workers.", {of: status.lost_workers}),
        *_family("queue_wait_seconds", "gauge", _WAITED, {of: waited}),
        *_family("call_seconds", "summary", "How long calls took.", _seconds(status, of)),
        *_family("peak_memory_bytes", "gauge", "Of one call's process.", memory),
        "# EOF",
    ]
    return "\n".join(lines) + "\n"


_WAITED = "For how long calls have waited while there was no worker for them."


def _quoted(words: str) -> str:
    return words.translate(_ESCAPES)


def _family(name: str, kind: str, text: str, samples: Mapping[str, float]) -> Iterator[str]:
    name = f"gridengine_{name}"
    yield f"# TYPE {name} {kind}"
    yield f"# HELP {name} {text}"
    suffix = "_total" if kind == "counter" else ""
    for labels, value in samples.items():
        if kind == "summary":
            labels, _, suffix = labels.rpartition("}")
        yield f"{name}{suffix}{{{labels}}} {value}"


def _seconds(status: Status, of: str) -> dict[str, float]:
    """Return how many calls of each function took how long together; behind `}` is the suffix."""
    found: dict[str, float] = {}
    for one in status.functions:
        labels = f'{of},function="{_quoted(one.name)}"'
        if one.mean_seconds is not None:
            count = one.done + one.failed
            found[f"{labels}}}_count"] = count
            found[f"{labels}}}_sum"] = count * one.mean_seconds
    return found


class MetricsFile:
    """Writes the text to a file, whole or not at all; the first time that it cannot is told.

    Args:
        path: of the file; `{pid}` in it is this process's id.
    """

    def __init__(self, path: str, run_id: str, name: str) -> None:
        self._path = Path(path.replace("{pid}", str(os.getpid()))).expanduser()
        self._run_id, self._name = run_id, name
        self._told = False
        self._writing = threading.Lock()
        self._closed = threading.Event()

    def keep(self, look: Callable[[], Status]) -> None:
        """Have a thread of its own write what a dispatcher does, again and again until this is
        closed. `look` returns that, or raises a ConfigurationError when it ends.
        """
        threading.Thread(
            target=self._keep, args=(look,), name="gridengine-metrics", daemon=True
        ).start()

    def _keep(self, look: Callable[[], Status]) -> None:
        seconds = FIRST_SECONDS
        while not self._closed.wait(seconds):
            try:
                self.write(look())
            except ConfigurationError:
                return
            seconds = METRICS_SECONDS

    def close(self, status: Status) -> None:
        """Write what a dispatcher has done in all, and nothing after that."""
        with self._writing:
            self._write(status)
            self._closed.set()

    def write(self, status: Status) -> None:
        """Write what a dispatcher does now, unless this is closed."""
        with self._writing:
            if not self._closed.is_set():
                self._write(status)

    def _write(self, status: Status) -> None:
        new = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            new.write_text(metrics(status, self._run_id, self._name), encoding="utf-8")
            new.replace(self._path)
        except OSError as error:
            if not self._told:
                log.warning("the metrics cannot be written to %s: %s", self._path, error.strerror)
            self._told = True
