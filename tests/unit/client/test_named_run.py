"""A run with a name, as those see it who hand calls in."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridengine.client import named_run
from gridengine.client.keywords_and_arguments import Resume
from gridengine.client.named_run import OpenRun, RecordPlace
from gridengine.client.options import RunOptions
from gridengine.client.outcomes import OutcomeListener
from gridengine.dispatcher.unsettled import Listener
from gridengine.errors import Cancelled, WorkerLost
from gridengine.journal import call_keys
from gridengine.requests import CallsFinished, Function
from gridengine.serialize import byte_code
from gridengine.serialize.payload import PayloadAtWorker
from gridengine.serialize.users_modules import own_modules
from tests.support.held_dispatcher import HeldDispatcher
from tests.support.tasks import make_task


def test_a_function_whose_module_was_edited_and_loaded_again_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "kept_run_helpers.py"
    file.write_text("def f(x): return x\ndef g(x): return x\n")
    module = importlib.import_module("kept_run_helpers")
    f, g = (Function(name, [name], (), b"", "") for name in (b"f", b"g"))
    run = OpenRun(RunOptions("run", tmp_path / "run.sqlite"), None)
    try:
        own_modules().check()
        before = run.function(module.f, f), run.function(module.g, g)
        assert before == (run.function(module.f, f), run.function(module.g, g))
        file.write_text("def f(x): return x * 100\ndef g(x): return x\n")
        importlib.reload(module)
        own_modules().check()
        after = run.function(module.f, f), run.function(module.g, g)
        assert after[0].identity != before[0].identity
        assert after[1] is before[1]
    finally:
        run.close()
        del sys.modules["kept_run_helpers"]


def test_the_exit_of_the_interpreter_waits_for_a_thread_that_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over, released = threading.Event(), threading.Event(), []

    def release(file: object) -> None:
        begun.set()
        assert over.wait(60)
        released.append(file)

    monkeypatch.setattr(named_run, "release", release)
    run = OpenRun(RunOptions("run", tmp_path / "run.sqlite"), None)
    closing = threading.Thread(target=run.close)
    closing.start()
    assert begun.wait(60)
    assert run._finalizer.atexit
    assert run._finalizer.alive
    at_exit = threading.Thread(target=run._release)
    at_exit.start()
    assert at_exit.is_alive()
    over.set()
    at_exit.join(60)
    closing.join(60)
    assert len(released) == 1
    assert not run._finalizer.alive
    monkeypatch.undo()
    named_run.release(run._file)


@pytest.mark.parametrize("resume", [True, "anyway", False])
def test_another_python_is_told_that_the_calls_are_made_anew(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    resume: Resume,
) -> None:
    def use(python: str) -> list[str]:
        monkeypatch.setattr(call_keys, "PYTHON", python)
        caplog.clear()
        run = OpenRun(RunOptions("run", tmp_path / "run.sqlite", resume=resume), None)
        run.function(use, Function(b"use", [b"use"], (), b"", "use"))
        run.close()
        return [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]

    assert use("2.7") == use("2.7") == []
    told = use(byte_code.PYTHON)
    if resume is True:
        [text] = told
        assert f"were made by Python 2.7, and this is Python {byte_code.PYTHON}" in text
    else:
        assert told == []


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[tuple[OpenRun, list[tuple[int, ...]]]]:
    """An open run, and the places at which it records outcomes."""
    run, places = OpenRun(RunOptions("run", tmp_path / "run.sqlite"), None), []
    run._file.add_result = lambda place, *_, **how: places.append(place)  # type: ignore[method-assign]
    yield run, places
    run.close()


class Owner(OutcomeListener):
    """A submitter that stores its events."""

    def __init__(self) -> None:
        self.seen: list[CallsFinished] = []

    def settled(self, event: CallsFinished) -> None:
        self.seen.append(event)


def submitted(run: OpenRun, expected: list[RecordPlace]) -> tuple[Listener, list[CallsFinished]]:
    """Submit task 7 through a run; return the dispatcher's listener, and the events that its
    submitter gets.
    """
    owner, held = Owner(), HeldDispatcher()
    run.expect(7, expected)
    run.submit(held, Function(b"f", [], (), b"", "f"), [make_task(7, [b""], count=9)], owner)
    return held.entries[-1].listener, owner.seen


VALUES = [b"values"]


@pytest.mark.parametrize(
    ("event", "places"),
    [
        (CallsFinished(7, 0, 9, VALUES), [(5, 10, 14, 0), (6, 0, 5, 4)]),
        (CallsFinished(7, 2, 6, VALUES), [(5, 12, 14, 0), (6, 0, 2, 2)]),
        (CallsFinished(7, 6, 9, VALUES), [(6, 2, 5, 0)]),
        (CallsFinished(8, 0, 9, VALUES), []),
        (CallsFinished(7, 0, 9, None, recalled=True), []),
        (CallsFinished(7, 0, 9, None, error=Cancelled("")), []),
        (CallsFinished(7, 0, 9, None, error=WorkerLost(""), path=("another", "f")), []),
        (CallsFinished(7, 0, 9, None, error=WorkerLost("")), [(5, 10, 14, 0), (6, 0, 5, 4)]),
    ],
)
def test_an_outcome_is_recorded_at_the_places_of_its_calls(
    recording: tuple[OpenRun, list[tuple[int, ...]]],
    event: CallsFinished,
    places: list[tuple[int, ...]],
) -> None:
    run, recorded = recording
    listener, seen = submitted(run, [RecordPlace(0, 4, 5, 10), RecordPlace(4, 9, 6, 0)])
    listener.settled(event)
    assert recorded == places
    assert seen == [event]


@pytest.mark.parametrize("only_here", [True, False])
def test_a_result_that_stays_at_its_worker_is_recorded_if_it_is_asked_for(
    recording: tuple[OpenRun, list[tuple[int, ...]]], only_here: bool
) -> None:
    run, recorded = recording
    listener, _ = submitted(run, [RecordPlace(0, 1, 5, 3, only_here)])
    listener.settled(CallsFinished(7, 0, 1, PayloadAtWorker(1, 10**6, b"w"), last=True))
    assert bool(recorded) is not only_here


def test_after_the_last_outcome_of_a_task_nothing_is_recorded_for_it(
    recording: tuple[OpenRun, list[tuple[int, ...]]],
) -> None:
    run, recorded = recording
    listener, _ = submitted(run, [RecordPlace(0, 1, 5, 3)])
    for _ in range(2):
        listener.settled(CallsFinished(7, 0, 1, VALUES, last=True))
    assert recorded == [(5, 3, 4, 0)]
