"""The object of an actor, where it lives: in the call that made it, which reads one request after
the other and answers each.

    client --Tell--> dispatcher --Deliver--> agent --> hear(): the number of a request, its method
                                                              and pickled arguments
           <-TaskPushed----------- <-Pushed------------ push(): the same number, and the pickled
                                                              result or exception

The call is a call like others: it has its resources, its limits and its place among the calls of
its worker, and when its process or worker dies, it ends with the error that says so. It may run
only once, so no method is ever run again. A call that waits for a request sleeps on its channel.

Rejected: each method as a call of its own that is pinned to one runner. The core would have to
know of objects that only one process has, and each rule of who runs what would need an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

import msgspec

from gridengine.call_context.coroutines import finished, library_of
from gridengine.call_context.current_call import calling_process
from gridengine.errors import CallError, ConfigurationError
from gridengine.serialize import pickling
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Waits

READY = 0
"""The number of the answer that says that the object is made; requests count from 1."""
END = ""
"""In the place of a method: the actor is to end."""


class ActorRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The head of a request: its first buffer, before the pickled list of its one call."""

    number: int
    method: str


class ActorAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The head of an answer: its first buffer, before the pickled list with its one value or, with
    `raised`, the pickled exception. `seconds` is how long the method took.
    """

    number: int
    raised: bool = False
    seconds: float = 0.0


encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(ActorRequest).decode
decode_answer = msgspec.msgpack.Decoder(ActorAnswer).decode


class ActorTarget:
    """The function of an actor's call: makes the object, and answers requests until the last.

    lends: while nobody calls it, the actor leaves its slot to others, as a call that waits for
        nested calls does. An actor that a call makes may have got the slot that this call left, and
        the call gets no other to go on with.
    """

    def __init__(self, make: Callable[..., Any], lends: bool = False) -> None:
        self.make = make
        self.lends = lends
        self.__name__ = getattr(make, "__name__", type(make).__name__)

    def __call__(self, /, *args: Any, **kwargs: Any) -> None:
        process = calling_process()
        if process is None:
            raise ConfigurationError("an actor lives in a worker's own process, and this is none")
        actor = ActorObject(self.make, args, kwargs)
        answer: Payload | None = [encode(ActorAnswer(READY))]
        while answer is not None:
            if self.lends:  # again after each method: one that has waited for calls has a slot
                process.states.tell(Waits(process.number, process.run), ())
            process.push(answer)
            answer = actor.answer(process.hear())


class ActorObject:
    """The object, and the calls of its methods.

    passing: exceptions that answer no call, but are raised where the object lives.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        passing: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._passing = passing
        self._object = make(*args, **kwargs)

    def answer(self, request: Payload) -> Payload | None:
        """Return the answer to a request; None to the last one."""
        head = decode_request(request[0])
        if head.method == END:
            return None
        began, raised = monotonic(), False
        try:
            value = self._call(head.method, request[1:])
            payload = pickling.dump_values(
                [value], describe=lambda _: f"the result of {head.method}"
            )
        except self._passing:
            raise
        except KeyboardInterrupt as error:  # in the caller it would end the caller
            stray = CallError(f"{head.method} raised KeyboardInterrupt in the actor's process")
            payload, raised = pickling.dump_exception(stray, origin=error), True
        except BaseException as error:
            payload, raised = pickling.dump_exception(error), True
        return [encode(ActorAnswer(head.number, raised, monotonic() - began)), *payload]

    def _call(self, name: str, payload: Payload) -> Any:
        [call], _ = pickling.load_items(payload)
        if type(call) is Unloadable:
            raise call.error
        args, kwargs = call
        method = getattr(self._object, name)
        value = method(*args, **kwargs)
        return finished(value, library_of(method)) if isinstance(value, Coroutine) else value
