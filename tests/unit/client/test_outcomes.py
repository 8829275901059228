"""The outcomes of calls, from the events of a dispatcher."""

from __future__ import annotations

import pickle
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from gridengine.client.outcomes import outcomes_of
from gridengine.errors import Cancelled, OutOfMemory, ProtocolError, RemoteTraceback, WorkerLost
from gridengine.requests import Attempt, CallsFinished
from gridengine.serialize import pickling
from gridengine.serialize.payload import SINGLE, STAR


def test_values_are_counted_from_the_first_call_of_the_task() -> None:
    event = CallsFinished(1, 2, 4, pickling.dump_values("ab"))
    [outcome] = outcomes_of(event, "f", first=10)
    assert (outcome.start, outcome.stop, outcome.values) == (12, 14, ["a", "b"])
    assert outcome.error is None


def test_one_error_is_that_of_all_calls_of_the_event() -> None:
    error = Cancelled("ended")
    [outcome] = outcomes_of(CallsFinished(1, 0, 3, None, error=error), "f")
    assert (outcome.start, outcome.stop, outcome.error) == (0, 3, error)


def test_a_recalled_call_is_cancelled_as_the_standard_library_has_it() -> None:
    event = CallsFinished(1, 0, 1, None, error=Cancelled("recalled"), recalled=True)
    assert isinstance(outcomes_of(event, "f")[0].error, CancelledError)


@pytest.mark.parametrize(("values", "words"), [("abc", "3 results"), ("", "0 results")])
def test_another_number_of_results_than_of_calls_is_our_fault(values: str, words: str) -> None:
    [outcome] = outcomes_of(CallsFinished(1, 0, 2, pickling.dump_values(values)), "f")
    assert isinstance(outcome.error, ProtocolError)
    assert f"answered 2 calls with {words}" in str(outcome.error)


def test_results_that_are_no_list_are_our_fault() -> None:
    [outcome] = outcomes_of(CallsFinished(1, 0, 2, pickling.dump({})), "f")
    assert "answered 2 calls with a dict" in str(outcome.error)


def test_a_call_whose_process_died_tells_its_arguments() -> None:
    calls = pickle.dumps(["a.txt", "b.txt"])
    error = WorkerLost("it is gone", host="node1", pickled_call=(calls, 1, SINGLE, ("path",)))
    [outcome] = outcomes_of(CallsFinished(1, 1, 2, None, error=error), "f")
    assert str(outcome.error) == "it is gone\n  arguments: path='b.txt'\n  host: node1"


def test_long_arguments_of_a_call_whose_process_died_are_told_in_full() -> None:
    path = "/scratch/projects/climate/input/2026/temperature.nc"
    calls = pickle.dumps([(path, path, 0.25)])
    error = WorkerLost("it is gone", pickled_call=(calls, 0, STAR, ("path", "out", "rate")))
    [outcome] = outcomes_of(CallsFinished(1, 0, 1, None, error=error), "f")
    assert str(outcome.error).endswith(f"path={path!r}, out={path!r}, rate=0.25")


def test_the_error_of_a_call_that_needed_a_lost_one_keeps_no_pickled_arguments() -> None:
    call = pickle.dumps(["x" * 10_000]), 0, SINGLE, ()
    error = WorkerLost("it is gone", pickled_call=call)
    [outcome] = outcomes_of(CallsFinished(1, 0, 1, None, error=error, path=("f",)), "g")
    assert len(pickle.dumps(outcome.error)) < 1000
    assert error.pickled_call == call  # the lost call's own error still tells them


def test_an_error_of_several_calls_tells_the_arguments_of_none() -> None:
    error = WorkerLost("it is gone", pickled_call=(pickle.dumps([1, 2]), 0, SINGLE, ("path",)))
    [outcome] = outcomes_of(CallsFinished(1, 0, 2, None, error=error), "f")
    assert str(outcome.error) == "it is gone"


def test_an_exception_tells_of_each_attempt() -> None:
    attempts = [Attempt("node1", "7", 0, 1, "it died"), Attempt("node2", "8", 1, 3, "it raised")]
    payload = pickling.dump_exception(ValueError("no"), "argument -1.5")
    event = CallsFinished(1, 0, 1, payload, raised=True, attempts=attempts)
    [outcome] = outcomes_of(event, "f", first=10)
    assert isinstance(outcome.error, ValueError)
    assert isinstance(outcome.error.__cause__, RemoteTraceback)
    assert outcome.error.__notes__ == [
        "call 10 of f, argument -1.5, on node2, cluster job 8",
        "attempt 1: on node1 (cluster job 7), after 1.0 s: it died",
        "attempt 2: on node2 (cluster job 8), after 2.0 s: it raised",
    ]


def test_a_call_out_of_memory_tells_where_it_ran() -> None:
    attempts = [Attempt("node1", "7", 0, 1, "it raised MemoryError")]
    payload = pickling.dump_exception(OutOfMemory("too much"))
    [outcome] = outcomes_of(CallsFinished(1, 0, 1, payload, raised=True, attempts=attempts), "f")
    assert isinstance(outcome.error, OutOfMemory)
    assert (outcome.error.host, outcome.error.job) == ("node1", "7")


def test_an_error_names_no_log_that_is_removed_for_being_empty(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    attempts = [Attempt("node1", "7", 0, 1, "it raised MemoryError", str(tmp_path / "log"))]
    payload = pickling.dump_exception(OutOfMemory("too much"))
    for event in (
        CallsFinished(1, 0, 1, None, error=WorkerLost("gone", log=str(tmp_path / "log"))),
        CallsFinished(1, 0, 1, payload, raised=True, attempts=attempts),
    ):
        [outcome] = outcomes_of(event, "f")
        assert str(tmp_path) not in str(outcome.error)


def test_an_error_shows_how_the_log_ends_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("the last line\n")
    error = WorkerLost("gone", log=str(tmp_path / "log"))
    [outcome] = outcomes_of(CallsFinished(1, 0, 1, None, error=error), "f")
    assert outcome.error is error
    assert "the last line" in str(error)


def test_a_failure_that_came_from_another_call_says_by_which_way() -> None:
    raised = pickling.dump_exception(ValueError("no"), "argument 3")
    path = ("call 2 of load", "fit")
    event = CallsFinished(1, 0, 1, raised, raised=True, path=path)
    [outcome] = outcomes_of(event, "pick")
    assert outcome.error is not None
    assert outcome.error.__notes__ == ["call 2 of load, argument 3, failed, and with it fit, pick"]


def test_a_call_that_was_cancelled_for_another_says_so() -> None:
    path = ("call 2 of load", "fit")
    event = CallsFinished(1, 0, 1, None, recalled=True, path=path)
    [outcome] = outcomes_of(event, "pick")
    assert isinstance(outcome.error, CancelledError)
    assert outcome.error.__notes__ == ["call 2 of load was cancelled, and with it fit, pick"]


def test_an_error_of_several_calls_is_an_exception_for_each() -> None:
    error = WorkerLost("it is gone")
    event = CallsFinished(1, 0, 1, None, error=error, path=("the call of load",))
    errors = [outcomes_of(event, name)[0].error for name in ("fit", "pick")]
    assert [one.__notes__ for one in errors if one is not None] == [
        ["the call of load failed, and with it fit"],
        ["the call of load failed, and with it pick"],
    ]
    assert not hasattr(error, "__notes__")
    assert str(errors[0]) == str(error)
