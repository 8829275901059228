"""An actor whose object lives in its client's own process: each call is answered before it returns,
by the thread that makes it. One call runs at a time all the same.
"""

from __future__ import annotations

from gridengine.call_context.actors import ActorObject, ActorTarget, decode_answer
from gridengine.call_context.current_call import GVAR, CurrentJob
from gridengine.calls.inline import PASSING
from gridengine.client.actor_calls import ActorCalls
from gridengine.client.future import CallFuture
from gridengine.client.future_outcomes import Failed
from gridengine.client.hand_in import TaskMaker
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload


class InlineActorCalls(ActorCalls):
    """The calls of one actor's methods, for an `InlineScheduler`."""

    _object: ActorObject | None = None

    def _make(self, maker: TaskMaker, payload: Payload) -> None:
        """Make the object of copies of its class and its arguments."""
        target, _ = pickling.load_function(maker.function.payload)
        [(args, kwargs)], _ = pickling.load_items(payload)
        assert isinstance(target, ActorTarget)
        self.task, self._ready = self.dispatcher.new_id(), True
        with GVAR.running(self._job()):
            try:
                self._object = ActorObject(target.make, args, kwargs, PASSING)
            except PASSING:
                raise
            except BaseException as error:
                self.failure = error

    def _job(self) -> CurrentJob:
        asked = self.options.demand.request
        return CurrentJob(self.task, 1, asked.holder().allocate(asked), lambda: 0)

    def _tell(self, request: Payload, future: CallFuture) -> None:
        assert self._object is not None
        try:
            with GVAR.running(self._job()):
                answer = self._object.answer(request)
        except BaseException as error:  # one of `PASSING`, which ends the caller too
            self._sent.clear()
            self.settle([future], Failed(error))
            raise
        assert answer is not None
        self._settle_call(decode_answer(answer[0]), answer[1:])

    def _end_soon(self) -> None:
        with self._sending:  # no method runs
            self._object = None
