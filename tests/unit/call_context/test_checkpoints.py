"""Calls that ask whether they must stop, save their state, and find it."""

from __future__ import annotations

import functools
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.call_context.checkpoints import NextCall, checkpoint, next_call, save, saved
from gridengine.call_context.current_call import GVAR, Interrupted
from gridengine.call_context.status_block import LISTENS, STOP_BY, STOP_NOW
from gridengine.errors import CallError, ConfigurationError
from gridengine.serialize import pickling
from gridengine.wire.messages import INTERRUPTED, RAISED, Saved
from tests.support.runner_driver import RunnerDriver


@pytest.fixture
def driver() -> Any:
    made = RunnerDriver()
    with socket.socket(socket.AF_UNIX) as requests:
        GVAR.process = made.runner.as_calling_process(7, requests)
        yield made
    GVAR.process = None


def test_outside_of_a_call_nothing_must_stop_and_nothing_is_saved() -> None:
    assert checkpoint() is None
    save("state")
    assert saved() is None


@pytest.mark.parametrize(("notice", "kind"), [("1", TypeError), (0, ConfigurationError)])
def test_a_notice_that_is_no_time_is_refused(notice: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="notice"):
        checkpoint(notice)


def test_no_state_cannot_be_saved() -> None:
    with pytest.raises(ConfigurationError, match=r"save\(None\)"):
        save(None)


def asks(notice: float) -> Any:
    return checkpoint(notice)


def test_a_call_of_a_worker_without_an_end_goes_on_and_is_known_to_ask(
    driver: RunnerDriver,
) -> None:
    driver.assign(asks, [60.0])
    driver.play()
    assert driver.values() == [None]
    assert driver.words[LISTENS] == 1


def test_a_call_must_stop_in_the_time_that_it_names_before_its_worker_s_end(
    driver: RunnerDriver,
) -> None:
    def waits(notice: float) -> Any:
        while not (told := checkpoint(notice)):
            pass
        return told.seconds_left

    driver.words[STOP_BY] = time.monotonic_ns() + int(1e8)
    driver.assign(waits, [0.09], [60.0])
    driver.play()
    first, second = driver.values()
    assert 0 <= first <= 0.09
    assert 0 <= second <= 0.05  # half of what was left when it first asked


def test_a_worker_that_leaves_now_gives_no_time_of_its_own(driver: RunnerDriver) -> None:
    driver.words[STOP_NOW] = 1
    driver.assign(asks, [1.0])
    driver.play()
    assert [one.by for one in driver.values()] == [float("inf")]


def test_a_call_that_stops_says_so_after_its_state(driver: RunnerDriver) -> None:
    def stops(x: int) -> None:
        if checkpoint():
            save({"x": x})
            raise Interrupted

    driver.words[STOP_NOW] = 1
    driver.assign(stops, [3])
    driver.play()
    message, buffers = driver.channel.sent[0]
    assert (message, pickling.load(buffers)) == (Saved(1, 0), {"x": 3})
    [(result, error)] = driver.outcomes()
    assert (result.status, type(error)) == (INTERRUPTED, CallError)


def test_a_call_that_was_not_told_to_stop_fails(driver: RunnerDriver) -> None:
    def stops(x: int) -> None:
        raise Interrupted

    driver.assign(stops, [3])
    driver.play()
    [(result, error)] = driver.outcomes()
    assert result.status == RAISED
    assert "was not told to stop" in str(error)


def test_a_call_finds_the_saved_state_of_an_earlier_attempt_and_a_copy_each_time(
    driver: RunnerDriver,
) -> None:
    def finds(x: int) -> Any:
        mine = saved()
        if mine:
            mine.append(x)
        return mine, saved()

    state = pickling.dump(["kept"])
    payload = pickling.dump_calls([1, 2])
    driver.assign(finds, [1, 2], saved=[(1, len(state))], buffers=len(payload) + len(state))
    driver.channel.incoming[-1][1].extend(state)  # type: ignore[attr-defined]
    driver.play()
    assert driver.values() == [(None, None), (["kept", 2], ["kept"])]


def test_a_later_run_does_not_find_the_state_of_another(driver: RunnerDriver) -> None:
    def finds(x: int) -> Any:
        save(x)
        return saved()

    driver.assign(finds, [1])
    driver.assign(lambda x: saved(), [2])
    driver.play()
    assert driver.values() == [1, None]


class Counter:
    """An object by submitit's convention."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, until: int, *, seconds: float = 60.0) -> int:
        deadline = time.monotonic() + seconds
        while self.count < until and time.monotonic() < deadline:
            self.count += self.count < until - 1
        return self.count

    def checkpoint(self, until: int, **others: Any) -> Any:
        return SimpleNamespace(function=self, args=(until,), kwargs={"seconds": 0.01})


def test_an_object_with_a_method_checkpoint_is_asked_for_its_next_attempt(
    driver: RunnerDriver,
) -> None:
    driver.words[STOP_NOW] = 1
    driver.assign(Counter(), [5])
    driver.play()
    state = pickling.load(driver.channel.sent[0][1])
    assert type(state) is NextCall
    assert (state.function.count, state.args, state.kwargs) == (4, (5,), {"seconds": 0.01})
    assert [result.status for result, _ in driver.outcomes()] == [INTERRUPTED]


def test_the_next_attempt_has_the_saved_state(driver: RunnerDriver) -> None:
    one = Counter()
    one.count = 3
    state = pickling.dump(NextCall(one, (3,), {}))
    payload = pickling.dump_calls([5])
    driver.assign(Counter(), [5], saved=[(0, len(state))], buffers=len(payload) + len(state))
    driver.channel.incoming[-1][1].extend(state)  # type: ignore[attr-defined]
    driver.play()
    assert driver.values() == [3]


def test_the_next_attempt_may_be_a_partial() -> None:
    assert next_call(functools.partial(pow, 2, exp=3)) == NextCall(pow, (2,), {"exp": 3})


def test_a_save_outside_a_call_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is not a call"):
        next_call("again")
