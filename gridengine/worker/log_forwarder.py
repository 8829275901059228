"""Send the log records and warnings of calls to their caller, if the caller wants them."""

from __future__ import annotations

import logging
import os
import socket
import traceback
import warnings
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import msgspec

from gridengine.wire.messages import CallerState, LoggedRecord, Pushed
from gridengine.worker.result_buffer import ResultBuffer

BURST, PER_SECOND = 200, 20
"""How many records of a process are sent at once, and then in each second."""
LARGEST_TEXT = 8 * 1024
_ENCODE = msgspec.msgpack.Encoder().encode


class LogForwarder(logging.Handler):
    """A handler of the root logger and of warnings, which sends records with the results of calls.

    Args:
        present_call: returns the run in progress (0: none) and the label of its call.
    """

    def __init__(
        self, result_buffer: ResultBuffer, present_call: Callable[[], tuple[int, str]]
    ) -> None:
        super().__init__()
        self._result_buffer = result_buffer
        self._present_call = present_call
        self._host = socket.gethostname()
        self._levels_before: dict[str, int] = {}
        self._showwarning: Callable[..., None] | None = None
        self._tokens, self._filled = float(BURST), monotonic()
        self._left_out = 0

    def serve(self, caller: CallerState | None) -> None:
        """Forward to this caller at the levels that it wants, or to nobody."""
        for name, level in self._levels_before.items():
            logging.getLogger(name or None).setLevel(level)
        self._levels_before.clear()
        levels = None if caller is None else caller.levels
        if levels is None:
            self._end()
            return
        for name, level in levels:
            logger = logging.getLogger(name or None)
            self._levels_before[name] = logger.level
            logger.setLevel(level)
        if self not in logging.root.handlers:
            logging.root.addHandler(self)
        if self._showwarning is None:
            self._showwarning, warnings.showwarning = warnings.showwarning, self._warned

    def _end(self) -> None:
        logging.root.removeHandler(self)
        if self._showwarning is not None and warnings.showwarning == self._warned:
            warnings.showwarning = self._showwarning
        self._showwarning = None

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record. When there are too many in a short time, count them instead."""
        if self._result_buffer.is_forked():
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        try:
            if self._may_send():
                self._send(self._encoded(record))
            else:
                self._left_out += 1
        except Exception:
            self.handleError(record)

    def around(self, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function that makes a call and, before its outcome is sent, reports how many
        records were dropped since the last report.
        """

        def forwarding(item: Any) -> Any:
            try:
                return call(item)
            finally:
                if self._left_out and self._may_send(-PER_SECOND):
                    self._send({"logger": "", "level": 0, "text": ""})

        return forwarding

    def _may_send(self, least: int = 0) -> bool:
        now = monotonic()
        self._tokens = min(self._tokens + (now - self._filled) * PER_SECOND, float(BURST))
        self._filled = now
        if self._tokens - 1 < least:
            return False
        self._tokens -= 1
        return True

    def _send(self, said: dict[str, Any]) -> None:
        run, call = self._present_call()
        left_out, self._left_out = self._left_out, 0
        record = LoggedRecord(host=self._host, call=call, left_out=left_out, **said)
        self._result_buffer.tell(Pushed(run, 1, True), [_ENCODE(record)])

    def _encoded(self, record: logging.LogRecord) -> dict[str, Any]:
        parts = [record.exc_text, record.stack_info]
        if record.exc_info and not record.exc_text:
            parts[0] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return {
            "logger": record.name,
            "level": record.levelno,
            "text": record.getMessage()[:LARGEST_TEXT],
            "created": record.created,
            "path": record.pathname,
            "line": record.lineno,
            "function": record.funcName or "",
            "process": os.getpid(),
            "thread": record.threadName or "",
            "exception": "\n".join(filter(None, parts))[-LARGEST_TEXT:],
        }

    def _warned(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: str | None = None,
    ) -> None:
        """The replacement of `warnings.showwarning`."""
        if self._result_buffer.is_forked() or file is not None:
            assert self._showwarning is not None
            self._showwarning(message, category, filename, lineno, file, line)
        elif self._may_send():
            self._send(
                {
                    "logger": "py.warnings",
                    "level": logging.WARNING,
                    "text": str(message)[:LARGEST_TEXT],
                    "path": filename,
                    "line": lineno,
                    "categories": _names(category),
                }
            )
        else:
            self._left_out += 1


def _names(category: type[Warning]) -> Sequence[str]:
    kinds = [one for one in category.__mro__ if issubclass(one, Warning)]
    return [f"{one.__module__}.{one.__qualname__}" for one in kinds]
