"""What a worker calls of a job."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from gridengine.api.job_target import Target, accepts_controller, print_uncaught
from gridengine.call_context.current_call import process_name


def needs(x: int, controller: Any) -> None: ...


def keyword(*, controller: Any = None) -> None: ...


def first(controller: Any, /) -> None: ...


def anything(**kwargs: Any) -> None: ...


class Made:
    def __init__(self, x: int, controller: Any = None) -> None: ...


class MadeByNew(Made):
    def __new__(cls, x: int) -> MadeByNew:
        return super().__new__(cls)


class Plain: ...


@pytest.mark.parametrize(
    ("f", "args", "accepted"),
    [
        (needs, (1,), True),
        (needs, (1, 2), False),
        (keyword, (), True),
        (keyword, (1,), False),
        (first, (), False),
        (anything, (), False),
        (None, (), False),
        (Made, (1,), True),
        (Made, (1, 2), False),
        (MadeByNew, (1,), False),
        (Plain, (), False),
        (dict, (), False),
        (dict.fromkeys, (), False),
    ],
)
def test_a_controller_is_for_those_that_have_a_free_parameter_of_that_name(
    f: Callable[..., Any] | None, args: tuple[Any, ...], accepted: bool
) -> None:
    assert accepts_controller(f, args) is accepted


def test_a_target_is_called_with_the_arguments_alone() -> None:
    assert Target(sorted)([2, 1], reverse=True) == [2, 1]
    assert Target(None)() is None


def test_an_uncaught_exception_is_printed_with_the_name_of_the_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with process_name("Job-7"), pytest.raises(ZeroDivisionError):
        Target(lambda: 1 // 0)()
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["Process Job-7:", "Traceback (most recent call last):"]
    assert lines[-1].startswith("ZeroDivisionError")
    assert "gridengine/api/job_target.py" not in "".join(lines)


@pytest.mark.parametrize(("code", "printed"), [(0, ""), (None, ""), ("so long", "so long\n")])
def test_only_the_message_of_an_exit_is_printed(
    code: object, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_uncaught(SystemExit(code))
    assert capsys.readouterr().err == printed


def test_a_closed_stream_is_no_second_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> int:
            raise ValueError("I/O operation on closed file")

    monkeypatch.setattr(sys, "stderr", Closed())
    print_uncaught(KeyError("x"))
