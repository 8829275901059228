"""What `gridengine results` writes of values that a format has no words for."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import math
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gridengine.api.named_runs import CallOfRun
from gridengine.cli.main import main
from gridengine.cli.results import WRITERS
from gridengine.errors import ConfigurationError, Pending
from gridengine.journal.lock_file import is_locked, take_lock
from gridengine.journal.run_file import lock_of
from tests.support.named_calls import Notes, store_run
from tests.support.watched import Machine

CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize("value", [{(1, 2): 3}, {1, "a"}, b"x", CIRCLE])
def test_json_is_said_to_have_nothing_for_a_value(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"JSON has no form for [\s\S]*--format pickle"):
        WRITERS["jsonl"](calls(value))


def calls(*results: Any) -> list[CallOfRun]:
    """Calls with these results, each of `f(x)` with its number."""
    return [CallOfRun(number, {"x": number}, one) for number, one in enumerate(results)]


def rows(*given: CallOfRun) -> list[str]:
    return WRITERS["csv"](given).decode().split("\r\n")[:-1]


@pytest.fixture
def waiting(machine: Machine, notes: Notes) -> Path:
    """A run with a result, a failed call, and two calls that are left."""
    notes.bad(2)
    return store_run("sweep", 1, 2, left=2)


def results(*words: str) -> Result:
    path = [*sys.path]
    try:
        return CliRunner().invoke(main, ["results", "sweep", *words])
    finally:
        sys.path[:] = path


def test_for_whom_it_waits_is_told_and_for_how_long_can_be_said(waiting: Path) -> None:
    with contextlib.closing(take_lock(lock_of(waiting), "the run", wait=False)):
        for words in (["--timeout", "0.001"], ["--timeout", "0.0001 min"]):
            told = results(*words).stderr
            had = f"waiting for 2 calls that process {os.getpid()} on {socket.gethostname()} has"
            assert told.startswith(f"{had}; --now takes the results that are there\n")
        for words in (["--now"], ["--timeout", "0"]):
            assert "waiting" not in results(*words).stderr
    threading.Timer(0.1, take_lock(lock_of(waiting), "the run", wait=False).close).start()
    assert "waiting for 2 calls" in results().stderr
    assert not is_locked(lock_of(waiting))


@pytest.mark.usefixtures("waiting")
def test_a_time_to_wait_that_is_none_is_refused() -> None:
    for words in ("soon", "-1", "nan"):
        assert results("--timeout", words).exit_code == 2


@pytest.mark.usefixtures("waiting")
def test_calls_that_failed_and_calls_that_are_left_are_told_apart() -> None:
    assert results("--now").stderr == (
        "3 of 4 calls have no result: 1 failed (`gridengine retry sweep --failed` runs these "
        "again), 2 left (run the script again)\n"
    )


def test_numbers_that_json_does_not_have_are_null() -> None:
    value = {"a": [math.nan, 1.5], "b": (-math.inf,), "c": "NaN"}
    [line] = WRITERS["jsonl"](calls(value)).splitlines()
    assert json.loads(line)["result"] == {"a": [None, 1.5], "b": [None], "c": "NaN"}


def test_text_that_is_no_unicode_is_escaped_in_csv() -> None:
    assert rows(*calls("\ud800")) == ["call,x,result,error", "0,0,\\ud800,"]


def test_each_call_has_a_row_with_its_number_arguments_and_result_or_error() -> None:
    given = calls(0, ValueError("odd"), Pending("it has none"))
    assert rows(*given) == [
        "call,x,result,error",
        "0,0,0,",
        "1,1,,ValueError: odd",
        "2,2,,Pending: it has none",
    ]
    assert [json.loads(one) for one in WRITERS["jsonl"](given).splitlines()] == [
        {"call": 0, "arguments": {"x": 0}, "result": 0},
        {"call": 1, "arguments": {"x": 1}, "error": "ValueError: odd"},
        {"call": 2, "arguments": {"x": 2}, "error": "Pending: it has none"},
    ]


def test_a_table_has_the_same_columns_if_all_calls_failed() -> None:
    assert rows(*calls(ValueError("no"))) == ["call,x,result,error", "0,0,,ValueError: no"]


def test_no_column_hides_another_of_the_same_name() -> None:
    given = CallOfRun(0, {"x": 1, "call": 2, "error": 3}, {"x": 4, "error": 5, 6: 7, "6": 8})
    assert rows(given) == [
        "call,x,argument.call,argument.error,result.x,result.error,6,result.6,error",
        "0,1,2,3,4,5,7,8,",
    ]


class NoText:
    """An object that cannot be told as text."""

    def __str__(self) -> str:
        raise RuntimeError

    def __repr__(self) -> str:
        return "NoText()"


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        (None, ""),
        ("a", "a"),
        (Path("a/b"), "a/b"),
        (True, "True"),
        (datetime.date(2026, 11, 29), "2026-11-29"),
        ([1, Path("a"), math.nan], '"[1, ""a"", null]"'),
        ({(1, 2): 3}, '"{(1, 2): 3}"'),
        (CIRCLE, "[[[...]]]"),
        (NoText(), "NoText()"),
    ],
)
def test_an_argument_of_any_kind_is_told_in_one_place(argument: Any, told: str) -> None:
    assert rows(CallOfRun(0, {"x": argument}, 1))[1] == f"0,{told},1,"


def test_an_argument_that_python_writes_in_no_digits_has_a_row() -> None:
    """From Python 3.14 on `reprlib` has words of its own for it."""
    number, argument, *rest = rows(CallOfRun(0, {"x": 10**5000}, 1))[1].split(",")
    assert (number, rest) == ("0", ["1", ""])
    assert argument == "a number of 16610 bits" or argument.startswith("<int instance")


def test_an_error_without_words_has_a_row() -> None:
    class Silent(Exception):
        __str__ = NoText.__str__

    assert rows(*calls(Silent()))[1] == "0,0,,Silent: Silent()"


class Large:
    """A number of more bytes than are stored."""

    def __init__(self) -> None:
        self.content = b"x" * 2_000_000

    def __str__(self) -> str:
        return "one"

    def __mul__(self, other: object) -> int:
        return 1


@pytest.mark.usefixtures("machine", "notes")
def test_calls_whose_arguments_are_not_known_are_counted() -> None:
    store_run("sweep", Large())
    told = results("--now", "--format", "csv")
    assert told.stdout == "call,result,error\n0,1,\n"
    assert "the arguments of 1 call are not told: they are not stored" in told.stderr
    assert '"arguments": null' in results("--now").stdout


def test_parquet_has_the_columns_of_csv_with_their_types() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    content = WRITERS["parquet"](calls(1.5, ValueError("odd")))
    assert parquet.ParquetFile(io.BytesIO(content)).read().to_pydict() == {
        "call": [0, 1],
        "x": [0, 1],
        "result": [1.5, None],
        "error": [None, "ValueError: odd"],
    }
    with pytest.raises(ConfigurationError, match=r"no form for the column 'result'[\s\S]*csv"):
        WRITERS["parquet"](calls(1, "a"))


@pytest.mark.usefixtures("waiting")
def test_the_ending_of_the_file_asks_for_parquet_whose_library_is_named_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    told = results("--now", "-o", str(tmp_path / "a.parquet"))
    assert told.exit_code == 1
    assert "parquet needs pyarrow, which is not installed" in told.output
    assert "pip install pyarrow" in told.output
    assert not (tmp_path / "a.parquet").exists()
