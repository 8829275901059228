"""The dispatcher as seen from inside a call: requests go through the runner's agent to the
dispatcher that runs the call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from gridengine.call_context.current_call import GVAR, CallingProcess
from gridengine.calls.interface import CallSlot
from gridengine.calls.requesting import RequestingDispatcher
from gridengine.errors import ConfigurationError, GridEngineError, NestingError
from gridengine.requests import Task
from gridengine.serialize.payload import Payload
from gridengine.wire.channel import Received
from gridengine.wire.messages import Allocate, Message, NestedHello, Resumed


class NestedDispatcher(RequestingDispatcher):
    """Runs tasks on the workers of the dispatcher that runs this process's calls.

    Tasks belong to the call that runs when they are submitted, and are cancelled when it ends,
    unless their submitter is detached.

    Raises:
        ConfigurationError: the agent of this process is gone.
    """

    call_slot: CallSlot

    def __init__(self, process: CallingProcess) -> None:
        super().__init__(process.number)
        self._process = process
        try:
            self._channel = process.connect()
        except LookupError as error:
            raise ConfigurationError(f"this call cannot submit calls: {error}") from error
        self._pid = process.pid
        self._submitters: dict[int, tuple[int, int]] = {}
        """For each submitter: the run that it last submitted for, and the submitter's number for
        that run.
        """
        self._apart: set[int] = set()
        """Detached tasks that may not have ended."""
        self._hands_apart = False
        """Whether the present call has submitted detached tasks."""
        self._handlers |= {Allocate: self._allocate, Resumed: self._resumed}
        self.call_slot = self._new_slot()
        self._begin(NestedHello(process.number), "gridengine-nested")

    def _new_slot(self) -> CallSlot:
        process = self._process
        return CallSlot(process.number, lambda: process.run, self._request)

    def detach(self, submitter: int) -> None:
        self._detached.add(submitter)

    def _note(self, tasks: Sequence[Task]) -> None:
        if tasks[0].options.submitter in self._detached:
            self._apart.update(task.id for task in tasks)
            self._hands_apart = True
        GVAR.at_end = self.end_call

    def close(self, *, wait: bool = True) -> None:
        """Cancel all nested calls of this process. The dispatcher can still be used."""
        if open_tasks := self._unsettled.ids():
            self.cancel(open_tasks)

    def end_call(self) -> None:
        """Called when a call has ended: end its nested calls, and release its threads and tasks
        that still wait for its slot.
        """
        GVAR.at_end = None
        slot, self.call_slot = self.call_slot, self._new_slot()
        slot.close()
        self._submitters.clear()
        # The dispatcher must have detached tasks before: it refuses those of a call that has ended.
        if self._hands_apart:
            self._hands_apart = False
            with contextlib.suppress(GridEngineError):  # the dispatcher is gone
                self.catch_up()
        if children := self._children():
            for listener in set(map(self._unsettled.listener, children)):
                if listener is not None:
                    listener.abandoned()
            self.cancel(children)

    def _children(self) -> list[int]:
        """Return the open tasks that end with the present call."""
        open_tasks = self._unsettled.ids()
        self._apart.intersection_update(open_tasks)
        return [task for task in open_tasks if task not in self._apart]

    def _present_run(self) -> int:
        return self._process.run

    def _submitter(self, number: int, run: int) -> int:
        """Return the number of a submitter for this run. Each run has a number of its own, because
        the core takes a submitter's client and depth from the call that first submits with it.
        """
        known = self._submitters.get(number)
        if known is None or known[0] != run:
            known = self._submitters[number] = run, self.new_id()
        return known[1]

    # ---------------------------------------------------------------- the connection

    def _deliver(self, message: Message, buffers: Payload = ()) -> None:
        self._channel.deliver(message, buffers)

    def _receive(self) -> Received:
        try:
            return self._channel.wait()
        except EOFError:
            raise EOFError("the agent of this process is gone") from None

    def _fail(self, error: GridEngineError) -> None:
        super()._fail(error)
        self.call_slot.close()

    def _allocate(self, message: Allocate, buffers: Payload) -> None:
        """Take over the allocation for the call that resumes next."""
        try:
            self._process.allocate(message, buffers)
        except Exception as error:  # a user's own kind of resource may raise anything
            self.call_slot.refuse(error)

    def _resumed(self, message: Resumed, buffers: Payload) -> None:
        """Let the call go on that has got a slot, or that was refused."""
        slot = self.call_slot
        if message.run != slot.run:
            return
        if not message.refused:
            slot.resumed()
        elif slot.refuse(NestingError(message.refused)):
            # The dispatcher refuses to let the call wait. Its nested calls may then never get a
            # slot, so they end.
            children = self._children()
            self._settle(NestingError(message.refused), children)
            self.cancel(children)
