"""The error tree: each class says whose fault it is, each text what happened where, what to look at
and what to try.

    GridEngineError
    ├── ConfigurationError (ValueError)     an argument, a setting or this machine's set-up
    │   ├── SchedulerUnavailable            no such batch system here, or it takes none of your jobs
    │   ├── VersionMismatch                 worker and dispatcher run different versions
    │   └── JournalError                    the file of a named run cannot be used, or others use it
    ├── ClusterError                        the batch system or a machine of it failed
    │   ├── SubmissionRefused               the batch system refuses the request; its own words
    │   ├── WorkerNotStarted                a cluster task ended before its worker connected
    │   ├── WorkerLost                      a worker was killed or fell silent, too often
    │   ├── DispatcherGone                  the stand-alone dispatcher ended, or does not answer
    │   └── JobDeleted                      somebody deleted the cluster task
    ├── CallError                           the user's call, stopped or spoiled from outside of it
    │   ├── WorkerCrashed                   the process that ran the call died of it
    │   ├── ActorLost                       an actor's process or worker ended
    │   ├── OutOfMemory (MemoryError)       the call went over its memory limit
    │   ├── TimeoutError (builtin too)      the call, or a wait for it, ran over its time
    │   ├── NestingError (RecursionError)   too many calls wait for their nested calls
    │   ├── Cancelled (concurrent.futures.CancelledError)
    │   │                                   terminated, killed, or its dispatcher was closed
    │   ├── Pending                         the call has no result yet; seen when a run is read
    │   └── PicklingError (pickle's too)    an argument, function or result that cannot be pickled
    └── ProtocolError                       a message broke the protocol: a fault of this package
        └── MessageTooLong                  a message is longer than announced, or than fits here

The user's own exception is not in the tree: it arrives as itself, with a `RemoteTraceback` as its
`__cause__`. An exception that a call *returns* is a value, not an error.

Frames of this package are cut from tracebacks (`trim`) where an error is raised again. At the log
level DEBUG the frames stay. Rejected: a decorator on every public function, which would slow down
calls that succeed.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import os
import reprlib
import sys
from _pickle import PicklingError as _PicklingError  # `pickle` itself takes longer to import
from collections.abc import Sequence

TYPE_CHECKING = False  # not that of `typing`, which takes as long to import as all else here
if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import CancelledError
    from types import TracebackType
    from typing import Any, ParamSpec, TypeVar

    P = ParamSpec("P")
    T = TypeVar("T")


class GridEngineError(Exception):
    """The base of all errors of this package.

    Its text is `message`, then a line for each known fact: what the call was given (`arguments`,
    shortened), where it happened (`host`; `job`: the
    batch system's id of the cluster task), what to look at (`log`, a path, and `log_tail`, its last
    lines), each attempt (`attempts`, one line of text each) and what to try (`hint`).
    """

    arguments: str | None = None

    def __init__(
        self,
        message: str,
        *,
        host: str | None = None,
        job: str | None = None,
        log: str | None = None,
        log_tail: str | None = None,
        attempts: Sequence[str] = (),
        hint: str | None = None,
        pickled_call: tuple[bytes, int, int, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.host = host
        self.job = job
        self.log = log
        self.log_tail = log_tail
        self.attempts = tuple(attempts)
        self.hint = hint
        self.pickled_call = pickled_call
        """The pickled calls of a task, the place and form of the failed one, and its parameters.
        The client makes `arguments` of these: the dispatcher unpickles nothing.
        """

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,), self.__dict__

    def __str__(self) -> str:
        lines = [self.message]
        facts = {
            "arguments": self.arguments,
            "host": self.host,
            "cluster job": self.job,
            "log": self.log,
        }
        lines += [f"  {name}: {value}" for name, value in facts.items() if value]
        lines += [f"  attempt: {attempt}" for attempt in self.attempts]
        if self.log_tail:
            lines.append("  the log ends:")
            lines += [f"    | {line}" for line in self.log_tail.splitlines()]
        if self.hint:
            lines.append(f"  try: {self.hint}")
        return "\n".join(lines)


UNREACHABLE = (
    "set GRIDENGINE_HOST to the address at which the nodes reach the submitting machine, and see "
    "that no firewall is between them; or have messages travel as files: transport='files' of the "
    "scheduler, or GRIDENGINE_TRANSPORT=files"
)
"""The remedy when a worker cannot connect to its dispatcher."""
UNSHARED = (
    "set GRIDENGINE_RUN_DIRECTORY to a folder that the nodes see too, under the same path, and may "
    "write to"
)
"""The remedy when a worker and its dispatcher do not see each other's files."""


def text_of(error: BaseException) -> str | None:
    """Return an exception's text; None if its class's own code fails."""
    try:
        return str(error)
    except Exception:
        return None


def safe_repr(value: object, *, most: float = math.inf) -> str:
    """Return the `repr` of an object that may be of a user's own class; only Ctrl-C is raised. A
    text of over `most` characters is cut to half of that.
    """
    try:
        text = repr(value)
    except BaseException as error:
        if _is_ctrl_c(error):
            raise
        if isinstance(value, int):  # Python refuses to write numbers of thousands of digits
            return f"a number of {value.bit_length()} bits"
        return f"<{type(value).__qualname__}, whose repr raised {type(error).__qualname__}>"
    return text if len(text) <= most else f"{text[: int(most // 2)]}... ({len(text)} characters)"


def _is_ctrl_c(error: BaseException) -> bool:
    """Return whether an exception is a Ctrl-C: these come to the main thread alone."""
    import threading  # here: who only imports this package may do without

    in_main = threading.current_thread() is threading.main_thread()
    return in_main and isinstance(error, KeyboardInterrupt)


def _bytes_repr(value: bytes | bytearray, level: int) -> str:
    """Return the `repr` of the beginning of the bytes; the `repr` of all of them would take eight
    times their memory.
    """
    text = repr(value[:60])
    return text if len(value) <= 60 else f"{text}... ({len(value)} bytes)"


_SHORT = reprlib.Repr()
vars(_SHORT).update(repr_bytes=_bytes_repr, repr_bytearray=_bytes_repr)
_SHORT.maxlevel, _SHORT.maxother, _SHORT.maxstring = 2, 60, 60


def short_repr(value: object) -> str:
    """Return the `repr` of any object, in one short line; only Ctrl-C is raised."""
    try:
        text = _SHORT.repr(value)
    except BaseException as error:
        if _is_ctrl_c(error):
            raise
        text = safe_repr(value, most=120)
    text = " ".join(text.split())
    return text if len(text) <= 120 else f"{text[:100]}..."


UNNUMBERED = -1
"""In place of the number of a task's first call: its calls were submitted one by one."""


def call_words(name: str, first: int, index: int, job: str = "") -> str:
    """Return a call's label in errors: a job's name, or the call's number, if it has one."""
    if job:
        return f"job {job}"
    return f"the call of {name}" if first == UNNUMBERED else f"call {first + index} of {name}"


def exit_words(status: int) -> str:
    """Return the exit status of a process in words, negative for a signal: "exit status 3", "killed
    by SIGKILL".
    """
    if status >= 0:
        return f"exit status {status}"
    try:
        from signal import Signals

        return f"killed by {Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


class ConfigurationError(GridEngineError, ValueError):
    """An argument, a setting or the set-up of this machine is wrong; the text says which."""


class SchedulerUnavailable(ConfigurationError):
    """The requested batch system is not here, does not answer, or does not let this user submit."""


class VersionMismatch(ConfigurationError):
    """A worker and its dispatcher run different versions of `gridengine` or of Python; or functions
    or results were stored by another version of Python.
    """


class JournalError(ConfigurationError):
    """The file of a named run, or a dispatcher's journal, cannot be used: another script has it, it
    is damaged, or another version wrote it.
    """


class ClusterError(GridEngineError):
    """The batch system, or a machine of it, failed."""


class SubmissionRefused(ClusterError):
    """The batch system refuses the request; the text holds its own words."""


class WorkerNotStarted(ClusterError):
    """A cluster task ended, or was put into an error state, before its worker connected; or none
    started within `start_timeout`.
    """


class WorkerLost(ClusterError):
    """The worker that ran the call was killed or fell silent, more often than `retries` allows."""


class DispatcherGone(ClusterError):
    """The stand-alone dispatcher that the call was handed to has ended, does not answer any more,
    or has given this client up.
    """


class JobDeleted(ClusterError):
    """The cluster task was deleted from outside, more often than `retries` allows."""


class CallError(GridEngineError):
    """A call was stopped or spoiled by something other than an exception of its own."""

    step = 0
    """The step that failed, from 1, where several calls were fused into one; else 0."""


class WorkerCrashed(CallError):
    """The process that ran the call died of it: a signal, a hard exit, a segmentation fault."""


class ActorLost(CallError):
    """The process or the worker that held an actor's object has ended, and the object with it. The
    calls of its methods that had no outcome may have run in part; none is run again.
    """


class OutOfMemory(CallError, MemoryError):
    """The call went over its memory limit."""


class TimeoutError(CallError, builtins.TimeoutError):
    """A call, or a wait for it, ran over its time."""


class NestingError(CallError, RecursionError):
    """A call may not wait for its nested calls: too many other calls of its worker wait already
    (`max_nesting`).
    """


if TYPE_CHECKING:  # `__getattr__` makes it when it runs

    class Cancelled(CallError, CancelledError):
        """The call was terminated, killed, or its dispatcher was closed before it ended."""


def __getattr__(name: str) -> Any:
    """Make `Cancelled` at its first use. Its other base is in `concurrent.futures`, which most
    workers never import: importing it would take a tenth of this package's import time.
    """
    if name != "Cancelled":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from concurrent.futures import CancelledError

    text = "The call was terminated, killed, or its dispatcher was closed before it ended."
    made = type(name, (CallError, CancelledError), {"__module__": __name__, "__doc__": text})
    return globals().setdefault(name, made)  # another thread may have made it meanwhile


class Pending(CallError):
    """The call has no result yet. It stands in place of the result when a run is read."""


class PicklingError(CallError, _PicklingError):
    """A function, an argument or a result cannot be pickled; the text names which, and why."""


class ProtocolError(GridEngineError):
    """A message broke the protocol."""


class MessageTooLong(ProtocolError):
    """A message is longer than it announced, or than this machine can hold."""


class RemoteTraceback(Exception):
    """The traceback of an exception where it was raised, as text (`tb` too, as in
    `multiprocessing`). It is the exception's `__cause__`.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = self.tb = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def is_own(file: str) -> bool:
    """Return whether a file belongs to this package."""
    return file.startswith(__file__.removesuffix("errors.py"))


def users_frames(error: BaseException) -> TracebackType | None:
    """Return an exception's traceback without the outer frames of this package, down to the user's
    code; None if there are no other frames.
    """
    inner = error.__traceback__
    while inner is not None and _is_passed(inner.tb_frame.f_code.co_filename):
        inner = inner.tb_next
    return inner


def _is_passed(file: str) -> bool:
    """Return whether a file belongs to this package, or to the context managers that it uses."""
    return is_own(file) or file == contextlib.__file__


def trim(error: BaseException) -> None:
    """Cut the frames of this package, which tell users nothing, from the traceback of an error and
    of its cause. This applies to errors of the package, to its `TypeError`s for arguments, to
    exceptions that calls raised, and to a Ctrl-C. Does nothing while the logger "gridengine" is at
    DEBUG.

    The caller continues with a bare `raise`, which adds no frame.
    """
    remote = isinstance(error.__cause__, RemoteTraceback)
    ours = remote or isinstance(error, GridEngineError | KeyboardInterrupt) or _is_refusal(error)
    if ours and not _is_debugging():
        BaseException.with_traceback(error, users_frames(error))
        if error.__cause__ is not None:
            BaseException.with_traceback(error.__cause__, users_frames(error.__cause__))


def _is_debugging() -> bool:
    """Return whether the logger "gridengine" is at DEBUG; False before `logging` is imported."""
    logging = sys.modules.get("logging")
    return logging is not None and logging.getLogger("gridengine").isEnabledFor(logging.DEBUG)


def _is_refusal(error: BaseException) -> bool:
    """Return whether a `raise` in this package made this `TypeError`."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None or not isinstance(error, TypeError):
        return False
    from opcode import opmap

    code, at = innermost.tb_frame.f_code, innermost.tb_lasti
    return is_own(code.co_filename) and code.co_code[at] == opmap["RAISE_VARARGS"]


def trimmed(f: Callable[P, T]) -> Callable[P, T]:
    """Return the function with `trim` applied to its errors, for functions seldom called."""

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return f(*args, **kwargs)
        except BaseException as error:
            trim(error)
            raise

    return call


def out_of_memory(what: str, *, limit: int, peak: int, how: str = "", **facts: Any) -> OutOfMemory:
    """Return the error of a call that went over its memory limit. `limit` and `peak` are in bytes,
    0 when unknown.
    """
    known = (
        [how] * bool(how)
        + [f"its limit was {limit / 2**30:.2f} GB"] * bool(limit)
        + [f"the peak seen was {peak / 2**30:.2f} GB"] * bool(peak)
    )
    text = ": " + ", ".join(known) if known else ""
    if limit > peak > 0 and not how:  # the call raised a MemoryError; nobody killed it
        text += "; one allocation that would have gone beyond the limit was refused"
    return OutOfMemory(
        f"{what} ran out of memory{text}",
        hint="ask for more memory, or have it run again with more: escalate_memory=2, retries=1",
        **facts,
    )


def no_memory(to: str) -> OutOfMemory:
    """Return the error of a process, the caller's or a runner, without memory `to` do something."""
    limits = memory_limits()
    return OutOfMemory(
        f"there is no memory {to} in process {os.getpid()}{limits}",
        hint=f"{'raise that limit, or ' * bool(limits)}pass the path of a file, or fewer at a time",
    )


def memory_limits() -> str:
    """Return how much memory this process may have, to follow its name; empty if unlimited."""
    import resource  # few processes need it

    kinds = ("ulimit -v", resource.RLIMIT_AS), ("ulimit -d", resource.RLIMIT_DATA)
    found = [(name, resource.getrlimit(kind)[0]) for name, kind in kinds]
    limits = [
        f"{soft:,} bytes (`{name}`)" for name, soft in found if soft != resource.RLIM_INFINITY
    ]
    return f", which may have {' and '.join(limits)}" if limits else ""
