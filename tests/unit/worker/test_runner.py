"""The loop that makes calls, in this process, its channel played by a list."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from msgspec.structs import replace

from gridengine.call_context.current_call import Controller, current_job
from gridengine.call_context.status_block import HOLD, INDEX, LATE, RUN, START, RunnerStatus
from gridengine.errors import UNNUMBERED, PicklingError
from gridengine.serialize import pickling, shared_objects
from gridengine.serialize.payload import FULL, SINGLE, STAR, Payload
from gridengine.wire.messages import (
    CANCELLED,
    NO_INPUT,
    OUT_OF_MEMORY,
    RAISED,
    RETRYABLE,
    VALUES,
    Assign,
    Cancel,
    Crashed,
    Define,
    Forget,
    Input,
    Pushed,
    Results,
    Returned,
    Shortened,
    Started,
    input_name,
)
from tests.support.runner_driver import Itself, RunnerDriver

SENT: list[Any] = []
"""What a runner has sent so far: its calls are made in this process."""


def count_sent(x: int) -> int:
    return len(SENT) + 0 * math.floor(x)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunnerDriver]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = Path.cwd()
    SENT.clear()
    yield RunnerDriver()
    os.chdir(before)


@pytest.fixture
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is taken for a long one, however long this process is kept from going on."""
    for module in ("runner", "result_buffer"):
        monkeypatch.setattr(f"gridengine.worker.{module}.monotonic", lambda: -1.0)


def spans(driver: RunnerDriver) -> list[tuple[int, int, int, int]]:
    return [
        (result.run, result.start, result.stop, result.status) for result, _ in driver.outcomes()
    ]


@pytest.mark.usefixtures("no_time_passes")
def test_quick_values_of_a_run_travel_together(driver: RunnerDriver) -> None:
    driver.assign(lambda x: x + 1, list(range(100)))
    driver.play()
    assert driver.values() == list(range(1, 101))
    assert spans(driver) == [(1, 0, 100, VALUES)]


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_calls_that_run_once_are_answered_before_the_next_begins(
    driver: RunnerDriver, timeout: float | None
) -> None:
    calls = list(range(100))
    driver.channel.sent = SENT
    driver.assign(count_sent, calls, calls, once=True, timeout=timeout)
    driver.play()
    assert driver.values() == list(range(200))


def test_an_exception_is_answered_before_the_next_run_begins(driver: RunnerDriver) -> None:
    driver.channel.sent = SENT
    driver.assign(count_sent, ["no number"], [0], once=True)
    driver.play()
    assert [type(value) for _, value in driver.outcomes()] == [TypeError, list]
    assert driver.values() == [1]


def test_each_form_passes_its_arguments() -> None:
    def call(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    for form, calls, expected in [
        (SINGLE, [(1, 2)], ((1, 2),)),
        (STAR, [(1, 2)], (1, 2)),
        (FULL, [((1,), {"b": 2})], (1,)),
    ]:
        driver = RunnerDriver()
        driver.assign(call, calls, form=form)
        driver.play()
        assert driver.values() == [(expected, {"b": 2} if form == FULL else {})]


@pytest.mark.usefixtures("no_time_passes")
def test_an_exception_stands_between_the_values_before_and_after_it(driver: RunnerDriver) -> None:
    driver.assign(lambda x: 1 // x, [1, 1, 0, 1])
    driver.play()
    assert spans(driver) == [(1, 0, 2, VALUES), (1, 2, 3, RAISED), (1, 3, 4, VALUES)]


def test_every_call_of_every_run_is_answered_once_and_in_order(driver: RunnerDriver) -> None:
    driver.assign(lambda x: 1 // (x % 3), list(range(20)), [], [0], list(range(5)))
    driver.play()
    covered = [
        (run, index) for run, start, stop, _ in spans(driver) for index in range(start, stop)
    ]
    assert covered == [(1, i) for i in range(20)] + [(3, 0)] + [(4, i) for i in range(5)]


@pytest.mark.usefixtures("no_time_passes")
def test_only_the_calls_of_the_assignment_are_made(driver: RunnerDriver) -> None:
    driver.assign(lambda x: x, list(range(10)), start=4, stop=6)
    driver.play()
    assert spans(driver) == [(1, 4, 6, VALUES)]
    assert driver.values() == [4, 5]


def take_back(driver: RunnerDriver, after: int, *, looks: bool, **options: Any) -> list[int]:
    """Have all calls after this one be taken back while it is in progress, out of 100. Return where
    the agent finds that the run ends at the latest, and the calls that are made.
    """
    made: list[int] = []
    end: list[int] = []

    def call(index: int) -> None:
        made.append(index)
        if index == after:
            if looks:
                driver.runner._strides.look()
            end.append(RunnerStatus(driver.words).cut(1, after + 1))

    driver.assign(Itself(call), list(range(100)), **options)
    driver.play()
    assert made == list(range(len(made)))
    assert spans(driver)[-1][2] == len(made)
    assert driver.channel.sent[-1] == (Shortened(1, len(made)), [])
    return [*end, len(made)]


@pytest.mark.usefixtures("no_time_passes")
@pytest.mark.parametrize(("after", "end"), [(0, 1), (20, 31), (62, 63)])
def test_no_call_begins_after_a_stride_when_the_rest_of_its_run_was_taken_back(
    after: int, end: int, driver: RunnerDriver
) -> None:
    assert take_back(driver, after, looks=False) == [end, end]


@pytest.mark.usefixtures("no_time_passes")
@pytest.mark.parametrize("after", [0, 20, 62, 98])
def test_once_the_backstop_has_looked_all_behind_the_call_in_progress_can_be_taken_back(
    after: int, driver: RunnerDriver
) -> None:
    assert take_back(driver, after, looks=True) == [after + 1, after + 1]


@pytest.mark.usefixtures("no_time_passes")
def test_looks_of_the_backstop_lose_no_call(driver: RunnerDriver) -> None:
    def look(index: int) -> int:
        driver.runner._strides.look()
        return index

    driver.assign(Itself(look), list(range(100)), [0], [1, 2])
    driver.play()
    assert driver.values() == [*range(100), 0, 1, 2]


@pytest.mark.parametrize("options", [{"once": True}, {"timeout": 60.0}])
@pytest.mark.parametrize("after", [0, 20, 98])
def test_no_call_with_a_time_limit_or_that_runs_once_begins_when_it_was_taken_back(
    after: int, options: dict[str, Any], driver: RunnerDriver
) -> None:
    assert take_back(driver, after, looks=False, **options) == [after + 1, after + 1]


def test_the_words_name_the_call_in_progress_and_none_after_it(driver: RunnerDriver) -> None:
    seen: list[tuple[int, int]] = []
    watch = Itself(lambda call: seen.append((driver.words[RUN], driver.words[INDEX])))
    driver.assign(watch, [[], []], [[]])
    driver.play()
    assert seen == [(1, 0), (1, 1), (2, 0)]
    assert driver.words[RUN] == 0


def test_the_words_name_a_run_while_its_results_are_pickled(driver: RunnerDriver) -> None:
    """That may end the process."""
    seen: list[int] = []

    class Noting:
        def __reduce__(self) -> Any:
            seen.append(driver.words[RUN])
            return int, ()

    driver.runner._result_buffer.due = float("inf")  # so that nothing is sent before the end
    make = Itself(lambda call: Noting())
    driver.assign(make, [[]])
    driver.assign(make, [[]], [[], []])
    driver.play()
    assert seen == [1, 1, 2, 2]


def test_the_beginning_of_a_call_is_noted_only_when_its_time_is_limited(
    driver: RunnerDriver,
) -> None:
    seen: list[bool] = []
    watch = Itself(lambda call: seen.append(driver.words[START] > 0))
    driver.assign(watch, [[]])
    driver.assign(watch, [[]], timeout=5.0)
    driver.play()
    assert seen == [False, True]
    assert driver.words[START] == 0


def test_a_held_runner_drops_cancelled_calls_and_goes_on_with_the_rest(
    driver: RunnerDriver,
) -> None:
    driver.assign(lambda x: x, ["a"], ["b"], ["c"])
    driver.channel.incoming.append((Cancel([1, 3, 99], signal.SIGTERM), []))
    driver.words[HOLD] = 1
    driver.play()
    assert driver.values() == ["b"]
    dropped = [message for message, _ in driver.channel.sent if isinstance(message, Crashed)]
    assert dropped == [Crashed(run, -1, -signal.SIGTERM, CANCELLED, 0) for run in (1, 3)]


def test_a_held_runner_is_in_no_run_while_it_listens(
    driver: RunnerDriver,
) -> None:
    seen = []
    wait = driver.channel.wait
    driver.channel.wait = lambda: seen.append(driver.words[RUN]) or wait()
    driver.assign(lambda x: x, ["a"])
    driver.channel.incoming.append((Cancel([], 0), []))
    driver.words[HOLD] = 1
    driver.play()
    assert set(seen) == {0}
    assert driver.values() == ["a"]


@pytest.mark.usefixtures("no_time_passes")
def test_results_that_cannot_be_pickled_become_errors_of_their_calls(driver: RunnerDriver) -> None:
    driver.assign(lambda x: (i for i in ()) if x % 2 else x, [0, 1, 2, 3])
    driver.play()
    assert spans(driver) == [
        (1, 0, 1, VALUES),
        (1, 1, 2, RAISED),
        (1, 2, 3, VALUES),
        (1, 3, 4, RAISED),
    ]
    reason = "TypeError: cannot pickle 'generator' object"
    text = f"the result of call 3 (a generator) cannot be pickled: {reason}"
    error = driver.outcomes()[3][1]
    assert str(error) == f"{text}\n  try: return list() of it"
    assert error.__cause__ is None  # its text has it all


@pytest.mark.usefixtures("no_time_passes")
def test_arguments_that_cannot_be_loaded_fail_each_call_with_that_error(
    driver: RunnerDriver,
) -> None:
    driver.assign(lambda x: x, [1, 2])
    message, buffers = driver.channel.incoming.pop()
    driver.channel.incoming.append((message, [b"\x80\x05cno_such_module\nthing\n."] * len(buffers)))
    driver.play()
    assert spans(driver) == [(1, 0, 1, RAISED), (1, 1, 2, RAISED)]
    assert isinstance(driver.outcomes()[0][1], ModuleNotFoundError)


def test_a_missing_folder_is_a_configuration_error_that_names_it(driver: RunnerDriver) -> None:
    driver.assign(lambda x: x, [1], directory="/no/such/folder")
    driver.play()
    ((_, error),) = driver.outcomes()
    assert "/no/such/folder" in str(error)


def test_a_call_that_changes_folder_does_not_move_the_next_run(
    driver: RunnerDriver, tmp_path: Path
) -> None:
    driver.assign(lambda x: (os.getcwd(), os.chdir("/"))[0], [1], [1], directory=str(tmp_path))  # noqa: PTH109
    driver.play()
    assert driver.values() == [str(tmp_path), str(tmp_path)]


def test_a_watched_run_says_that_it_begins_before_anything_else(driver: RunnerDriver) -> None:
    driver.assign(lambda x: x, [1], watched=True)
    driver.play()
    assert [type(message) for message, _ in driver.channel.sent] == [Started, Results]
    assert driver.channel.sent[0][0] == Started(1, os.getpid())


def test_pushed_values_leave_at_once_and_in_order(driver: RunnerDriver) -> None:
    def call(x: int, controller: Controller) -> tuple[int, int]:
        controller.push(x)
        controller.push([x])
        return controller.job_id, controller.attempt

    driver.assign(call, [5, 6], controlled=True, attempt=3)
    driver.play()
    said = [
        pickling.load(buffers) if isinstance(message, Pushed) else type(message)
        for message, buffers in driver.channel.sent
    ]
    assert [item for item in said if item is not Results] == [5, [5], 6, [6]]
    assert said[-1] is Results
    assert driver.values() == [(7, 3), (7, 3)]


def test_a_call_knows_its_number_among_the_calls_of_its_map(driver: RunnerDriver) -> None:
    driver.assign(lambda x: current_job().index, [5, 6], first=40)  # type: ignore[union-attr]
    driver.play()
    assert driver.values() == [40, 41]


def test_a_forgotten_function_is_not_kept(driver: RunnerDriver) -> None:
    driver.assign(lambda x: x, [1])
    digest = driver.channel.incoming[0][0].function  # type: ignore[union-attr]
    driver.channel.incoming.append((Forget([digest, b"another"]), []))
    driver.play()
    assert (driver.runner.functions._loaded, driver.runner.functions._defined) == ({}, {})


# Exceptions to be retried, and calls that come back too late


def test_an_exception_of_those_to_be_retried_says_so(driver: RunnerDriver) -> None:
    def call(error: Exception) -> None:
        raise error

    driver.assign(call, [FileNotFoundError(), KeyError(), OSError()], retry_on=(OSError,))
    driver.play()
    assert [result.status for result, _ in driver.outcomes()] == [RETRYABLE, RAISED, RETRYABLE]


def test_a_call_that_comes_back_when_the_agent_has_found_it_late_is_not_answered(
    driver: RunnerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(status: int) -> None:
        raise EOFError(status)

    def condemn(x: int) -> int:
        driver.words[LATE] = driver.words[START] if x else 0
        return x

    monkeypatch.setattr("gridengine.worker.runner.exit_process", end)
    driver.assign(Itself(condemn), [0, 1, 0], timeout=5.0)
    driver.play()
    assert driver.values() == [0]


class Leaving(Exception):
    """Its pickling ends the process."""

    def __reduce__(self) -> Any:
        raise SystemExit("no licence")


@pytest.mark.parametrize("raises", [False, True])
def test_an_outcome_whose_pickling_ends_the_process_is_an_error_of_its_call(
    driver: RunnerDriver, *, raises: bool
) -> None:
    def call(x: int) -> object:
        if x and raises:
            raise Leaving
        return Leaving() if x else x

    driver.assign(call, [0, 1])
    driver.play()
    (_, kept), (_, error) = driver.outcomes()
    assert kept == [0]
    assert isinstance(error, PicklingError)


def test_a_result_that_cannot_be_pickled_is_named_by_its_number_among_all_calls(
    driver: RunnerDriver,
) -> None:
    driver.assign(lambda x: open(os.devnull) if x else x, [0, 1], first=40)  # noqa: SIM115
    driver.play()
    assert "the result of call 41" in str(driver.outcomes()[1][1])
    driver.assign(lambda x: (yield x), [0, 1], first=UNNUMBERED)
    driver.play()
    assert "the result of the call (a generator)" in str(driver.outcomes()[3][1])


class Needed:
    """Stands, where calls are pickled, for the result with a reference."""

    def __init__(self, reference: int) -> None:
        self.reference = reference

    def __reduce__(self) -> Any:
        return shared_objects.find, (input_name(self.reference),)


def grown(x: list[int]) -> list[int]:
    x.append(0)
    return x


def change(driver: RunnerDriver, *changes: dict[str, Any]) -> None:
    """Change the assignments of the last batch, in their order."""
    message, buffers = driver.channel.incoming[-1]
    assert isinstance(message, Assign)
    changed = [replace(one, **its) for one, its in zip(message.assignments, changes, strict=True)]
    driver.channel.incoming[-1] = Assign(changed), buffers


def give(driver: RunnerDriver, define: bool, *inputs: Input, payload: Payload = ()) -> None:
    """Have the last batch get these inputs, all of them with this payload; or define them."""
    message, buffers = driver.channel.incoming[-1]
    assert isinstance(message, Assign)
    given = [replace(one, inputs=inputs) for one in message.assignments]
    if define:
        names = {input_name(one.reference) for one in inputs}
        driver.channel.incoming[:0] = [
            (Define(name, [], b"", len(payload), result=True), payload) for name in names
        ]
    else:
        given = [replace(one, buffers=one.buffers + len(payload)) for one in given]
        buffers = [part for one in buffers for part in (one, *payload)]
    driver.channel.incoming[-1] = Assign(given), buffers


@pytest.mark.parametrize("define", [False, True])
def test_each_call_gets_the_result_of_another_made_anew(driver: RunnerDriver, define: bool) -> None:
    payload = pickling.dump_values([None, [1, 2]])
    driver.assign(grown, [Needed(7)], [Needed(7)])
    give(driver, define, Input(7, 1, 0 if define else 1), payload=payload)
    driver.play()
    assert driver.values() == [[1, 2, 0], [1, 2, 0]]


@pytest.mark.parametrize("define", [False, True])
def test_kept_results_go_with_the_call_or_when_told(driver: RunnerDriver, define: bool) -> None:
    driver.assign(grown, [Needed(7)])
    give(driver, define, Input(7, 0, not define), payload=pickling.dump_values([[1]]))
    driver.channel.incoming.append((Forget([input_name(7)]), []))
    driver.play()
    assert driver.values() == [[1, 0]]
    with pytest.raises(LookupError):
        shared_objects.find(input_name(7))
    assert input_name(7) not in driver.runner.functions._defined


def test_an_input_that_cannot_be_loaded_is_the_error_of_its_call(driver: RunnerDriver) -> None:
    driver.assign(grown, [Needed(7)], [[1]])
    change(driver, {"buffers": 2, "inputs": [Input(7, 0, 1)]}, {})
    driver.channel.incoming[-1][1].insert(1, b"rubbish")  # type: ignore[attr-defined]
    driver.play()
    (failed, _), (_, values) = driver.outcomes()
    assert failed.status == RAISED
    assert values == [[1, 0]]


def follow(driver: RunnerDriver) -> None:
    """Have the result of the first run of the last batch be the second's input."""
    change(driver, {"kept": [(0, 7)]}, {"inputs": [Input(7, run=1)]})


@pytest.mark.parametrize("value", [[1], np.zeros(100_000)])
def test_a_run_gets_the_result_of_the_one_before_it_made_anew(
    driver: RunnerDriver, value: Any
) -> None:
    kept = []

    def change(x: Any) -> Any:
        if not kept:
            kept.append(value)
            return value
        x[0] += 1
        return x

    driver.assign(change, [0], [Needed(7)])
    follow(driver)
    driver.play()
    first, second = driver.values()
    assert second[0] == first[0] + 1
    assert value[0] == first[0]


def test_a_run_whose_input_was_not_made_here_is_given_back(driver: RunnerDriver) -> None:
    def fail(x: int) -> None:
        raise ValueError(x)

    driver.assign(fail, [0], [Needed(7)])
    follow(driver)
    driver.play()
    assert [result.status for result, _ in driver.outcomes()] == [RAISED]
    returned = [message for message, _ in driver.channel.sent if isinstance(message, Returned)]
    assert [(one.runs, one.reason) for one in returned] == [([2], NO_INPUT)]


@pytest.mark.usefixtures("no_time_passes")
def test_values_that_others_need_are_pickled_each_on_its_own_and_with_their_classes(
    driver: RunnerDriver,
) -> None:
    driver.assign(lambda x: x, [1, 2, 3], [4, 5])
    change(driver, {"kept": [(1, 7)]}, {})
    driver.play()
    assert spans(driver) == [
        (1, 0, 1, VALUES),
        (1, 1, 2, VALUES),
        (1, 2, 3, VALUES),
        (2, 0, 2, VALUES),
    ]
    assert driver.values() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"memory": 1 << 50, "once": True}, [(0, VALUES), (1, OUT_OF_MEMORY)]),
        ({"memory": 1 << 50}, [(0, VALUES)]),  # a new process makes it again
        ({"once": True}, [(0, VALUES), (1, OUT_OF_MEMORY)]),
        ({}, [(0, VALUES), (1, OUT_OF_MEMORY)]),
    ],
    ids=["once under a limit", "under a limit", "once", "without a limit"],
)
def test_a_call_that_is_out_of_memory_behind_others_is_answered_unless_it_may_run_again(
    driver: RunnerDriver,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    found: list[tuple[int, int]],
) -> None:
    def call(x: int) -> int:
        if x:
            raise MemoryError
        return x

    def end(status: int) -> NoReturn:
        raise EOFError(status)

    monkeypatch.setattr("gridengine.worker.runner.exit_process", end)
    driver.assign(call, [0, 1, 0], **options)
    driver.play()
    assert [(start, status) for _, start, _, status in spans(driver)] == found
