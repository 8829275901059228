"""The dispatcher as calls have it that make calls: what is asked of it goes to the one that runs
them, by the agent of their process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from gridengine.calls.requesting import HANDLERS, RequestingDispatcher
from gridengine.dispatcher.call_slot import CallSlot
from gridengine.dispatcher.core.tasks import Task
from gridengine.errors import ConfigurationError, GridEngineError, NestingError
from gridengine.serialize.payload import Payload
from gridengine.wire.channel import Received
from gridengine.wire.messages import Allocate, Message, NestedHello, Resumed
from gridengine.worker.call_context import GVAR
from gridengine.worker.calling_process import CallingProcess


class NestedDispatcher(RequestingDispatcher):
    """Runs tasks on the workers of the dispatcher that runs this process's calls.

    Tasks are children of the call that runs when they are submitted, and end with it at the latest.

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
            raise ConfigurationError(f"this call can make no calls of others: {error}") from error
        self._pid = process.pid
        self._submitters: dict[int, tuple[int, int]] = {}
        """Of each submitter the run that it submitted for last, and its number for that."""
        self._apart: set[int] = set()
        """The detached tasks that may not have ended."""
        self._hands_apart = False
        """Whether the call that runs has submitted any."""
        self._handlers = NESTED_HANDLERS
        self.call_slot = self._new_slot()
        self._begin(NestedHello(process.number), "gridengine-nested")

    def _new_slot(self) -> CallSlot:
        process = self._process
        return CallSlot(process.number, lambda: process.run, self._send)

    def detach(self, submitter: int) -> None:
        self._detached.add(submitter)

    def _note(self, tasks: Sequence[Task]) -> None:
        if tasks[0].submitter in self._detached:
            self._apart.update(task.id for task in tasks)
            self._hands_apart = True
        GVAR.at_end = self.end_call

    def close(self, *, wait: bool = True) -> None:
        """End all calls that this process's calls have made. It can be used as before."""
        if open_tasks := self._unsettled.ids():
            self.cancel(open_tasks)

    def end_call(self) -> None:
        """Note that the call has ended that ran here: what it has made, and what waits for that,
        ends too.
        """
        GVAR.at_end = None
        slot, self.call_slot = self.call_slot, self._new_slot()
        slot.close()
        self._submitters.clear()
        if self._hands_apart:  # the dispatcher takes none of a call that has ended
            self._hands_apart = False
            with contextlib.suppress(GridEngineError):  # nobody is there to run them
                self.catch_up()
        if children := self._children():
            for listener in set(map(self._unsettled.listener, children)):
                if listener is not None:
                    listener.abandoned()
            self.cancel(children)

    def _children(self) -> list[int]:
        """Return the tasks that end with the call that runs."""
        open_tasks = self._unsettled.ids()
        self._apart.intersection_update(open_tasks)
        return [task for task in open_tasks if task not in self._apart]

    def _present_run(self) -> int:
        return self._process.run

    def _submitter(self, number: int, run: int) -> int:
        """Return the number of a submitter for the children of this run: those of each have one of
        their own.
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
        """Keep to what the call is given that is resumed next."""
        try:
            self._process.allocate(message, buffers)
        except Exception as error:  # a kind may be a user's own
            self.call_slot.refuse(error)

    def _resumed(self, message: Resumed, buffers: Payload) -> None:
        slot = self.call_slot
        if message.run != slot.run:
            return
        if not message.refused:
            slot.resumed()
        elif slot.refuse(NestingError(message.refused)):
            children = self._children()
            self._settle(NestingError(message.refused), children)
            self.cancel(children)


NESTED_HANDLERS: Mapping[type, Callable[..., None]] = MappingProxyType(
    {
        **HANDLERS,
        Allocate: NestedDispatcher._allocate,
        Resumed: NestedDispatcher._resumed,
    }
)
