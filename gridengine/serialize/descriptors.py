"""Open files on their way to calls on this machine: sockets, ends of pipes, and objects with them.

The pickle has a name for each open file. The process that unpickles the name asks for a duplicate,
as often as the call is run again. The duplicate that this process holds is closed after the last
call that may ask for it. `multiprocessing` takes such objects apart, just as it does for a child
process that it starts. This module is imported only where such an object is pickled.
"""

from __future__ import annotations

import functools
import os
import pickle
import secrets
import socket
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gridengine.errors import PicklingError
from gridengine.serialize import shared_objects
from gridengine.serialize.by_value import Pickler
from gridengine.serialize.recipes import Recipe, Reduction

_REDUCERS = frozenset({"reduce_connection", "_reduce_socket", "reduce_arena", "reduce_ctype"})
"""The functions of `multiprocessing` that take apart objects with an open file, or with memory that
processes share.
"""
_MODULES = ("multiprocessing.synchronize", "multiprocessing.queues", "multiprocessing.sharedctypes")
"""The modules of `multiprocessing` whose objects can be pickled only while a child is started."""
_FORKED = (
    "only processes that are forked from this one could use it; make it by "
    "multiprocessing.get_context('spawn'), or by a Manager"
)


class Descriptor(shared_objects.SharedObject):
    """A duplicate of an open file that calls need, closed when nothing refers to it any more."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self.descriptor).atexit = False
        super().__init__(secrets.token_bytes(16), [pickle.dumps(None)])
        self.release()  # it has no handle: it goes with its calls

    @staticmethod
    def find(name: bytes) -> int:
        """Return the descriptor of this name in this process.

        Raises:
            LookupError: the descriptor is closed, or belongs to another process.
        """
        found = shared_objects.owned(name)
        if not isinstance(found, Descriptor):
            raise LookupError("the calls that needed it have ended")
        return found.descriptor


class ReceivedDescriptor(NamedTuple):
    """A descriptor in the process that unpickles it, in the form that `multiprocessing` expects.

    `what` is the type of the object that it is a part of, for errors.
    """

    name: bytes
    what: str

    def detach(self) -> int:
        """Return a descriptor of the open file, which the caller owns.

        Raises:
            PicklingError: the open file belongs to another machine.
        """
        if isinstance(shared_objects.owned(self.name), Descriptor):
            return os.dup(Descriptor.find(self.name))
        try:
            return shared_objects.registry().fetch_descriptor(self.name)
        except LookupError as error:
            raise PicklingError(
                f"a {self.what} cannot travel to another machine: {error}",
                hint="have such calls run on workers of this machine (ProcessScheduler), or give "
                "them an address to connect to",
            ) from error


class _Child(NamedTuple):
    """Stands in for the child process for which `multiprocessing` pickles."""

    pickler: Pickler
    what: str

    def duplicate_for_child(self, descriptor: int) -> Descriptor:
        """Return the shared object that stands for an open file."""
        if self.pickler.for_caller:
            raise pickle.PicklingError("open files travel to calls, not back from them")
        one = Descriptor(descriptor)
        self.pickler.name_shared(one)
        return one

    def DupFd(self, one: Descriptor) -> ReceivedDescriptor:
        """Return the object that stands for the open file in the pickle."""
        return ReceivedDescriptor(one.name, self.what)


def recipes() -> Mapping[type, Recipe]:
    """Return recipes for objects of `multiprocessing` that processes share. `multiprocessing` must
    have been imported.
    """
    reducers = sys.modules["multiprocessing.reduction"].ForkingPickler._extra_reducers
    return _recipes(len(reducers), *(name for name in _MODULES if name in sys.modules))


@functools.lru_cache(maxsize=4)
def _recipes(count: int, *modules: str) -> Mapping[type, Recipe]:
    reducers = sys.modules["multiprocessing.reduction"].ForkingPickler._extra_reducers
    found: dict[type, Recipe] = {}
    for name in modules:
        kinds = [
            one
            for one in vars(sys.modules[name]).values()
            if isinstance(one, type) and one.__module__ == name
        ]
        found.update((kind, functools.partial(_reduce, _parts_of)) for kind in kinds)
    for kind, reducer in reducers.items():
        if reducer.__name__ in _REDUCERS and reducer.__module__.startswith("multiprocessing."):
            found[kind] = functools.partial(_reduce, reducer)
    return found


def _parts_of(obj: Any) -> Reduction:
    synchronize = sys.modules.get("multiprocessing.synchronize")
    is_lock = synchronize is not None and isinstance(obj, synchronize.SemLock)
    # In another process its address is meaningless; Python before 3.11.5 sends it all the same.
    if is_lock and obj._semlock.name is None:
        raise RuntimeError(_FORKED)
    reduction = obj.__reduce_ex__(5)
    return (open_lock, (type(obj), reduction[2])) if is_lock else reduction


def open_lock(kind: Any, state: object) -> Any:
    """Open a lock, or semaphore, of `multiprocessing` that has a name on this machine.

    Raises:
        PicklingError: this machine has none of that name.
    """
    lock = kind.__new__(kind)
    try:
        lock.__setstate__(state)
    except FileNotFoundError as error:
        raise PicklingError(
            f"a {kind.__module__}.{kind.__qualname__} is gone, or of another machine than "
            f"{socket.gethostname()}"
        ) from error
    return lock


def _reduce(reducer: Callable[[Any], Reduction], pickler: Pickler, obj: Any) -> Reduction:
    """Take an object apart as `multiprocessing` does for a child that it starts."""
    from multiprocessing import context

    kind = type(obj)
    before = context.get_spawning_popen()
    context.set_spawning_popen(_Child(pickler, f"{kind.__module__}.{kind.__qualname__}"))  # type: ignore[arg-type]
    try:
        return reducer(obj)
    except RuntimeError as error:
        refusal = pickle.PicklingError(_FORKED)
        vars(refusal)["refused"] = obj
        raise refusal from error
    finally:
        context.set_spawning_popen(before)
