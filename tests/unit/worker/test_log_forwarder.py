"""What calls log, on its way to their caller; the runner's channel is played by a list."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gridengine.wire.messages import CallerState, LoggedRecord, Pushed, Results
from gridengine.worker import log_forwarder
from gridengine.worker.log_forwarder import LogForwarder
from gridengine.worker.result_buffer import ResultBuffer
from tests.support.runner_driver import ScriptedChannel

CALLER = CallerState(b"", 0, (), (("", logging.WARNING), ("tests.deep", logging.DEBUG)))


@pytest.fixture
def channel() -> ScriptedChannel:
    return ScriptedChannel()


@pytest.fixture
def buffer(channel: ScriptedChannel) -> ResultBuffer:
    return ResultBuffer(channel)  # type: ignore[arg-type]


@pytest.fixture
def forwarder(buffer: ResultBuffer) -> Iterator[LogForwarder]:
    made = LogForwarder(buffer, lambda: (4, "call 2 of train"))
    made.serve(CALLER)
    yield made
    made.serve(None)


def told(channel: ScriptedChannel) -> list[LoggedRecord]:
    return [
        msgspec.msgpack.decode(one, type=LoggedRecord)
        for message, payload in channel.sent
        if isinstance(message, Pushed)
        for one in payload
    ]


@pytest.mark.usefixtures("forwarder")
def test_records_travel_at_the_levels_that_the_caller_wants(channel: ScriptedChannel) -> None:
    logging.getLogger("tests.other").info("not wanted")
    logging.getLogger("tests.other").warning("%s wanted", "one")
    logging.getLogger("tests.deep").debug("another")
    assert [(one.logger, one.text, one.call) for one in told(channel)] == [
        ("tests.other", "one wanted", "call 2 of train"),
        ("tests.deep", "another", "call 2 of train"),
    ]
    assert [message for message, _ in channel.sent] == [Pushed(4, 1, True)] * 2


@pytest.mark.usefixtures("forwarder")
def test_an_exception_travels_as_its_traceback(channel: ScriptedChannel) -> None:
    try:
        math.sqrt(-1)
    except ValueError:
        logging.getLogger("tests").exception("it failed")
    [one] = told(channel)
    assert one.exception.endswith("ValueError: math domain error") or "ValueError" in one.exception


@pytest.mark.usefixtures("forwarder")
def test_a_warning_travels_with_the_names_of_its_classes(channel: ScriptedChannel) -> None:
    warnings.showwarning("old", DeprecationWarning, "train.py", 3)
    [one] = told(channel)
    assert one.categories == ["builtins.DeprecationWarning", "builtins.Warning"]
    assert (one.text, one.path, one.line) == ("old", "train.py", 3)


def test_with_another_caller_all_is_as_before(buffer: ResultBuffer) -> None:
    show, level, handlers = warnings.showwarning, logging.root.level, list(logging.root.handlers)
    forwarder = LogForwarder(buffer, lambda: (4, "call 2 of train"))
    forwarder.serve(CALLER)
    assert forwarder in logging.root.handlers
    forwarder.serve(CallerState(b"", 0))
    assert warnings.showwarning is show
    assert (logging.root.level, logging.root.handlers) == (level, handlers)
    assert logging.getLogger("tests.deep").level == logging.NOTSET


def test_too_many_records_are_left_out_and_counted(
    channel: ScriptedChannel, forwarder: LogForwarder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_forwarder, "monotonic", lambda: forwarder._filled)

    def call(count: int) -> None:
        for _ in range(count):
            logging.getLogger("tests").warning("again")

    forwarder.around(call)(log_forwarder.BURST + 30)
    *sent, last = told(channel)
    assert len(sent) == log_forwarder.BURST
    assert (last.left_out, last.logger, last.text) == (30, "", "")
    forwarder.around(call)(0)
    assert told(channel)[-1] == last


class Talking:
    """A value that logs when it is pickled."""

    def __reduce__(self) -> Any:
        logging.getLogger("tests").warning("being pickled")
        return str, ()


@pytest.mark.usefixtures("forwarder")
def test_log_lines_of_pickling_a_result_go_before_it(
    channel: ScriptedChannel, buffer: ResultBuffer
) -> None:
    buffer.begin(4, 0)
    buffer.values.append(Talking())
    buffer.end()
    buffer.flush()
    assert [type(message) for message, _ in channel.sent][-1] is Results
    assert {one.text for one in told(channel)} == {"being pickled"}


def test_a_process_that_was_forked_writes_to_its_own_standard_error(
    channel: ScriptedChannel,
    buffer: ResultBuffer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    forwarder = LogForwarder(buffer, lambda: (4, "call 2 of train"))
    monkeypatch.setattr(buffer, "is_forked", lambda: True)
    said = logging.LogRecord("tests", logging.WARNING, __file__, 1, "here", None, None)
    forwarder.handle(said)
    assert capsys.readouterr().err == "here\n"
    assert channel.sent == []
