"""Pass the log records and warnings of calls to this process's own loggers and warnings."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
import threading
import warnings

import msgspec

from gridengine.dispatcher.thread_queues import HelperThread
from gridengine.display import plural
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import LoggedRecord

log = logging.getLogger("gridengine")

MOST_PENDING = 10_000
"""At most this many records wait for this process's handlers. Further ones are left out, and
counted in a warning.
"""
DRAIN_SECONDS = 5.0
"""How long to wait for the handlers, such as at the end of a map."""
KNOWN_WARNINGS = 1000
RELAYS: dict[int, LogRelay] = {}
"""The relay of this process, by process id: a relay's thread does not exist in a forked child."""
_DECODER = msgspec.msgpack.Decoder(LoggedRecord)


def log_levels() -> tuple[tuple[str, int], ...]:
    """Return the levels of the loggers of this process that have a level of their own, by name.
    After this call, log records of calls can be passed on.
    """
    log_relay()
    loggers = sorted(logging.root.manager.loggerDict.items())
    own = [(name, one.level) for name, one in loggers if isinstance(one, logging.Logger)]
    root = max(logging.root.level, logging.root.manager.disable)
    return ("", root), *((name, level) for name, level in own if level)


def log_relay() -> LogRelay:
    pid = os.getpid()
    return RELAYS.get(pid) or RELAYS.setdefault(pid, LogRelay())


def drain_logs(seconds: float | None = None) -> None:
    """Wait until the records that have arrived from calls have been handled, for at most `seconds`.
    A process that has no relay does not wait.
    """
    if relay := RELAYS.get(os.getpid()):
        relay.drain(DRAIN_SECONDS if seconds is None else min(seconds, DRAIN_SECONDS))


class LogRelay:
    """Passes calls' log records to this process's loggers, in a thread: handlers may take long."""

    def __init__(self) -> None:
        self._thread = HelperThread("gridengine-logs")
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._pending = self._left_out = 0
        self._warned: set[tuple[str, ...]] = set()
        atexit.register(self.drain)

    def take(self, payload: Payload) -> None:
        """Have records handled; each buffer is an encoded `LoggedRecord`. Never waits."""
        with self._lock:
            if self._pending >= MOST_PENDING:
                self._left_out += len(payload)
                return
            self._pending += len(payload)
        self._thread.do(functools.partial(self._handle_all, payload))

    def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Wait until all records taken so far have been handled, for at most `seconds`."""
        if self._thread.is_current() or os.getpid() != self._owner:
            return
        drained = threading.Event()
        self._thread.do(self._tell_left_out)
        self._thread.do(drained.set)
        drained.wait(seconds)

    def _handle_all(self, payload: Payload) -> None:
        """Handle records, in the relay's thread."""
        try:
            for buffer in payload:
                self._handle(_DECODER.decode(buffer))
        except msgspec.MsgspecError as error:
            log.warning("log records of calls cannot be decoded: %s", error)
        finally:
            with self._lock:
                self._pending -= len(payload)
                is_last = not self._pending
            if is_last:
                self._tell_left_out()

    def _tell_left_out(self) -> None:
        with self._lock:
            count, self._left_out = self._left_out, 0
        if count:
            log.warning("%s of calls left out: there were too many", plural(count, "log record"))

    def _handle(self, record: LoggedRecord) -> None:
        if record.left_out:
            with self._lock:
                self._left_out += record.left_out
        if record.categories:
            self._warn(record)
        elif record.logger:
            handle(record)

    def _warn(self, record: LoggedRecord) -> None:
        """Issue a call's warning, once for each place and text: many calls may have the same."""
        key = record.text, record.path, str(record.line), record.categories[0]
        if key in self._warned:
            return
        if len(self._warned) >= KNOWN_WARNINGS:
            self._warned.clear()
        self._warned.add(key)
        category = category_of(record)
        told = text_of(record), category, record.path, record.line
        try:
            warnings.warn_explicit(*told)
        except Warning:  # the filters turn warnings into errors, which nobody here would catch
            warnings.showwarning(*told)


def handle(record: LoggedRecord) -> None:
    """Have the logger of the same name handle a record, if the logger is enabled for its level. The
    record gets the attributes `call` and `host`.
    """
    logger = logging.getLogger(record.logger)
    if not logger.isEnabledFor(record.level):
        return
    made = logging.LogRecord(
        record.logger,
        record.level,
        record.path,
        record.line,
        text_of(record),
        None,
        None,
        record.function,
    )
    made.relativeCreated += (record.created - made.created) * 1000
    made.created, made.msecs = record.created, record.created % 1 * 1000 // 1
    made.process, made.threadName = record.process, record.thread
    made.exc_text = record.exception or None
    vars(made).update(call=record.call, host=record.host)
    logger.handle(made)


def text_of(record: LoggedRecord) -> str:
    """Return the record's text, with the call and the host."""
    return f"{record.text} [{record.call} on {record.host}]"


def category_of(record: LoggedRecord) -> type[Warning]:
    """Return a warning's class, or its nearest base that is here; nothing is imported for it."""
    for name in record.categories:
        module, _, kind = name.rpartition(".")
        found = getattr(sys.modules.get(module), kind, None)
        if isinstance(found, type) and issubclass(found, Warning):
            return found
    return Warning
