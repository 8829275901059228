"""What a runner does for watched runs alone: for jobs, which may push values and leave threads
behind, and for actors, which read what their clients tell them.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from gridengine.call_context.current_call import Controller, process_name
from gridengine.call_context.status_block import RUN
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.system import reset_peak_memory
from gridengine.wire.messages import Assignment, Deliver, Pushed, Started
from gridengine.worker import multiprocessing_state
from gridengine.worker.process_setup import exit_forked, flush_output
from gridengine.worker.result_buffer import ResultBuffer


class WatchedRuns:
    """The client's side of the watched run in progress.

    Args:
        words: the status block.
        read: waits for messages of the agent, and handles them.
    """

    def __init__(
        self, result_buffer: ResultBuffer, words: memoryview, read: Callable[[], object]
    ) -> None:
        self._result_buffer = result_buffer
        self._words = words
        self._read = read
        self._heard: deque[Payload] = deque()
        """What the client has told the call in progress, unread."""
        self.has_finished = False
        """Whether this process has waited for its threads and can do nothing but end."""

    def begin(self, run: int) -> None:
        """Begin a run: tell the dispatcher, and measure its peak memory."""
        reset_peak_memory()
        self._heard.clear()
        self._result_buffer.deliver(Started(run, os.getpid()))

    def extended(self, function: Callable[..., Any], assignment: Assignment) -> Callable[..., Any]:
        """Return the function of a run, extended to get a controller if it is `controlled`, and to
        wait for the threads and processes that it leaves behind if it is watched.
        """
        if assignment.controlled:
            function = with_controller(function, assignment, self._push)
        if not assignment.watched:
            return function

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                with process_name(assignment.name):
                    return function(*args, **kwargs)
            finally:
                if not self._result_buffer.is_forked() and multiprocessing_state.is_running():
                    self.has_finished = True
                    multiprocessing_state.finish(f"job {assignment.name}")

        return call

    def _push(self, run: int, value: Any) -> None:
        payload = pickling.dump(value)
        self._result_buffer.deliver(Pushed(run, len(payload)), payload)

    def push(self, payload: Payload) -> None:
        """Send the client of the call in progress something, after all that the call printed."""
        if self._result_buffer.is_forked():
            exit_forked(None)
        flush_output()
        self._result_buffer.deliver(Pushed(self._words[RUN], len(payload)), payload)

    def hear(self) -> Payload:
        """Wait for the next thing that the client tells the call in progress, and return it. The
        agent's other messages are handled meanwhile.

        Raises:
            EOFError: the agent has closed the channel.
        """
        while not self._heard:
            self._read()
        return self._heard.popleft()

    def deliver(self, message: Deliver, buffers: Payload) -> None:
        """Take what the client tells the call in progress of a run."""
        if message.run == self._words[RUN]:
            self._heard.append(buffers)


def with_controller(
    function: Callable[..., Any], assignment: Assignment, push: Callable[[int, Any], None]
) -> Callable[..., Any]:
    """Return the function, extended to get a controller. While it runs, SIGTERM sets `cancelled`
    and does not kill.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        controller = Controller(
            job_id=assignment.task,
            attempt=assignment.attempt,
            push=partial(push, assignment.run),
        )
        before = signal.signal(signal.SIGTERM, lambda number, frame: controller.cancel())
        try:
            return function(*args, **kwargs, controller=controller)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)

    return call
