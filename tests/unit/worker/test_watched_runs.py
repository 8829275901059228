"""How a watched run talks with its client."""

from __future__ import annotations

import signal
from typing import Any

from gridengine.call_context.current_call import Controller
from gridengine.serialize.payload import SINGLE
from gridengine.wire.messages import Assignment
from gridengine.worker.watched_runs import with_controller

ASSIGNMENT = Assignment(5, 7, b"f", 0, 1, 2, SINGLE)


def test_a_call_with_a_controller_is_asked_to_end_and_not_killed() -> None:
    pushed: list[tuple[int, object]] = []

    def call(number: int, controller: Controller) -> tuple[int, int, bool]:
        controller.push(number)
        assert not controller.cancelled
        signal.raise_signal(signal.SIGTERM)
        return controller.job_id, controller.attempt, controller.cancelled

    def push(run: int, value: Any) -> None:
        pushed.append((run, value))

    before = signal.getsignal(signal.SIGTERM)
    assert with_controller(call, ASSIGNMENT, push)(3) == (7, 2, True)
    assert pushed == [(5, 3)]
    assert signal.getsignal(signal.SIGTERM) == before
