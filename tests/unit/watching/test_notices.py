"""Messages to the user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.status.rows import Status
from gridengine.watching.notices import (
    ENDED,
    FAILED,
    Notice,
    Notifier,
    check_receiver,
    notice_of,
)


def notice(**facts: Any) -> Notice:
    told: dict[str, Any] = {
        "event": ENDED, "name": "f", "done": 2, "failed": 1, "cancelled": 0, "left": 0,
        "seconds": 3.0, "error": "bad", "host": "login1", "pid": 7, "more": "gridengine ls",
    }  # fmt: skip
    return Notice(**{**told, **facts})


def test_calls_that_wait_or_run_are_left() -> None:
    status = Status(elapsed_seconds=3.04, done=2, failed=1, cancelled=1, waiting=3, running=2)
    who = {"name": "f", "host": "login1", "pid": 7, "more": "gridengine ls"}
    assert notice_of(ENDED, status, "bad", **who) == notice(cancelled=1, left=5)


def test_a_message_reads_as_a_line() -> None:
    assert str(notice()) == "f has ended, 2 done, 1 failed: bad"
    first = notice(event=FAILED, left=4, cancelled=1)
    assert str(first) == "f has its first failed call, 2 done, 1 failed, 1 cancelled, 4 left: bad"


def test_a_command_finds_the_message_in_variables_and_in_its_input(tmp_path: Path) -> None:
    file = tmp_path / "told"
    Notifier(
        f'cat > {file}; echo "/$GRIDENGINE_NOTICE_TEXT/$GRIDENGINE_NOTICE_PID" >> {file}'
    ).send(notice())
    facts, text, pid = file.read_text().rsplit("/", 2)
    assert json.loads(facts)["error"] == "bad"
    assert (text, pid) == (str(notice()), "7\n")


def test_an_error_of_any_length_and_kind_is_sent_as_one_short_line(tmp_path: Path) -> None:
    error = "first\nsecond\x1b[31m \udcff\x00" + "x" * 200_000
    sent = notice(error=error)
    Notifier(f'printf %s "$GRIDENGINE_NOTICE_ERROR" > {tmp_path}/told').send(sent)
    assert (tmp_path / "told").read_text().startswith("first second [31m xxx")
    assert len((tmp_path / "told").read_text()) <= 1000


def test_a_callable_gets_the_message() -> None:
    told: list[Notice] = []
    Notifier(told.append).send(notice())
    assert told == [notice()]


@pytest.mark.parametrize("to", ["echo gone >&2; exit 3", lambda notice: 1 / 0])
def test_a_message_that_cannot_be_sent_is_told_once_and_harms_nothing(
    to: Any, caplog: pytest.LogCaptureFixture
) -> None:
    notifier = Notifier(to)
    notifier.send(notice())
    notifier.send(notice())
    [text] = [one.getMessage() for one in caplog.records]
    assert "has failed: " in text
    assert "exit status 3: gone" in text or "ZeroDivisionError" in text


@pytest.mark.parametrize("value", [3, " "])
def test_a_notify_that_can_send_no_message_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, gridengine.ConfigurationError), match="notify"):
        check_receiver(value)
