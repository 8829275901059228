"""What futures of calls say that were ended when all was closed, and of calls that nobody makes."""

from __future__ import annotations

import concurrent.futures
import time

import pytest

import gridengine
from tests.support.waiting import wait_until


@pytest.mark.promise
def test_a_call_that_a_close_has_ended_is_cancelled_as_the_standard_library_has_it() -> None:
    scheduler = gridengine.ProcessScheduler(1)
    executor = gridengine.Executor(scheduler=scheduler)
    futures = [executor.submit(time.sleep, 600) for _ in range(3)]
    futures.append(executor.submit(str, futures[-1]))
    wait_until(futures[0].running)
    scheduler.close()
    for future in futures:  # those that ran, and those that waited
        with pytest.raises(concurrent.futures.CancelledError):
            future.result(60)
        assert future.cancelled()
        assert isinstance(future.exception(), gridengine.Cancelled)


@pytest.mark.promise
def test_a_call_that_raises_cancelled_itself_is_not_cancelled() -> None:
    def fail() -> None:
        raise gridengine.Cancelled("of the call's own")

    with gridengine.Executor(max_workers=1) as executor:
        future = executor.submit(fail)
        assert isinstance(future.exception(60), gridengine.Cancelled)
        assert not future.cancelled()
