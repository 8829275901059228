"""The file with a dispatcher's metrics, OpenMetrics text for a collector (a node exporter, say)."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gridengine.errors import ConfigurationError
from gridengine.status.rows import Status

log = logging.getLogger("gridengine")
FIRST_SECONDS, METRICS_SECONDS = 1.0, 10.0
"""The file is written first after `FIRST_SECONDS`, and then every `METRICS_SECONDS`."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics(status: Status, run_id: str, name: str) -> str:
    """Return a status as OpenMetrics 1.0 text."""
    of = f'run="{_quoted(run_id)}",name="{_quoted(name)}"'
    ends = {"done": status.done, "failed": status.failed, "cancelled": status.cancelled}
    ended = {f'{of},outcome="{how}"': count for how, count in ends.items()}
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
    """Return the number and the total duration of each function's calls. The part of a key after
    `}` is the suffix of the metric's name.
    """
    found: dict[str, float] = {}
    for one in status.functions:
        labels = f'{of},function="{_quoted(one.name)}"'
        if one.mean_seconds is not None:
            count = one.ended
            found[f"{labels}}}_count"] = count
            found[f"{labels}}}_sum"] = count * one.mean_seconds
    return found


class MetricsFile:
    """Writes metrics to a file, whole or not at all. Only the first failure to write is logged.

    Args:
        path: of the file; `{pid}` in it stands for this process's id.
    """

    def __init__(self, path: str, run_id: str, name: str) -> None:
        self._path = Path(path.replace("{pid}", str(os.getpid()))).expanduser()
        self._run_id, self._name = run_id, name
        self._told = False
        self._writing = threading.RLock()
        self._closed = threading.Event()

    def start(self, look: Callable[[], Status]) -> None:
        """Write the metrics regularly, in a thread of their own, until this is closed. `look`
        returns the status, or raises a ConfigurationError when the dispatcher ends.
        """
        threading.Thread(
            target=self._write_regularly, args=(look,), name="gridengine-metrics", daemon=True
        ).start()

    def _write_regularly(self, look: Callable[[], Status]) -> None:
        seconds = FIRST_SECONDS
        while not self._closed.wait(seconds):
            try:
                self.write(look())
            except ConfigurationError:
                return
            seconds = METRICS_SECONDS

    def close(self, status: Status) -> None:
        """Write the dispatcher's final metrics, and nothing after them."""
        with self._writing:
            self.write(status)
            self._closed.set()

    def write(self, status: Status) -> None:
        """Write metrics, unless this is closed."""
        new = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with self._writing:
            if self._closed.is_set():
                return
            try:
                new.write_text(metrics(status, self._run_id, self._name), encoding="utf-8")
                new.replace(self._path)
            except OSError as error:
                if not self._told:
                    words = "the metrics cannot be written to %s: %s"
                    log.warning(words, self._path, error.strerror)
                self._told = True
