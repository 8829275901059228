"""What calls have logged elsewhere, and warned of, comes to this process's own loggers and
warnings.
"""

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
from gridengine.resources.units import plural
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import LoggedRecord

log = logging.getLogger("gridengine")

MOST_PENDING = 10_000
"""How many records may wait for this process's handlers; of more it is told how many there were."""
DRAIN_SECONDS = 5.0
"""For how long the handlers are waited for, at the end of a map, say."""
KNOWN_WARNINGS = 1000
RELAYS: dict[int, LogRelay] = {}
"""This process's own, by its number: the thread of another's is not in one that was forked."""
_DECODER = msgspec.msgpack.Decoder(LoggedRecord)


def log_levels() -> tuple[tuple[str, int], ...]:
    """Return the levels of those loggers of this process that have one of their own, by name; from
    here on what calls log can be taken.
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
    """Wait until what calls have logged, as far as it has come, has been handled here, so many
    seconds at most. Who has never asked for it waits for nothing.
    """
    if relay := RELAYS.get(os.getpid()):
        relay.drain(DRAIN_SECONDS if seconds is None else min(seconds, DRAIN_SECONDS))


class LogRelay:
    """Gives this process's loggers what calls have logged, in a thread of its own: handlers may
    take their time.
    """

    def __init__(self) -> None:
        self._thread = HelperThread("gridengine-logs")
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._pending = self._left_out = 0
        self._warned: set[tuple[str, ...]] = set()
        atexit.register(self.drain)

    def take(self, payload: Payload) -> None:
        """Have these records handled, each an encoded `LoggedRecord`. Never waits."""
        with self._lock:
            if self._pending >= MOST_PENDING:
                self._left_out += len(payload)
                return
            self._pending += len(payload)
        self._thread.do(functools.partial(self._handle_all, payload))

    def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Wait until all that was taken has been handled, or so many seconds."""
        if self._thread.is_current() or os.getpid() != self._owner:
            return
        drained = threading.Event()
        self._thread.do(self._tell_left_out)
        self._thread.do(drained.set)
        drained.wait(seconds)

    def _handle_all(self, payload: Payload) -> None:
        try:
            for buffer in payload:
                self._handle(_DECODER.decode(buffer))
        except msgspec.MsgspecError as error:
            log.warning("what calls have logged cannot be read: %s", error)
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
        """Warn as a call has, once of each place and text: very many calls may do so alike."""
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
        except Warning:  # the filters make errors of warnings, and there is nobody here to catch it
            warnings.showwarning(*told)


def handle(record: LoggedRecord) -> None:
    """Have the logger of the same name handle a record, if it does those of this level. Its `call`
    and `host` are attributes, too.
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
    """Return what was said, and by which call where."""
    return f"{record.text} [{record.call} on {record.host}]"


def category_of(record: LoggedRecord) -> type[Warning]:
    """Return the class of a warning, or the nearest above it that this process has: nothing is
    imported for it.
    """
    for name in record.categories:
        module, _, kind = name.rpartition(".")
        found = getattr(sys.modules.get(module), kind, None)
        if isinstance(found, type) and issubclass(found, Warning):
            return found
    return Warning
