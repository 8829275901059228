"""The size limits of a dispatcher's journal, and the errors of calls that exceed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gridengine.errors import ConfigurationError
from gridengine.serialize.payload import Buffer, size_of
from gridengine.serialize.shared_objects import all_needed

if TYPE_CHECKING:
    from gridengine.requests import Function, Task
    from gridengine.wire.messages import Submit

MOST_BYTES = 900_000_000
"""The most bytes that a call, function, shared object or result may have: SQLite's rows have 10**9
at most (https://sqlite.org/limits.html).
"""


def is_large(buffers: Sequence[Buffer]) -> bool:
    """Return whether no row can hold these buffers together."""
    return size_of(buffers) > MOST_BYTES


def too_large(what: str, buffers: Sequence[Buffer]) -> ConfigurationError:
    """Return the error of a call, function or shared object that no row can hold."""
    return ConfigurationError(
        f"{what} has {size_of(buffers):,} bytes, and the dispatcher's journal takes {MOST_BYTES:,} "
        "at most for a call, a function or a shared object",
        hint="hand in less, such as the path of a file",
    )


def lost_to_client(buffers: Sequence[Buffer]) -> ConfigurationError:
    """Return the outcome, after a restart, of calls whose result the client had not acknowledged,
    no row could hold, and that cannot run again.
    """
    return ConfigurationError(
        f"a result of {size_of(buffers):,} bytes is lost: the dispatcher was started again before "
        f"its client had it, and the journal takes results of {MOST_BYTES:,} bytes at most",
        hint="have the call write a file, and return the path",
    )


def lost(buffers: Sequence[Buffer]) -> ConfigurationError:
    """Return the outcome, after a restart, of a result that calls need and no row could hold."""
    return ConfigurationError(
        f"a result of {size_of(buffers):,} bytes that this call needs is lost: its dispatcher was "
        f"started again, and the journal takes results of {MOST_BYTES:,} bytes at most",
        hint="have the call that makes it write a file, and return the path",
    )


def may_refuse(function: Function, tasks: Sequence[Task]) -> bool:
    """Return whether any of these tasks can be refused. If not, which is most often, `why_refused`
    need not be asked for each of them, which takes time.
    """
    needed = all_needed(function.needs, *(task.needs for task in tasks if task.needs))
    buffers = list(function.payload)
    for task in tasks:
        buffers += task.payload
    for one in needed:
        buffers += one.payload
    return is_large(buffers)


def why_refused(function: Function, task: Task) -> ConfigurationError | None:
    """Return why a task is refused; None if it is not."""
    name = task.options.name or function.name
    if is_large(task.payload):
        return too_large(f"a call of {name}", task.payload)
    if is_large(function.payload):
        return too_large(f"the function {name}", function.payload)
    for one in all_needed(function.needs, task.needs) if function.needs or task.needs else ():
        if is_large(one.payload):
            return too_large(f"a shared object of {name}", one.payload)
    return None


def why_refused_as_sent(message: Submit, buffers: Sequence[Buffer]) -> ConfigurationError | None:
    """Return why the tasks of a message are refused; None if they are not."""
    if not is_large(buffers):
        return None
    function, offset = message.function, 0
    parts = [] if function is None else [(f"the function {function.name}", function.buffers)]
    parts += [("a shared object", one.buffers) for one in message.shared]
    parts += [(f"the call {one.name or one.id}", one.buffers) for one in message.tasks]
    for what, count in parts:
        its, offset = buffers[offset : offset + count], offset + count
        if is_large(its):
            return too_large(what, its)
    return None
