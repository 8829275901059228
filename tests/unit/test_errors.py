"""The error tree: each class is caught as what it is, says all that is known, and survives a
pickle.
"""

from __future__ import annotations

import builtins
import inspect
import pickle
import sqlite3
import threading
import traceback
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

import gridengine
from gridengine import errors
from gridengine.errors import GridEngineError, JournalError, out_of_memory

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, GridEngineError)
]


def full(kind: type[GridEngineError]) -> GridEngineError:
    return kind(
        "the call died of SIGKILL",
        host="node7",
        job="4711.3",
        log="/home/me/logs/worker.1.3.log",
        log_tail="one\ntwo",
        attempts=["node6, 3 s, SIGKILL", "node7, 2 s, SIGKILL"],
        hint="ask for more memory",
    )


@pytest.mark.parametrize("kind", CLASSES)
def test_the_text_holds_all_that_is_known_and_no_more(kind: type[GridEngineError]) -> None:
    parts = (
        "SIGKILL",
        "node7",
        "4711.3",
        "worker.1.3.log",
        "| one",
        "| two",
        "node6, 3 s",
        "ask for",
    )
    assert [part for part in parts if part not in str(full(kind))] == []
    assert str(kind("it broke")) == "it broke"


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_a_pickle_as_itself(kind: type[GridEngineError]) -> None:
    before = full(kind)
    before.add_note("on node7")
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is kind
    assert (after.__dict__, after.__notes__) == (before.__dict__, ["on node7"])
    assert str(after) == str(before)


@pytest.mark.parametrize("kind", CLASSES)
def test_the_tree_in_the_docstring_names_each_class(kind: type[GridEngineError]) -> None:
    assert f" {kind.__name__} " in (errors.__doc__ or "").replace("\n", " ") + " "


CALL, CLUSTER = errors.CallError, errors.ClusterError
BASES: dict[type[GridEngineError], tuple[type[Exception], ...]] = {
    errors.TimeoutError: (CALL, builtins.TimeoutError),
    errors.OutOfMemory: (CALL, MemoryError),
    errors.ConfigurationError: (ValueError,),
    **dict.fromkeys((errors.WorkerCrashed, errors.Cancelled, errors.PicklingError), (CALL,)),
    **dict.fromkeys((errors.SubmissionRefused, errors.WorkerNotStarted), (CLUSTER,)),
    **dict.fromkeys((errors.WorkerLost, errors.JobDeleted), (CLUSTER,)),
}


@pytest.mark.parametrize("kind", BASES)
def test_an_error_is_caught_by_its_class_of_the_tree_or_by_its_builtin_class(
    kind: type[GridEngineError],
) -> None:
    assert [base for base in BASES[kind] if not issubclass(kind, base)] == []


def test_a_remote_traceback_shows_its_text() -> None:
    assert "line 7, in f" in str(errors.RemoteTraceback("line 7, in f"))


def test_a_remote_traceback_survives_a_pickle() -> None:
    assert pickle.loads(pickle.dumps(errors.RemoteTraceback("line 7"))).text == "line 7"


def test_a_refused_allocation_explains_a_peak_below_the_limit() -> None:
    refused = "its limit was 1.00 GB, the peak seen was 0.25 GB; one allocation"
    assert refused in str(out_of_memory("call 0", limit=2**30, peak=2**28))
    ended = out_of_memory("call 0", limit=2**30, peak=2**28, how="its process was killed")
    assert "allocation" not in str(ended)


class LongWinded:
    def __repr__(self) -> str:
        return "so\n  much " * 1000


class Mute:
    def __repr__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1.5, "-1.5"),
        ("a\nb", r"'a\nb'"),
        (list(range(10**5)), "[0, 1, 2, 3, 4, 5, ...]"),
        ([[[[1]]]], "[[[...]]]"),
        (b"short", "b'short'"),
        ([b"x" * 100], "[b'" + "x" * 60 + "'... (100 bytes)]"),
        (Mute(), "<Mute, whose repr raised SystemExit>"),
    ],
)
def test_a_short_repr_shows_the_beginning_of_a_value(value: object, text: str) -> None:
    assert errors.short_repr(value) == text


@pytest.mark.parametrize(
    "value",
    [LongWinded(), "x" * 10**6, 10**5000, {"k" * 99: "v" * 99}],
    ids=["own", "text", "number", "dictionary"],
)
def test_a_short_repr_is_one_short_line(value: object) -> None:
    text = errors.short_repr([value] * 9)
    assert len(text) <= 120
    assert "\n" not in text


@pytest.mark.parametrize("shown", [errors.short_repr, errors.safe_repr])
def test_a_ctrl_c_in_the_repr_of_a_value_is_raised(shown: Callable[[object], str]) -> None:
    class Slow:
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shown(Slow())


@pytest.mark.parametrize("shown", [errors.short_repr, errors.safe_repr])
def test_what_looks_like_a_ctrl_c_in_another_thread_is_a_fault_of_the_value(
    shown: Callable[[object], str],
) -> None:
    class Moody:
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    told: list[str] = []
    thread = threading.Thread(target=lambda: told.append(shown(Moody())))
    thread.start()
    thread.join()
    [text] = told
    assert "Moody" in text


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_a_short_repr_of_much_data_takes_little_memory(kind: type) -> None:
    value = kind(10**7)
    tracemalloc.start()
    try:
        errors.short_repr([value])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10**6


def test_a_call_that_was_submitted_alone_has_no_number() -> None:
    assert errors.call_words("f", 180, 10) == "call 190 of f"
    assert errors.call_words("f", errors.UNNUMBERED, 10) == "the call of f"


def own_frames(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.filename for frame in frames if errors.is_own(frame.filename)]


def test_neither_an_error_nor_its_cause_shows_frames_of_this_package(tmp_path: Path) -> None:
    journal = tmp_path / "a.sqlite"
    journal.write_bytes(b"no database" * 100)
    with pytest.raises(JournalError, match="is not a database") as caught:
        gridengine.map(abs, [1], scheduler="inline", name="a", journal=journal)
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    assert own_frames(caught.value) == own_frames(caught.value.__cause__) == []


def test_a_ctrl_c_in_a_map_shows_no_frames_of_this_package() -> None:
    def interrupt(x: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        gridengine.map(interrupt, [1], scheduler="inline")
    assert own_frames(caught.value) == []


def test_a_ctrl_c_while_a_job_is_waited_for_shows_no_frames_of_this_package() -> None:
    class Interrupted(gridengine.Job):
        def _wait(self, timeout: float | None) -> bool:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        Interrupted(target=abs).join()
    assert own_frames(caught.value) == []
