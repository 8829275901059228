"""A thread that does what it is asked to."""

from __future__ import annotations

import logging
import threading
import weakref

import pytest

from gridengine.dispatcher.thread_queues import HelperThread


def test_requests_are_done_in_order_before_the_thread_ends() -> None:
    helper, done = HelperThread("helper"), []
    for number in range(100):
        helper.do(lambda number=number: done.append((number, helper.is_current())))  # type: ignore[misc]
    helper.end(wait=True)
    assert done == [(number, True) for number in range(100)]
    assert not helper.is_current()


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_an_exception_of_a_request_is_told_and_ends_no_other(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    helper, done = HelperThread("helper"), []
    helper.do(fail)
    helper.do(lambda: done.append(1))
    with caplog.at_level(logging.ERROR, logger="gridengine"):
        helper.end(wait=True)
    assert done == [1]
    assert "a request failed" in caplog.text


def test_a_helper_thread_may_end_itself_and_be_ended_twice() -> None:
    helper = HelperThread("helper")
    ended = threading.Event()

    def end() -> None:
        helper.end(wait=True)  # waits for nobody: it is this thread
        ended.set()

    helper.do(end)
    assert ended.wait(60)
    helper.end(wait=True)


def test_nothing_of_a_request_is_kept_once_it_is_done() -> None:
    class Request:
        def __call__(self) -> None:
            """Do nothing."""

    gone = threading.Event()
    helper, request = HelperThread("helper"), Request()
    weakref.finalize(request, gone.set)
    helper.do(request)
    del request
    assert gone.wait(60)
    helper.end(wait=True)
