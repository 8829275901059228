"""Calls in the caller's own process: decided by the same core as others, made in this thread."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import current_process
from typing import Any

import pytest

from gridengine.calls import inline
from gridengine.calls.inline import InlineDispatcher, copied
from gridengine.client.functions import make_function
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.errors import Cancelled, ConfigurationError
from gridengine.requests import CallsFinished, ResultData, TaskBegan, TaskMessage
from gridengine.resources import Memory, WTime
from gridengine.resources.demand import Demand
from gridengine.serialize import pickling, shared_objects
from gridengine.wire.messages import input_name
from tests.support.tasks import make_task
from tests.support.waiting import wait_until

SECONDS = 30


class Needed:
    """Stands, where calls are pickled, for the result with a reference."""

    def __init__(self, reference: int) -> None:
        self.reference = reference

    def __reduce__(self) -> Any:
        return shared_objects.find, (input_name(self.reference),)


class Received:
    """A listener that keeps the events."""

    daemon = True

    def __init__(self) -> None:
        self.finished: list[CallsFinished] = []
        self.began_events: list[TaskBegan] = []
        self.messages: list[Any] = []

    def settled(self, event: CallsFinished) -> None:
        self.finished.append(event)

    def began(self, event: TaskBegan) -> None:
        self.began_events.append(event)

    def noted(self, event: TaskMessage) -> None:
        self.messages.append(pickling.load(event.payload))

    def values(self) -> list[Any]:
        """Return what each call returned, or its error, in their order."""
        outcomes: dict[int, Any] = {}
        for event in self.finished:
            if event.payload is None:
                answers: list[Any] = [event.error] * (event.stop - event.start)
            elif event.raised:
                answers = [pickling.load_exception(event.payload)]
            else:
                answers, _ = pickling.load_values(event.payload)
            assert not outcomes.keys() & set(range(event.start, event.stop))
            outcomes.update(zip(range(event.start, event.stop), answers, strict=True))
        return [outcomes[index] for index in sorted(outcomes)]


def run(
    f: Callable[..., Any], calls: list[Any], retry_on: Any = (), **options: Any
) -> tuple[InlineDispatcher, Received]:
    dispatcher, listener = InlineDispatcher(), Received()
    task = make_task(dispatcher.new_id(), pickling.dump_calls(calls), len(calls), **options)
    dispatcher.submit(make_function(f, retry_on), [task], listener)
    return dispatcher, listener


def test_each_call_is_made_once_in_this_process() -> None:
    _, listener = run(lambda x: (x, os.getpid()), list(range(100)))
    assert listener.values() == [(x, os.getpid()) for x in range(100)]
    assert [event.last for event in listener.finished].count(True) == 1


@pytest.mark.parametrize("check", [True, False])
def test_the_core_is_checked_where_settings_say_so(
    monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None], check: bool
) -> None:
    made: list[bool] = []

    class Noted(StateMachine):
        def __init__(self, policy: Policy, *, checked: bool) -> None:
            made.append(checked)
            super().__init__(policy, checked=checked)

    monkeypatch.setattr(inline, "StateMachine", Noted)
    configure(check=int(check))
    _, listener = run(abs, [-2])
    assert listener.values() == [2]
    assert made == [check]


def test_limits_that_do_not_hold_here_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher, listener = InlineDispatcher(), Received()
    f, calls = make_function(abs, ()), pickling.dump_calls([-1])
    for options in (
        {},
        {"timeout": 9.0},
        {"demand": Demand(Memory(1))},
        {"timeout": 9.0, "demand": Demand(WTime(9) & Memory(1))},
    ):
        task = make_task(dispatcher.new_id(), calls, **options)  # type: ignore[arg-type]
        dispatcher.submit(f, [task], listener)
    time, memory = (record.getMessage() for record in caplog.records)
    assert "a time limit (timeout=, WTime)" in time
    assert "a memory limit (Memory)" in memory
    assert "ProcessScheduler(1)" in memory


def test_an_exception_is_the_outcome_of_its_call_alone() -> None:
    _, listener = run(lambda x: 6 // x, [1, 0, 3])
    one, error, three = listener.values()
    assert (one, type(error), three) == (6, ZeroDivisionError, 2)


def test_a_call_is_retried_as_often_as_its_task_says_and_each_attempt_is_known() -> None:
    def fail(x: int) -> None:
        raise OSError(x)

    _, listener = run(fail, [1], (OSError,), retries=2, watched=True)
    [event] = listener.finished
    assert event.raised
    assert len(event.attempts) == 3
    assert [one.attempt for one in listener.began_events] == [1, 2, 3]


def test_output_and_messages_of_a_watched_call_are_received(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def talk(x: int, controller: Any) -> int:
        print("said", x)
        controller.push(x + 1)
        return x

    _, listener = run(talk, [1], watched=True, controlled=True)
    [event] = listener.finished
    assert (event.stdout, event.stderr) == (b"said 1\n", b"")
    assert capsys.readouterr().out == "said 1\n"
    assert listener.messages == [2]
    assert listener.began_events[0].pid == os.getpid()


def test_watched_calls_of_two_threads_leave_nothing_of_them_whichever_ends_first() -> None:
    before = sys.stdout, sys.stderr, current_process().name
    (began, begin), (ended, end) = os.pipe(), os.pipe()

    def first(x: int) -> None:
        os.read(began, 1)

    def second(x: int) -> str:
        os.write(begin, b"x")
        os.read(ended, 1)
        print("second")
        return current_process().name

    def run_first() -> None:
        run(first, [1], watched=True, name="first")
        os.write(end, b"x")

    thread = threading.Thread(target=run_first)
    thread.start()
    wait_until(lambda: current_process().name == "first")
    _, listener = run(second, [1], watched=True, name="second")
    thread.join()
    [event] = listener.finished
    assert (listener.values(), event.stdout) == (["second"], b"second\n")
    assert (sys.stdout, sys.stderr, current_process().name) == before
    for descriptor in (began, begin, ended, end):
        os.close(descriptor)


def run_pushing(calls: int, act: Callable[[InlineDispatcher, int, int], object]) -> Received:
    """Run calls of which each pushes its number, and then have this done with its task's."""
    dispatcher = InlineDispatcher()

    class Acting(Received):
        def noted(self, event: TaskMessage) -> None:
            act(dispatcher, event.task, pickling.load(event.payload))

    def push(x: int, controller: Any) -> int:
        controller.push(x)
        return x

    listener = Acting()
    payload = pickling.dump_calls(list(range(calls)))
    task = make_task(dispatcher.new_id(), payload, calls, controlled=True)
    dispatcher.submit(make_function(push), [task], listener)
    return listener


def test_a_task_that_is_cancelled_in_a_call_ends_after_that_call() -> None:
    listener = run_pushing(3, lambda inline, task, call: inline.cancel([task], signal.SIGINT))
    first, *others = listener.values()
    assert first == 0
    assert [type(error) for error in others] == [Cancelled] * 2
    assert {event.exitcode for event in listener.finished[1:]} == {-signal.SIGINT}


def test_calls_that_are_cancelled_in_another_are_not_made_and_those_after_them_are() -> None:
    def cancel(inline: InlineDispatcher, task: int, call: int) -> None:
        if call == 1:
            inline.cancel([], calls=[(task, 2, 3)])

    values = run_pushing(5, cancel).values()
    assert isinstance(values.pop(2), Cancelled)
    assert values == [0, 1, 3, 4]


def test_ctrl_c_in_a_call_goes_to_the_caller_and_each_call_has_its_outcome() -> None:
    dispatcher, listener = InlineDispatcher(), Received()

    def interrupt(x: int) -> int:
        if x == 2:
            raise KeyboardInterrupt
        return x

    tasks = [make_task(dispatcher.new_id(), pickling.dump_calls([0, 1, 2, 3]), 4) for _ in range(2)]
    with pytest.raises(KeyboardInterrupt):
        dispatcher.submit(make_function(interrupt), tasks, listener)
    outcomes = {
        (event.task, index): event.error
        for event in listener.finished
        for index in range(event.start, event.stop)
    }
    assert len(outcomes) == 8
    assert [type(outcomes[tasks[0].id, index]) for index in range(4)] == [
        type(None),
        type(None),
        Cancelled,
        Cancelled,
    ]
    assert all(isinstance(outcomes[tasks[1].id, index], Cancelled) for index in range(4))


def test_each_call_has_its_outcome_though_threads_that_it_started_push_values() -> None:
    def push(x: int, controller: Any) -> int:
        def go() -> None:
            for value in range(2000):
                controller.push(value)

        if x == 0:
            threading.Thread(target=go, name="pushes").start()
        return x

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(3):
            calls = list(range(2000))
            assert run(push, calls, controlled=True)[1].values() == calls
    finally:
        sys.setswitchinterval(interval)
        for thread in threading.enumerate():
            if thread.name == "pushes":
                thread.join()


def test_when_a_listener_fails_the_other_calls_have_their_outcomes_all_the_same() -> None:
    class Failing(Received):
        def settled(self, event: CallsFinished) -> None:
            super().settled(event)
            if event.task == 1:
                raise OSError("no room")

    dispatcher, listener = InlineDispatcher(), Failing()
    tasks = [make_task(dispatcher.new_id(), pickling.dump_calls([1]), 1) for _ in range(3)]
    with pytest.raises(OSError, match="no room"):
        dispatcher.submit(make_function(abs), tasks, listener)
    assert {event.task for event in listener.finished} == {1, 2, 3}


def test_nothing_is_run_by_a_dispatcher_that_is_closed() -> None:
    dispatcher, listener = run(abs, [-1])
    dispatcher.close()
    with pytest.raises(ConfigurationError, match="closed"):
        dispatcher.submit(make_function(abs), [], listener)


def chain(first: Any, *functions: Callable[[Any], Any]) -> tuple[InlineDispatcher, list[Received]]:
    """Run functions each on what the one before returned."""
    dispatcher, listeners = InlineDispatcher(), []
    for number, f in enumerate(functions):
        argument = Needed(2**40 + number) if number else first
        after = (2**40 + number,) if number else ()
        task = make_task(
            dispatcher.new_id(),
            pickling.dump_calls([argument]),
            after=after,
            kept=((0, 2**40 + number + 1),),
        )
        listeners.append(Received())
        dispatcher.submit(make_function(f), [task], listeners[-1])
    return dispatcher, listeners


def test_a_call_gets_the_result_of_another_made_anew() -> None:
    def grow(x: list[int]) -> list[int]:
        x.append(len(x))
        return x

    _, listeners = chain([], grow, grow, grow)
    assert [one.values() for one in listeners] == [[[0]], [[0, 1]], [[0, 1, 2]]]


def test_a_failure_is_that_of_all_that_depend_on_it() -> None:
    calls = []

    def fail(x: int) -> float:
        return x / 0

    _, listeners = chain(1, fail, calls.append, calls.append)
    assert [type(error) for one in listeners for error in one.values()] == [ZeroDivisionError] * 3
    assert calls == []


def test_results_of_others_are_waited_for_and_freed_when_released() -> None:
    dispatcher, listener = InlineDispatcher(), Received()
    task = make_task(dispatcher.new_id(), pickling.dump_calls([Needed(9)]), after=(9,))
    thread = threading.Thread(
        target=dispatcher.submit, args=(make_function(lambda x: 2 * x), [task], listener)
    )
    thread.start()
    dispatcher.want(5, 0, 9, lambda: dispatcher.supply(9, ResultData(pickling.dump_values([21]))))
    thread.join()
    assert listener.values() == [42]
    dispatcher.release_references([9])
    assert dispatcher.results == {}
    with pytest.raises(LookupError):
        shared_objects.find(input_name(9))


def test_waiting_for_results_of_others_ends_when_the_dispatcher_closes() -> None:
    dispatcher, refusals = InlineDispatcher(), list[ConfigurationError]()
    task = make_task(dispatcher.new_id(), pickling.dump_calls([Needed(9)]), after=(9,))

    def submit() -> None:
        try:
            dispatcher.submit(make_function(abs), [task], Received())
        except ConfigurationError as error:
            refusals.append(error)

    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    wait_until(lambda: bool(dispatcher._arrived._waiters))  # type: ignore[attr-defined]
    dispatcher.close()
    thread.join(SECONDS)
    assert [error.message for error in refusals] == ["this scheduler has been closed"]


def test_written_output_is_copied_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with copied(True) as (out, err):
        with copied(True) as (inner, _):
            print("both")
        print("outer")
        print("error", file=sys.stderr)
    assert (sys.stdout, sys.stderr) == before
    assert (out.getvalue(), err.getvalue()) == ("both\nouter\n", "error\n")
    assert inner.getvalue() == "both\n"
    assert capsys.readouterr() == ("both\nouter\n", "error\n")


def test_nothing_is_copied_that_nobody_wants() -> None:
    before = sys.stdout
    with copied(False) as (out, _):
        assert sys.stdout is before
    assert out.getvalue() == ""
