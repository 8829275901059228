"""What calls have logged elsewhere, as this process logs it."""

from __future__ import annotations

import logging
import threading
import warnings

import msgspec
import pytest

from gridengine.client.functions import make_function
from gridengine.client.log_relay import MOST_PENDING, LogRelay, log_levels
from gridengine.wire.messages import LoggedRecord

SAID = LoggedRecord("tests.model", logging.INFO, "epoch 3", "node7", "call 5 of train", 12.5)


def take(relay: LogRelay, *records: LoggedRecord) -> None:
    relay.take([msgspec.msgpack.encode(one) for one in records])
    relay.drain(60)


def test_a_record_is_handled_by_the_logger_of_the_same_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tests.model")
    take(LogRelay(), msgspec.structs.replace(SAID, exception="Traceback: it", line=7))
    [record] = caplog.records
    assert record.getMessage() == "epoch 3 [call 5 of train on node7]"
    assert (record.name, record.levelno, record.lineno) == ("tests.model", logging.INFO, 7)
    assert (record.created, record.msecs) == (12.5, 500)
    assert (vars(record)["call"], vars(record)["host"]) == ("call 5 of train", "node7")
    assert "Traceback: it" in caplog.text


def test_a_text_with_signs_of_a_format_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tests.model")
    take(LogRelay(), msgspec.structs.replace(SAID, text="100 %s of {it}"))
    assert "100 %s of {it} [call 5" in caplog.text


def test_records_below_the_levels_of_this_process_are_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "tests.model")
    take(LogRelay(), SAID)
    assert caplog.records == []


def test_the_number_of_records_left_out_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    take(LogRelay(), LoggedRecord("", 0, "", "node7", "call 5 of train", left_out=345))
    assert [one.getMessage() for one in caplog.records] == [
        "345 log records of calls left out: there were too many"
    ]


def test_records_that_handlers_are_too_slow_for_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tests.model")
    relay, go_on = LogRelay(), threading.Event()
    relay._thread.do(go_on.wait)
    encoded = [msgspec.msgpack.encode(SAID)]
    for _ in range(MOST_PENDING + 7):
        relay.take(encoded)
    go_on.set()
    relay.drain(60)
    assert sum("epoch" in one.getMessage() for one in caplog.records) == MOST_PENDING
    assert caplog.records[-1].getMessage().startswith("7 log records")


def test_an_unreadable_record_is_told_and_the_next_is_handled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tests.model")
    relay = LogRelay()
    relay.take([b"\xc1"])
    take(relay, SAID)
    assert "cannot be decoded" in caplog.records[0].getMessage()
    assert len(caplog.records) == 2


def test_a_process_that_was_forked_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    relay, go_on = LogRelay(), threading.Event()
    relay._thread.do(go_on.wait)
    monkeypatch.setattr(relay, "_owner", -1)
    relay.drain(600)
    go_on.set()


def warned(*categories: str) -> LoggedRecord:
    return msgspec.structs.replace(
        SAID, logger="py.warnings", path="train.py", line=3, categories=categories
    )


def test_a_warning_of_a_class_that_is_not_here_has_the_nearest_above_it() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        take(LogRelay(), warned("elsewhere.Odd", "builtins.RuntimeWarning", "builtins.Warning"))
    [one] = seen
    assert (one.category, one.filename, one.lineno) == (RuntimeWarning, "train.py", 3)
    assert str(one.message) == "epoch 3 [call 5 of train on node7]"


def test_many_calls_that_warn_alike_warn_once() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        other = msgspec.structs.replace(warned("builtins.UserWarning"), call="call 6 of train")
        take(LogRelay(), warned("builtins.UserWarning"), other)
    assert len(seen) == 1


def test_a_warning_of_a_call_is_shown_where_warnings_are_errors() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("error")
        take(LogRelay(), warned("builtins.UserWarning"))
    assert [str(one.message) for one in seen] == ["epoch 3 [call 5 of train on node7]"]


def test_a_function_travels_with_the_levels_of_its_caller_s_loggers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logger = logging.getLogger("tests.of.levels")
    monkeypatch.setattr(logger, "level", logging.DEBUG)
    forwarding = make_function(abs, logs=True)
    assert forwarding.caller is not None
    assert ("tests.of.levels", logging.DEBUG) in (forwarding.caller.levels or ())
    assert log_levels()[0] == ("", logging.root.level)
    silent = make_function(abs)
    assert silent.caller is not None
    assert silent.caller.levels is None
    assert silent.digest != forwarding.digest
