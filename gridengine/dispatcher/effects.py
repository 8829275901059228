"""Perform the core's effects: send messages, pass on outcomes, and ask the launcher.

Large results stay at their workers until the caller asks for them (`KeptPayloads`).
"""

from __future__ import annotations

import logging
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from gridengine.dispatcher.core.events import (
    Drained,
    Explain,
    Grant,
    Inform,
    Launch,
    Lost,
    ResultExpected,
    ResultFetched,
    ResultKept,
    ResultMissing,
    Send,
    Warn,
    Withdraw,
)
from gridengine.dispatcher.core.tasks import (
    CallsFinished,
    Effect,
    ResultData,
    TaskMessage,
    TaskStarted,
)
from gridengine.dispatcher.interface import UnsettledTasks
from gridengine.dispatcher.launcher_thread import LauncherThread
from gridengine.dispatcher.links import Link
from gridengine.dispatcher.serving.clients import Clients
from gridengine.errors import GridEngineError
from gridengine.resources.base import Resource
from gridengine.resources.kinds import Cores, GPUs
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.messages import Allocate


class KeptPayloads:
    """The payloads that the caller has in the place of results at workers. The I/O thread adds and
    fills them; any thread may ask for one.

    Args:
        ask: called with the reference of a result that somebody waits for.
        release: called with the references of payloads that nobody has any more; also by the
            garbage collector.
    """

    def __init__(
        self, ask: Callable[[int], object], release: Callable[[Sequence[int]], object]
    ) -> None:
        self._ask = ask
        self._release = release
        self._coming: dict[int, Future[ResultData]] = {}

    def add(self, effect: ResultKept) -> None:
        """Make a payload able to fetch its result."""
        payload, reference = effect.payload, effect.payload.reference
        self._coming[reference] = coming = Future[ResultData]()
        payload.load = partial(self._load, reference, coming)
        payload.when_here = partial(self._when_here, reference, coming)
        payload.outcome = coming.result
        # Not at the interpreter's exit: the dispatcher has ended by then, or releases everything
        # itself.
        weakref.finalize(payload, self._let_go, reference).atexit = False

    def _let_go(self, reference: int) -> None:
        self._coming.pop(reference, None)
        self._release((reference,))

    def _load(self, reference: int, coming: Future[ResultData]) -> Payload:
        """Fetch a payload, and wait for it."""
        if not coming.done():
            self._ask(reference)
        data = coming.result()
        if data.error is not None:
            raise data.error
        assert data.payload is not None
        if data.raised:
            raise pickling.load_exception(data.payload)
        return data.payload

    def _when_here(
        self, reference: int, coming: Future[ResultData], act: Callable[[], object]
    ) -> bool:
        if coming.done():
            return False
        coming.add_done_callback(lambda _: act())
        self._ask(reference)
        return True

    def fill(self, effect: ResultFetched) -> None:
        """Pass on a result that has been fetched."""
        coming = self._coming.get(effect.reference)
        if coming is not None and not coming.done():
            coming.set_result(effect.data)

    def close(self, error: GridEngineError) -> None:
        """Let everybody who waits go with an error, and drop the functions that refer to the
        dispatcher.
        """
        for reference in list(self._coming):
            self.fill(ResultFetched(reference, ResultData(error=error)))
        self._ask = self._release = _ignore


def _ignore(which: object) -> None:
    """Do nothing: the dispatcher has ended."""


log = logging.getLogger("gridengine")

MOST_LINES = 50


class EffectPerformer:
    """Performs effects in the I/O thread.

    Args:
        link: the way to the workers.
        launcher: starts and stops workers.
        unsettled: the tasks that have no outcome yet, with their listeners.
        held: the resources of each worker whose calls share it; None if each worker holds the
            demand of one call.
        wanted: the functions to call if a wanted result is missing, by reference.
        nested: the clients in other processes.
        payloads: the caller's payloads of results that stay at their workers.
        clock: the I/O thread's.
    """

    def __init__(
        self,
        link: Link,
        launcher: LauncherThread,
        unsettled: UnsettledTasks,
        held: Resource | None,
        wanted: dict[int, Callable[[], object]],
        nested: Clients,
        payloads: KeptPayloads,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._link = link
        self._send = link.send
        self._launcher = launcher
        self._wanted = wanted
        self._nested = nested
        self.recent = deque[tuple[float, str, bool]](maxlen=MOST_LINES)
        """The latest lines of the run's log: when, in monotonic seconds, the text, and whether it
        is a warning.
        """
        self.sent = defaultdict[type, int](int)
        """How many messages workers were sent, by kind."""
        self.drained: Callable[[], object] = lambda: None
        """Called when a draining dispatcher has no running call left."""
        self._exact = held is not None and _lists_cores(held)
        self._methods: dict[type, Callable[[Any], object]] = {
            Grant: self._grant,
            CallsFinished: unsettled.settle,
            TaskStarted: unsettled.began,
            TaskMessage: unsettled.noted,
            Launch: launcher.launch,
            Withdraw: self._withdraw,
            Explain: self._explain,
            Lost: self._lost,
            ResultMissing: self._missing,
            ResultExpected: self._expected,
            ResultKept: payloads.add,
            ResultFetched: payloads.fill,
            Warn: self._warn,
            Inform: self._inform,
            Drained: lambda effect: self.drained(),
        }

    def perform(self, effects: list[Effect]) -> None:
        """Perform effects in their order."""
        for effect in effects:
            if type(effect) is Send:
                self._send(effect.worker, effect.message, effect.buffers)
                self.sent[type(effect.message)] += 1
            else:
                self._methods[type(effect)](effect)
        if self._nested.finished:
            self._nested.flush()

    def _grant(self, effect: Grant) -> None:
        """Tell a worker the resources of an allocation. If they cannot be pickled, the worker gets
        the error, and its calls fail with it.
        """
        cores, gpus = effect.given.get(Cores), effect.given.get(GPUs)
        failed = False
        try:
            payload = pickling.dump(effect.given)
        except BaseException as error:  # a user's own kind of resource may raise anything
            payload, failed = pickling.dump_exception(error), True
        message = Allocate(
            effect.allocation,
            effect.takes,
            None if cores is None else cores.c,
            None if gpus is None else gpus.g,
            exact=self._exact,
            failed=failed,
            buffers=len(payload),
        )
        self._send(effect.worker, message, payload)
        self.sent[Allocate] += 1

    def _withdraw(self, effect: Withdraw) -> None:
        self._launcher.cancel(effect.handles)

    def _explain(self, effect: Explain) -> None:
        look = self._launcher.read_log if effect.running else self._launcher.explain
        look(effect.handles, effect.seconds)

    def _lost(self, effect: Lost) -> None:
        self._link.forget(effect.worker)
        self._nested.forget(effect.worker)

    def _warn(self, effect: Warn) -> None:
        self.recent.append((self._clock.monotonic(), effect.text, True))
        log.warning("%s", effect.text)

    def _inform(self, effect: Inform) -> None:
        self.recent.append((self._clock.monotonic(), effect.text, False))
        inform(effect)

    def _missing(self, effect: ResultMissing) -> None:
        missing = self._wanted.pop(effect.reference, None)
        if missing is None:
            self._nested.tell(effect.reference, missing=True)
        else:
            missing()

    def _expected(self, effect: ResultExpected) -> None:
        if self._wanted.pop(effect.reference, None) is None:
            self._nested.tell(effect.reference, missing=False)


def inform(effect: Inform) -> None:
    """Log the progress of a run."""
    log.info("%s", effect.text)


def _lists_cores(held: Resource) -> bool:
    """Return whether a user has listed the cores; then their numbers are the machine's own."""
    cores = held.get(Cores)
    return cores is not None and repr(cores) != repr(Cores(cores.N))
