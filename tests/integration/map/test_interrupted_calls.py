"""Calls whose own process is interrupted."""

from __future__ import annotations

import os
import signal
import time

import pytest

import gridengine
from tests.support.tcp_scheduler import TcpScheduler


def interrupted(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    return number


@pytest.mark.promise
@pytest.mark.parametrize("kind", [gridengine.ProcessScheduler, TcpScheduler])
def test_an_interruption_of_a_calls_own_process_is_an_error_of_the_call(
    kind: type[gridengine.Scheduler],
) -> None:
    with kind(1) as scheduler:
        results = gridengine.map(interrupted, range(3), reraise=False, scheduler=scheduler)
    assert (results[0], type(results[1]), results[2]) == (0, gridengine.CallError, 2)
    assert "call 1 of interrupted raised KeyboardInterrupt" in str(results[1])
