"""Calls that outlive their worker: they are told to stop, save their state, and go on elsewhere.

    dispatcher --LeaveBy--> agent --STOP_BY, STOP_NOW--> checkpoint(): must this call stop?
               <---Saved--- agent <--------------------- save(state)
               --Assign.saved--> runner ---------------> saved()

The dispatcher holds the state that a call has saved until the call is settled, so each later
attempt finds it, after a crash too. Calls that do not ask pay nothing: there is no thread and no
signal, only two words of the status block. An object with a method `checkpoint` cannot ask, so a
thread asks for it.

Rejected: a time set by the dispatcher at which all calls are told. Only the call knows how long
saving takes; and a worker whose calls do not ask would lose that time for nothing.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic, monotonic_ns
from typing import Any, NamedTuple

from gridengine.arguments import number
from gridengine.call_context.current_call import CallingProcess, Interrupted, calling_process
from gridengine.call_context.status_block import INDEX, LISTENS, RUN, STOP_BY, STOP_NOW
from gridengine.errors import CallError, ConfigurationError, safe_repr
from gridengine.serialize import pickling
from gridengine.wire.messages import Saved

NOTICE_SECONDS = 60.0
LOOK_SECONDS = 0.1
"""How often the thread asks on behalf of an object with a method `checkpoint`."""


class MustStop(NamedTuple):
    """A call must save its state and stop. `by` is the time of `time.monotonic()` at which its
    worker ends it; infinite where nobody does, as on a host that is drained.
    """

    by: float

    @property
    def seconds_left(self) -> float:
        """How many seconds are left, at least 0."""
        return max(0.0, self.by - monotonic())


def checkpoint(notice: float = NOTICE_SECONDS) -> MustStop | None:
    """Return until when the present call must have stopped, or None while it may go on.

    The call must stop when its worker leaves within `notice` seconds because its walltime is over
    (but at the earliest after half of the time that was left when the call first asked); when the
    batch system or somebody ends the worker by a signal; and when its host is drained. Asking takes
    microseconds; ask at least every `notice` seconds, less the time that saving takes. Outside of a
    worker, and in a process that the call has forked, the answer is always None.

    Args:
        notice: how many seconds before the end of the worker's time to stop (default 60).

    Raises:
        TypeError, ConfigurationError: `notice` is not a number above zero.
    """
    notice = number("notice", notice)
    process = calling_process()
    if process is None or not process.run:
        return None
    words, states = process.words, process.states
    call, now, stop_by = (words[RUN], words[INDEX]), monotonic_ns(), words[STOP_BY]
    words[LISTENS] = call[0]
    if states.asked[:2] != call or states.asked[2] != stop_by:
        states.asked = (*call, stop_by, now)
    earliest = (states.asked[3] + stop_by) // 2
    if not words[STOP_NOW] and (not stop_by or now < max(stop_by - int(notice * 1e9), earliest)):
        return None
    states.told = call
    return MustStop(stop_by * 1e-9 if stop_by else math.inf)


def save(state: Any) -> None:
    """Save the state of the present call: its next attempt, on whatever worker, finds it by
    `saved()`. It takes the place of the state that was saved before. The dispatcher holds it until
    the call has ended: in memory, or in a file beside the run's when states and kept results take
    more than the setting `kept_bytes`. Outside of a worker nothing is saved.

    Args:
        state: any object that can be pickled, except None.

    Raises:
        ConfigurationError: the state is None, which `saved()` returns where there is none.
        PicklingError: it cannot be pickled.
    """
    if state is None:
        raise ConfigurationError(
            "save(None) saves no state: saved() returns None where none was saved",
            hint="save what the next attempt needs, as a tuple or dict",
        )
    payload = pickling.dump(state)
    process = calling_process()
    if process is not None and process.run:
        index = process.words[INDEX]
        process.states.saved[index] = [bytes(buffer) for buffer in payload]
        process.states.tell(Saved(process.run, index, len(payload)), payload)


def saved() -> Any:
    """Return a copy of the state that this call, or an earlier attempt at it, has saved last; None
    at first, and outside of a worker.

    Raises:
        Exception: it cannot be loaded here.
    """
    process = calling_process()
    if process is None or not process.run:
        return None
    payload = process.states.saved.get(process.words[INDEX])
    if payload is None:
        return None
    return pickling.load([payload[0], *map(bytearray, payload[1:])])


def interrupted(what: str, *, told: bool) -> CallError:
    """Return the error of a call of this label that raised `Interrupted` and cannot run again: it
    was told to stop and saved no state, or it was not told.
    """
    if told:
        return CallError(
            f"{what} has saved no state before its worker had to leave",
            hint="gridengine.save(state) before you raise Interrupted; or ask for more walltime",
        )
    return CallError(
        f"{what} raised Interrupted, and was not told to stop",
        hint="raise it only after gridengine.checkpoint() has returned something",
    )


class NextCall(NamedTuple):
    """The function and arguments of the next attempt, as a method `checkpoint` has made them."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


class ResumedFunction:
    """A function that is an object with a method `checkpoint`, called by its convention."""

    def __init__(self, function: Callable[..., Any], method: str) -> None:
        self.function = function
        self.method = method
        self.__name__ = self.__qualname__ = type(function).__qualname__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call, before = NextCall(self.function, args, kwargs), saved()
        if type(before) is NextCall:
            call = before
        process = calling_process()
        if process is None or threading.current_thread() is not threading.main_thread():
            return call.function(*call.args, **call.kwargs)
        make = getattr(call.function, self.method, None)
        with _interrupting(process, lambda: make and make(*call.args, **call.kwargs)):
            return call.function(*call.args, **call.kwargs)


@contextlib.contextmanager
def _interrupting(process: CallingProcess, make: Callable[[], Any]) -> Iterator[None]:
    """Within the block, have SIGUSR1 interrupt this thread once the call must stop; `make` makes
    the next attempt.
    """
    ended, told, main = threading.Event(), threading.Event(), threading.get_ident()

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            if checkpoint() is not None:
                told.set()
                signal.pthread_kill(main, signal.SIGUSR1)
                return

    def interrupt(number: int, frame: object) -> None:
        if told.is_set() and not ended.is_set():
            made = make()
            if made is not None:  # otherwise the call must not be made again, and goes on
                save(next_call(made))
                raise Interrupted

    checkpoint()  # from now on the worker knows that this call can be told
    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=watch, name="gridengine-checkpoint", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def next_call(made: Any) -> NextCall:
    """Return the next attempt that a method `checkpoint` has made: `functools.partial`, or an
    object with `function`, `args` and `kwargs`, as submitit's `DelayedSubmission`.

    Raises:
        ConfigurationError: it is something else.
    """
    function = getattr(made, "function", None) or getattr(made, "func", None)
    args, kwargs = getattr(made, "args", ()), getattr(made, "kwargs", None)
    if kwargs is None:
        kwargs = getattr(made, "keywords", {})
    if not callable(function):
        raise ConfigurationError(
            f"checkpoint() returned {safe_repr(made)}, which is not a call",
            hint="return functools.partial(self, *args, **kwargs), submitit's DelayedSubmission, "
            "or None if the call is not to go on",
        )
    return NextCall(function, tuple(args), dict(kwargs))
