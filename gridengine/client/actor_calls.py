"""The calls of an actor's methods, as their client has them: numbered in the order in which they
were made, sent a few ahead, and settled by the answers; see `call_context/actors` for the other
end.

A call that was sent cannot be withdrawn any more, and takes memory on its way. Therefore calls wait
here, and few of them travel ahead: one while methods are slow, more while they are quick.
"""

from __future__ import annotations

import functools
import itertools
import signal
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from gridengine.call_context.actors import (
    END,
    READY,
    ActorAnswer,
    ActorRequest,
    ActorTarget,
    decode_answer,
    encode,
)
from gridengine.calls.interface import Dispatcher
from gridengine.client.executor_lifetime import Settlement
from gridengine.client.functions import make_function
from gridengine.client.future import MOST_CALLS, CallFuture, CallTemplate
from gridengine.client.future_outcomes import RUNNING, WAITING, Failed, UndecodedResult
from gridengine.client.hand_in import TaskMaker
from gridengine.client.options import CallOptions
from gridengine.client.outcomes import OutcomeListener, outcomes_of
from gridengine.errors import ActorLost, Cancelled, ConfigurationError, GridEngineError
from gridengine.requests import CallsFinished, Function, TaskBegan, TaskMessage
from gridengine.resources.demand import ANY
from gridengine.schedulers.base import Scheduler
from gridengine.serialize.argument_snapshot import is_constant
from gridengine.serialize.payload import FULL, Payload
from gridengine.serialize.references import Reference, awaited_in
from gridengine.serialize.shared_objects import needs_of
from gridengine.wire.messages import Attempt

QUICK_SECONDS = 0.01
MOST_SENT, MOST_SLOW = 64, 2
"""How many calls without an answer may have been sent, while the last one took up to
`QUICK_SECONDS`, and while it took longer.
"""
MAKER = "the making of {name}"
"""The name of the call that makes the object, in the note of its exception."""
ANEW = "make the actor anew: its object is gone, and no method is run again by itself"


class ActorCalls(Settlement, OutcomeListener):
    """The calls of one actor's methods. Any thread may make them.

    `name` is the actor's, for people. The scheduler, and with it its workers, lives at least as
    long as this.
    """

    def __init__(
        self, dispatcher: Dispatcher, scheduler: Scheduler, name: str, options: CallOptions
    ) -> None:
        super().__init__(dispatcher, scheduler, ours=False, daemon=False)
        self.name = name
        self.options = options
        self.task = 0
        """The number of the call that makes the object and answers; 0 until it is submitted."""
        self.began_at: TaskBegan | None = None
        self.failure: BaseException | None = None
        """Why there are no more answers; None while there are."""
        self._templates: dict[str, CallTemplate] = {}
        self._waiting: deque[tuple[CallFuture, Payload]] = deque()
        self._sent: dict[int, CallFuture] = {}
        self._numbers = itertools.count(READY + 1)
        self._most = MOST_SLOW
        self._sending = threading.RLock()
        """Held while calls are sent, so that they are in their order."""
        self._is_open = self._ready = self._ends = self._told_end = False

    def begin(
        self, make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Have the object made.

        Raises:
            PicklingError: the class or an argument cannot be pickled.
            ConfigurationError: no worker can hold the demand, or the scheduler is closed.
        """
        within_call = self.dispatcher.call_slot is not None
        function = make_function(ActorTarget(make, within_call), logs=self.options.logs)
        maker = TaskMaker(self.dispatcher, function, FULL, self.options)
        self._make(maker, maker.pickled([(args, kwargs)]))

    def _make(self, maker: TaskMaker, payload: Payload) -> None:
        """Submit the call that makes the object and answers requests."""
        if self.options.demand is not ANY:
            self.dispatcher.check(self.options.demand)
        function = maker.function
        needed = maker.introduce(function.payload, payload)
        task = maker.task(payload, needed=needed, watched=True, name=self.name)
        self.task = task.id
        self._open, self._is_open = self._open + 1, True
        try:
            self.dispatcher.submit(function, [task], self)
        except BaseException:
            self._open, self._is_open = self._open - 1, False
            raise

    # ---------------------------------------------------------------- calls, from any thread

    def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallFuture:
        """Call a method, after all calls that were made before, and return its future. If the call
        cannot be pickled, or the actor is lost, the error is the future's exception.

        Raises:
            RuntimeError: the actor was shut down.
        """
        template = self._template(method)
        try:
            payload = _dump(template, args, kwargs)
        except Exception as error:
            self.check()
            return CallFuture(template, None, Failed(error))
        future = CallFuture(template, None)
        with self.lock:
            self.check()
            if self.failure is not None:
                return CallFuture(template, None, Failed(self.failure))
            self._open += 1
            self._waiting.append((future, payload))
        self._send_waiting()
        return future

    def _template(self, method: str) -> CallTemplate:
        template = self._templates.get(method)
        if template is None:
            function = Function(
                digest=method.encode(),
                payload=(),
                path=(),
                directory=b"",
                name=f"{self.name}.{method}",
            )
            template = CallTemplate(self.dispatcher, function, FULL, self.options, batcher=self)
            self._templates[method] = template
        return template

    def _send_waiting(self) -> None:
        """Send the calls that wait, as many as may travel ahead; after the last one, if the actor
        is to end, the word that it shall.
        """
        with self._sending:
            while (sendable := self._next()) is not None:
                number, future, payload = sendable
                head = encode(ActorRequest(number, future.template.function.digest.decode()))
                self._tell([head, *payload], future)
            if self._ends and self._ready and not (self._waiting or self._told_end):
                self._told_end = True
                self.dispatcher.tell(self.task, [encode(ActorRequest(0, END))])

    def _next(self) -> tuple[int, CallFuture, Payload] | None:
        """Take the next call from the queue, with a number for it; None if none may be sent now."""
        with self.lock:
            while self._ready and self._waiting and len(self._sent) < self._most:
                future, payload = self._waiting.popleft()
                if future.outcome is WAITING:
                    future.outcome = RUNNING
                    number = next(self._numbers)
                    future.place = number * MOST_CALLS
                    self._sent[number] = future
                    return number, future, payload
            return None

    def _tell(self, request: Payload, future: CallFuture) -> None:
        """Send a request, whose answer settles the future."""
        self.dispatcher.tell(self.task, request)

    def end(self, *, cancel: bool) -> None:
        """Take no more calls, and end the actor when the calls that wait have ended; with `cancel`,
        withdraw those that were not sent.
        """
        self.stop()
        if cancel:
            self.withdraw_waiting()
        self._end_soon()

    def close(self, *, wait: bool) -> None:
        self._helper.do(self._end_soon)  # not here: the garbage collector may call this
        super().close(wait=wait)

    def _end_soon(self) -> None:
        """Have the actor end after the calls that wait. One that has no calls and waits for a
        worker never begins.
        """
        self._ends = True
        if not (self._ready or self._waiting):
            self.dispatcher.recall([(self.task, 0, 1)])
        self._send_waiting()

    def kill_all(self) -> None:
        """Take no more calls, and end the actor now, whatever it is doing."""
        self.stop()
        self.dispatcher.cancel([self.task], signal.SIGKILL)

    # ---------------------------------------------------------------- for futures

    def withdraw_waiting(self) -> None:
        with self.lock:
            waiting = [future for future, _ in self._waiting]
        for future in waiting:
            future.cancel()

    def recall(self, future: CallFuture) -> None:
        """Do nothing: a call that was sent is made."""

    def is_durable(self, future: CallFuture) -> bool:
        return future.done()

    def bind_reference(self, future: CallFuture, reference: Reference) -> bool:
        return False

    def _place_of(self, future: CallFuture) -> tuple[int, int]:
        return self.task, 0

    def _progress(self, calls: int, load: int, futures: int = 0) -> None:
        with self.lock:
            self._note_ended(futures)

    # ---------------------------------------------------------------- answers, in the I/O thread

    def began(self, event: TaskBegan) -> None:
        self.began_at = event

    def noted(self, event: TaskMessage) -> None:
        """Settle the call that this answers."""
        if event.log:
            super().noted(event)
            return
        answer = decode_answer(event.payload[0])
        if answer.number == READY:
            self._ready = True
        else:
            self._settle_call(answer, event.payload[1:])
        if self._waiting or self._ends:
            self._helper.do(self._send_waiting)

    def _settle_call(self, answer: ActorAnswer, payload: Payload) -> None:
        future = self._sent.pop(answer.number, None)
        if future is not None:
            attempts = self._attempts(answer.seconds) if answer.raised else ()
            ended = CallsFinished(
                task=answer.number,
                start=0,
                stop=1,
                payload=payload,
                raised=answer.raised,
                attempts=attempts,
                seconds=answer.seconds,
            )
            self._most = MOST_SENT if answer.seconds <= QUICK_SECONDS else MOST_SLOW
            self.settle([future], UndecodedResult(ended))

    def _attempts(self, seconds: float) -> tuple[Attempt, ...]:
        began = self.began_at
        if began is None:
            return ()
        ended = Attempt(host=began.host, job="", started=0.0, ended=seconds, outcome="it raised")
        return (ended,)

    def settled(self, event: CallsFinished) -> None:
        """The actor has ended. Its error may be the user's own, which is not unpickled here."""
        self._helper.do(lambda: self._end_by(self._why_ended(event)))

    def abandoned(self) -> None:
        """End with the call that has made the actor: its process does not wait for the outcome."""
        ended = Cancelled(f"{self.name} has ended with the call that made it")
        self._helper.do(functools.partial(self._end_by, ended))

    def restarted(self) -> None:
        """Give up the actor: requests and answers may be lost, and a method must not run twice."""
        error = ActorLost(
            f"{self.name} is lost: the dispatcher was started again, and keeps no calls of actors",
            hint=ANEW,
        )
        self._helper.do(functools.partial(self._fail_all, error))
        self.dispatcher.cancel([self.task], signal.SIGKILL)

    # ---------------------------------------------------------------- the end, in the helper thread

    def _end_by(self, error: BaseException) -> None:
        """Note, once, that the actor has ended."""
        self._fail_all(error)
        with self.lock:
            self._note_ended(int(self._is_open))
            self._is_open = False

    def _fail_all(self, error: BaseException) -> None:
        """Give an error to all calls that have no outcome, and to all later ones."""
        with self.lock:
            self.failure = self.failure or error
            left = [*self._sent.values(), *(one for one, _ in self._waiting)]
            self._sent.clear()
            self._waiting.clear()
            for future in left:
                if future.outcome is WAITING:
                    future.outcome = RUNNING
        self.settle(left, Failed(self.failure))

    def _why_ended(self, event: CallsFinished) -> BaseException:
        """Return the error of the calls that an actor leaves when it ends so."""
        [outcome] = outcomes_of(event, self.name, MAKER)
        error = outcome.error
        if event.raised and error is not None:
            return error
        if isinstance(error, Cancelled):
            return Cancelled(f"{self.name} was ended", hint=ANEW)
        lost = ActorLost(f"{self.name} is lost", hint=ANEW)
        if isinstance(error, GridEngineError):
            lost = ActorLost(
                f"{self.name} is lost: {error.message}",
                host=error.host,
                job=error.job,
                log=error.log,
                log_tail=error.log_tail,
                hint=f"{ANEW}; {error.hint}" if error.hint else ANEW,
            )
        lost.__cause__ = error
        return lost


def _dump(template: CallTemplate, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Payload:
    """Return the pickled arguments of a method's call.

    Raises:
        PicklingError: they cannot be pickled; the text names which.
        ConfigurationError: there is a future or a shared object among them.
    """
    call = args, kwargs
    if is_constant((*args, *kwargs.values())):
        return template.joined([call])
    payload = template.pickled([call])
    if awaited_in(payload) or needs_of(payload):
        kind = "future" if awaited_in(payload) else "shared object"
        raise ConfigurationError(
            f"an argument of {template.function.name} is, or contains, a {kind}, which methods of "
            "actors do not take",
            hint="give its result(), or give it when the actor is made",
        )
    return payload
