"""The loop that makes calls, in this process, its channel played by a list."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gridengine.serialize import pickling
from gridengine.serialize.payload import FULL, SINGLE, STAR, Payload
from gridengine.wire.framing import encode
from gridengine.wire.messages import (
    CANCELLED,
    RAISED,
    RETRYABLE,
    VALUES,
    Assign,
    Assignment,
    Cancel,
    Crashed,
    Define,
    Forget,
    Message,
    Pushed,
    Result,
    Results,
    Started,
    portions,
)
from gridengine.worker.process_setup import Controller
from gridengine.worker.runner import Runner
from gridengine.worker.status_block import HOLD, INDEX, LATE, RUN, START, WORDS_SIZE


class Script:
    """A channel that brings one message after the other, and then ends; `said` is what the runner
    sends.
    """

    def __init__(self) -> None:
        self.coming: list[tuple[Message, Payload]] = []
        self.said: list[tuple[Message, Payload]] = []

    def wait(self) -> list[tuple[Message, Payload]]:
        if not self.coming:
            raise EOFError
        return [self.coming.pop(0)]

    def deliver(self, message: Message, buffers: Payload = ()) -> None:
        encode(message, buffers)
        self.said.append((message, [bytes(buffer) for buffer in buffers]))


class Stage:
    """A runner, its words, and what goes in and out."""

    def __init__(self) -> None:
        self.channel = Script()
        self.words = memoryview(bytearray(WORDS_SIZE)).cast("Q")
        self.runner = Runner(self.channel, self.words)  # type: ignore[arg-type]

    def define(
        self,
        function: Callable[..., Any],
        directory: str | None = None,
        retry_on: tuple[type[BaseException], ...] = (),
    ) -> bytes:
        digest, payload = pickling.dump_function(function, retry_on)
        folder = os.fsencode(directory or Path.cwd())
        self.channel.coming.append(
            (Define(digest, list(map(os.fsencode, sys.path)), folder, len(payload)), payload)
        )
        return digest

    def assign(
        self,
        function: Callable[..., Any],
        *runs: list[Any],
        directory: str | None = None,
        **options: Any,
    ) -> None:
        """Assign runs, numbered from 1."""
        digest = self.define(function, directory, options.pop("retry_on", ()))
        assignments, buffers = [], []
        for run, calls in enumerate(runs, 1):
            payload = pickling.dump_calls(calls)
            given = {
                "run": run,
                "task": 7,
                "start": 0,
                "stop": len(calls),
                "attempt": 0,
                "form": SINGLE,
                "buffers": len(payload),
                **options,
            }
            assignments.append(Assignment(function=digest, **given))
            buffers += payload
        self.channel.coming.append((Assign(assignments), buffers))

    def play(self) -> None:
        with pytest.raises(EOFError):
            self.runner.serve()

    def outcomes(self) -> list[tuple[Result, Any]]:
        found = []
        for message, buffers in self.channel.said:
            if isinstance(message, Results):
                for result, payload in portions(message.results, buffers):
                    load = pickling.load if result.status == VALUES else pickling.load_exception
                    found.append((result, load(payload)))
        return found

    def values(self) -> list[Any]:
        return [
            value
            for result, values in self.outcomes()
            if result.status == VALUES
            for value in values
        ]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = Path.cwd()
    yield Stage()
    os.chdir(before)


def spans(stage: Stage) -> list[tuple[int, int, int, int]]:
    return [
        (result.run, result.start, result.stop, result.status) for result, _ in stage.outcomes()
    ]


def test_quick_values_of_a_run_travel_together(stage: Stage) -> None:
    stage.assign(lambda x: x + 1, list(range(100)))
    stage.play()
    assert stage.values() == list(range(1, 101))
    assert len(spans(stage)) < 100


def test_each_form_passes_its_arguments() -> None:
    def call(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    for form, calls, expected in [
        (SINGLE, [(1, 2)], ((1, 2),)),
        (STAR, [(1, 2)], (1, 2)),
        (FULL, [((1,), {"b": 2})], (1,)),
    ]:
        stage = Stage()
        stage.assign(call, calls, form=form)
        stage.play()
        assert stage.values() == [(expected, {"b": 2} if form == FULL else {})]


def test_an_exception_stands_between_the_values_before_and_after_it(stage: Stage) -> None:
    stage.assign(lambda x: 1 // x, [1, 1, 0, 1])
    stage.play()
    assert spans(stage) == [(1, 0, 2, VALUES), (1, 2, 3, RAISED), (1, 3, 4, VALUES)]


def test_every_call_of_every_run_is_answered_once_and_in_order(stage: Stage) -> None:
    stage.assign(lambda x: 1 // (x % 3), list(range(20)), [], [0], list(range(5)))
    stage.play()
    covered = [(run, index) for run, start, stop, _ in spans(stage) for index in range(start, stop)]
    assert covered == [(1, i) for i in range(20)] + [(3, 0)] + [(4, i) for i in range(5)]


def test_only_the_calls_of_the_assignment_are_made(stage: Stage) -> None:
    stage.assign(lambda x: x, list(range(10)), start=4, stop=6)
    stage.play()
    assert spans(stage) == [(1, 4, 6, VALUES)]
    assert stage.values() == [4, 5]


def test_the_words_name_the_call_in_progress_and_none_after_it(stage: Stage) -> None:
    seen: list[tuple[int, int]] = []
    watch = _watcher(stage, seen)
    stage.runner.functions._loaded[stage.define(len)] = watch, ()
    stage.assign(len, [[], []], [[]])
    stage.play()
    assert seen == [(1, 0), (1, 1), (2, 0)]
    assert stage.words[RUN] == 0


def _watcher(stage: Stage, seen: list[tuple[int, int]]) -> Callable[[Any], int]:
    def watch(call: Any) -> int:
        seen.append((stage.words[RUN], stage.words[INDEX]))
        return 0

    return watch


def test_the_beginning_of_a_call_is_noted_only_when_its_time_is_limited(stage: Stage) -> None:
    seen: list[bool] = []
    stage.runner.functions._loaded[stage.define(len)] = (
        (lambda call: seen.append(stage.words[START] > 0)),
        (),
    )
    stage.assign(len, [[]])
    stage.assign(len, [[]], timeout=5.0)
    stage.play()
    assert seen == [False, True]
    assert stage.words[START] == 0


def test_a_held_runner_drops_what_is_cancelled_and_goes_on_with_the_rest(stage: Stage) -> None:
    stage.assign(lambda x: x, ["a"], ["b"], ["c"])
    stage.channel.coming.append((Cancel([1, 3, 99], signal.SIGTERM), []))
    stage.words[HOLD] = 1
    stage.play()
    assert stage.values() == ["b"]
    dropped = [message for message, _ in stage.channel.said if isinstance(message, Crashed)]
    assert dropped == [Crashed(run, -1, -signal.SIGTERM, CANCELLED, 0) for run in (1, 3)]


def test_a_held_runner_is_in_no_run_while_it_listens(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    wait = stage.channel.wait
    monkeypatch.setattr(stage.channel, "wait", lambda: seen.append(stage.words[RUN]) or wait())
    stage.assign(lambda x: x, ["a"])
    stage.channel.coming.append((Cancel([], 0), []))
    stage.words[HOLD] = 1
    stage.play()
    assert set(seen) == {0}
    assert stage.values() == ["a"]


def test_results_that_cannot_be_pickled_become_errors_of_their_calls(stage: Stage) -> None:
    stage.assign(lambda x: (i for i in ()) if x % 2 else x, [0, 1, 2, 3])
    stage.play()
    assert spans(stage) == [
        (1, 0, 1, VALUES),
        (1, 1, 2, RAISED),
        (1, 2, 3, VALUES),
        (1, 3, 4, RAISED),
    ]
    assert "the result of call 3" in str(stage.outcomes()[3][1])


def test_arguments_that_cannot_be_loaded_fail_each_call_with_that_error(stage: Stage) -> None:
    stage.assign(lambda x: x, [1, 2])
    message, buffers = stage.channel.coming.pop()
    stage.channel.coming.append((message, [b"\x80\x05cno_such_module\nthing\n."] * len(buffers)))
    stage.play()
    assert spans(stage) == [(1, 0, 1, RAISED), (1, 1, 2, RAISED)]
    assert isinstance(stage.outcomes()[0][1], ModuleNotFoundError)


def test_a_missing_folder_is_a_configuration_error_that_names_it(stage: Stage) -> None:
    stage.assign(lambda x: x, [1], directory="/no/such/folder")
    stage.play()
    ((_, error),) = stage.outcomes()
    assert "/no/such/folder" in str(error)


def test_a_call_that_changes_folder_does_not_move_the_next_run(
    stage: Stage, tmp_path: Path
) -> None:
    stage.assign(lambda x: (os.getcwd(), os.chdir("/"))[0], [1], [1], directory=str(tmp_path))  # noqa: PTH109
    stage.play()
    assert stage.values() == [str(tmp_path), str(tmp_path)]


def test_a_watched_run_says_that_it_begins_before_anything_else(stage: Stage) -> None:
    stage.assign(lambda x: x, [1], watched=True)
    stage.play()
    assert [type(message) for message, _ in stage.channel.said] == [Started, Results]
    assert stage.channel.said[0][0] == Started(1, os.getpid())


def test_what_a_call_pushes_leaves_at_once_and_in_order(stage: Stage) -> None:
    def call(x: int, controller: Controller) -> tuple[int, int]:
        controller.push(x)
        controller.push([x])
        return controller.job_id, controller.attempt

    stage.assign(call, [5, 6], controlled=True, attempt=3)
    stage.play()
    said = [
        pickling.load(buffers) if isinstance(message, Pushed) else type(message)
        for message, buffers in stage.channel.said
    ]
    assert [item for item in said if item is not Results] == [5, [5], 6, [6]]
    assert said[-1] is Results
    assert stage.values() == [(7, 3), (7, 3)]


def test_a_controlled_call_is_told_of_sigterm_and_the_old_handler_comes_back(stage: Stage) -> None:
    def call(x: int, controller: Controller) -> tuple[bool, bool]:
        before = controller.cancelled
        signal.raise_signal(signal.SIGTERM)
        return before, controller.cancelled

    handler = signal.getsignal(signal.SIGTERM)
    stage.assign(call, [0], controlled=True)
    stage.play()
    assert stage.values() == [(False, True)]
    assert signal.getsignal(signal.SIGTERM) == handler


def test_a_forgotten_function_is_not_kept(stage: Stage) -> None:
    stage.assign(lambda x: x, [1])
    digest = stage.channel.coming[0][0].function  # type: ignore[union-attr]
    stage.channel.coming.append((Forget([digest, b"another"]), []))
    stage.play()
    assert (stage.runner.functions._loaded, stage.runner.functions._defined) == ({}, {})


# Exceptions to be retried, and calls that come back too late


def test_an_exception_of_those_to_be_retried_says_so(stage: Stage) -> None:
    def call(error: Exception) -> None:
        raise error

    stage.assign(call, [FileNotFoundError(), KeyError(), OSError()], retry_on=(OSError,))
    stage.play()
    assert [result.status for result, _ in stage.outcomes()] == [RETRYABLE, RAISED, RETRYABLE]


def test_a_call_that_comes_back_when_the_agent_has_found_it_late_is_not_answered(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(status: int) -> None:
        raise EOFError(status)

    def condemn(x: int) -> int:
        stage.words[LATE] = stage.words[START] if x else 0
        return x

    monkeypatch.setattr("gridengine.worker.runner.exit_process", end)
    stage.runner.functions._loaded[stage.define(len)] = condemn, ()
    stage.assign(len, [0, 1, 0], timeout=5.0)
    stage.play()
    assert stage.values() == [0]


def test_a_result_that_cannot_be_pickled_is_named_by_its_number_among_all_calls(
    stage: Stage,
) -> None:
    stage.assign(lambda x: open(os.devnull) if x else x, [0, 1], first=40)  # noqa: SIM115
    stage.play()
    assert "the result of call 41" in str(stage.outcomes()[1][1])
