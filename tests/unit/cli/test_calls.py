"""`gridengine calls`, `cancel` and `retry`."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from gridengine.cli.main import main
from gridengine.dispatcher.watch_messages import CANCEL, WatchAnswer
from gridengine.status.figures import FailureStatus
from gridengine.status.rows import FunctionStatus, RunStatus, Status
from tests.support.named_calls import Notes, hand_over, store_run
from tests.support.watched import WHO, FakeWatched, Machine


def run(number: int, seconds: float, function: str = "f", **facts: object) -> RunStatus:
    return RunStatus(  # type: ignore[misc]
        *(f"1.{number}", f"call {number} of {function}", function, 1, seconds, "node1", "4711"),
        *("", "w1", 2, 3),
        **facts,
    )


STATUS = Status(
    running=5,
    failed=3,
    functions=[FunctionStatus("f", p95_seconds=2.0), FunctionStatus("new")],
    runs=[run(1, 1.0), run(2, 3.0, waits=True), run(3, 5.0, late=True), run(4, 0.5, "new")],
    failures=[
        FailureStatus("1.8", "call 8 of f", "f", 1, 9.0, error="disk full", seconds=0.0),
        FailureStatus("1.9", "call 9 of f", "f", 3, 9.0, error="=1+1", cancelled=True),
    ],
)


@pytest.fixture
def told(machine: Machine) -> None:
    machine.says(WatchAnswer(WHO, STATUS))


def call(*words: str) -> Result:
    result = CliRunner().invoke(main, ["calls", *words])
    assert result.exit_code == 0
    return result


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ((), ["1.1", "1.2", "1.3", "1.4", "1.9", "1.8"]),
        (("--running",), ["1.1", "1.2", "1.3", "1.4"]),
        (("--failed",), ["1.9", "1.8"]),
        (("--failed", "--running"), ["1.1", "1.2", "1.3", "1.4", "1.9", "1.8"]),
        (("--slow",), ["1.3", "1.2", "1.4"]),
    ],
)
def test_calls_are_told_that_are_asked_for(words: tuple[str, ...], ids: list[str]) -> None:
    assert [one["id"] for one in json.loads(call("--json", *words).stdout)] == ids


@pytest.mark.usefixtures("told")
def test_the_state_of_each_is_told_in_a_word() -> None:
    states = [one["state"] for one in json.loads(call("--json").stdout)]
    assert states == ["runs", "waits", "late", "runs", "cancelled", "failed"]


@pytest.mark.usefixtures("told")
def test_spreadsheets_and_people_have_the_same_calls() -> None:
    rows = list(csv.DictReader(io.StringIO(call("--csv", "--failed").stdout)))
    assert [(one["id"], one["call"], one["why"]) for one in rows] == [
        ("1.9", "call 9 of f and 2 more", "=1+1"),
        ("1.8", "call 8 of f", "disk full"),
    ]
    result = call("--failed")
    assert re.search(r"^1\.9 +call 9 of f and 2 more", result.stdout, re.MULTILINE)
    assert "5 running, 0 waiting, 0 done, 3 failed; 2 shown" in result.stderr


def test_the_end_of_a_run_is_told_on_standard_error(machine: Machine) -> None:
    machine.ended(WatchAnswer(WHO, STATUS))
    result = call("--json")
    assert "sweep.py, process 4242 on login1, ended at" in result.stderr
    assert json.loads(result.stdout)


@pytest.fixture
def watched(machine: Machine) -> FakeWatched:
    """A dispatcher with three calls, of which two are ended by name."""
    status, who = Status(waiting=2, running=1), replace(WHO, runs={"seen": "/seen"})
    answer = WatchAnswer(who, status)
    return machine.add(
        FakeWatched(lambda ask: replace(answer, count=2) if ask == CANCEL else answer)
    )


def cancel(*words: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, ["cancel", *words], input=typed)


def acted(watched: FakeWatched) -> list[list[str]]:
    return [list(words) for ask, words in watched.asked if ask == CANCEL]


def test_calls_that_are_named_are_ended_without_a_question(watched: FakeWatched) -> None:
    result = cancel("sweep", "190", "191")
    assert (result.exit_code, result.output) == (0, "2 calls ended\n")
    assert acted(watched) == [["190", "191"]]


@pytest.mark.parametrize("typed", ["n\n", "\n", ""])
def test_before_all_are_ended_it_is_asked(watched: FakeWatched, typed: str) -> None:
    result = cancel("sweep", typed=typed)
    assert "End all 3 calls of sweep.py?" in result.output
    assert (result.exit_code, acted(watched)) == (1, [])


@pytest.mark.parametrize(("words", "typed"), [((), "y\n"), (("--yes",), "")])
def test_yes_ends_all_calls(watched: FakeWatched, words: tuple[str, ...], typed: str) -> None:
    assert cancel("sweep", *words, typed=typed).exit_code == 0
    assert acted(watched) == [[]]


def test_the_question_names_the_run_whose_calls_end(watched: FakeWatched) -> None:
    assert "End all calls of seen at sweep.py?" in cancel("seen", typed="n\n").output


def test_the_exit_status_says_that_nothing_was_ended(watched: FakeWatched) -> None:
    watched.answer = lambda ask: WatchAnswer(WHO, Status())
    result = cancel("sweep", "999")
    assert (result.exit_code, result.output) == (
        1,
        "no such call waits or runs; `gridengine calls sweep` lists those that run\n",
    )


def test_named_calls_that_had_ended_are_told(watched: FakeWatched) -> None:
    result = cancel("sweep", "15", "190", "191")
    assert result.output == "2 calls ended; the others neither wait nor run\n"


def retry(*words: str, typed: str = "y\n") -> Result:
    return CliRunner().invoke(main, ["retry", "sweep", *words], input=typed)


@pytest.fixture
def broken(machine: Machine, notes: Notes, configure: Callable[..., None]) -> Notes:
    """A run `sweep` with a result, two calls that have failed, and three that are left."""
    configure(scheduler="inline")
    notes.bad(2, 3)
    store_run("sweep", 1, 2, 3, left=3)
    notes.made()
    return notes


@pytest.mark.parametrize(
    ("words", "asked", "made"),
    [(("--failed",), "2 calls", [2, 3]), ((), "5 calls", [2, 3, 100, 101, 102])],
)
def test_a_retry_asks_before_and_tells_how_many_have_ended(
    broken: Notes, words: tuple[str, ...], asked: str, made: list[int]
) -> None:
    assert (retry(*words, typed="n\n").exit_code, broken.made()) == (1, [])
    broken.bad()
    result = retry(*words)
    assert f"Run {asked} of sweep again?" in result.output
    assert f"sweep: {asked} done, 0 failed" in result.output
    assert (result.exit_code, broken.made()) == (0, made)


def test_calls_that_fail_again_are_told(broken: Notes) -> None:
    broken.bad(2)
    result = retry("--failed", "--yes")
    assert result.exit_code == 1
    assert "1 call done, 1 failed" in result.stdout
    assert "ValueError('2 is bad')" in result.stderr


@pytest.mark.usefixtures("machine", "notes")
@pytest.mark.parametrize(
    ("words", "told"),
    [((), "nothing has failed, and nothing is left"), (("--failed",), "nothing has failed")],
)
def test_nothing_is_asked_when_there_is_nothing_to_retry(words: tuple[str, ...], told: str) -> None:
    store_run("sweep", 1)
    result = retry(*words)
    assert (result.exit_code, result.output) == (0, f"sweep: {told}\n")


@pytest.mark.usefixtures("broken")
def test_a_dispatcher_that_makes_calls_of_the_run_is_told_before() -> None:
    for name in ("sweeps", "night"):
        hand_over("sweep", name)
    refused = retry("--dispatcher", "night", typed="n\n")
    assert "the dispatcher sweeps has calls of it without a result" in refused.stderr
    assert "the dispatcher night" not in refused.stderr
    assert "has calls" not in retry("--failed", typed="n\n").stderr


def test_a_dispatcher_has_a_scheduler_of_its_own(broken: Notes) -> None:
    assert retry("--dispatcher", "sweeps", "--max-workers", "3", "--yes").exit_code == 2
    assert broken.made() == []
