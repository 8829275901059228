"""Objects that many calls use: shared by `share`, or large arrays that arguments repeat.

Wherever a handle (`Shared`) lies in an object that is handed in, only the shared object's name is
pickled, and the payload lists the shared objects that it needs. A worker is sent a shared object as
it is sent a function: once, by name, until a message has the worker forget it. A runner that
unpickles the name gets the object, loaded once in each process.

`RepeatedArrays` does the same for a large array that calls of one map are given again. A caller may
fill an array anew between two calls. So an array is known by the place of its data, and by its
content: a comparison takes a fifth of the time of a copy, and ends at the first difference.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from itertools import chain
from typing import Any, Generic, NoReturn, Self, TypeVar

from msgspec import Struct

from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.serialize.references import NOTHING, Awaited, NameUser
from gridengine.serialize.shared_memory import StoredPayload, is_equal, protected, store
from gridengine.threads import once

T = TypeVar("T")
NAME_BYTES = 16
"""The length of names. Any buffer that travels apart from its pickle is longer."""


class SharedObject:
    """A shared object as it travels: its payload, and the name that stands for it.

    Args:
        name: a name that no other object has.
        payload: the pickled object. None of its buffers may be written to.
        handles: the handles that lie in the object itself.
    """

    def __init__(
        self, name: bytes, payload: Payload, handles: tuple[Shared[Any] | None, ...] = ()
    ) -> None:
        self.name = name
        self.payload = payload
        self.handles = handles
        self.needs: tuple[SharedObject, ...] = needs_of(payload)
        self._users: list[weakref.ref[NameUser]] = []
        self._lock = threading.Lock()
        self._released = False
        registry().owned[name] = self

    @functools.cached_property
    def object(self) -> Any:
        """The object, made of the payload without copying it; its arrays cannot be written to."""
        with resolving_locally():
            return _load(self.payload)

    def used_by(self, user: NameUser) -> None:
        """Call `user.release` once no handle is left; at once if none is left now."""
        with self._lock:
            users = [one for one in self._users if one() not in (None, user)]
            self._users = [*users, weakref.ref(user)]
        if self._released:
            user.release(self.name)

    def release(self) -> None:
        """Note that no handle is left. The garbage collector calls this too, at any point and in
        any thread: it must not wait for a lock.
        """
        self._released = True
        for one in self._users:
            user = one()
            if user is not None:
                user.release(self.name)


_REMEDY = "calls get the object in its place; here its get() returns the object"


class Shared(Generic[T]):
    """A handle for an object that many calls use; `gridengine.share` makes one.

    A call gets the object itself in the place of the handle. Close the handle, leave its `with`, or
    drop it: then the object is released when no call needs it any more.
    """

    def __init__(self, shared: SharedObject, kind: type) -> None:
        self._shared: SharedObject | None = shared
        self._kind = kind
        self._finalizer = weakref.finalize(self, shared.release)
        self._finalizer.atexit = False

    def get(self) -> T:
        """Return the object as calls get it: a copy, made when it was shared, whose arrays cannot
        be written to.

        Raises:
            ValueError: the handle is closed.
        """
        return shared_object_of(self).object  # type: ignore[no-any-return]

    def close(self) -> None:
        """Release the object once no call that was handed in needs it. May be called twice."""
        self._finalizer()
        self._shared = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _as_object(self, *_: object) -> NoReturn:
        raise TypeError(f"{self!r} is a handle: {_REMEDY}")

    __getitem__ = __iter__ = _as_object

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self!r} is a handle, without {name}: {_REMEDY}")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        raise pickle.PicklingError(
            "a shared object travels in the calls of gridengine alone; elsewhere give what its "
            "get() returns"
        )

    def __repr__(self) -> str:
        size = "closed" if self._shared is None else f"{size_of(self._shared.payload):,} bytes"
        return f"<shared {self._kind.__qualname__}, {size}>"


def shared_object_of(handle: Shared[Any]) -> SharedObject:
    """Return the object that a handle stands for.

    Raises:
        ValueError: the handle is closed.
    """
    if handle._shared is None:
        raise ValueError(f"the shared {handle._kind.__qualname__} has been closed; share it again")
    return handle._shared


class PayloadWithObjects(list[Buffer]):
    """A payload that names shared objects or results, and can be loaded only where these are; or a
    function's that copies a generator of random numbers.
    """

    needs: tuple[SharedObject, ...] = ()
    awaits: Awaited = NOTHING
    copies_generator = False


def needs_of(payload: Payload) -> tuple[SharedObject, ...]:
    """Return the shared objects that a payload names, and those that these name."""
    return getattr(payload, "needs", ())


def all_needed(*needs: Iterable[SharedObject]) -> tuple[SharedObject, ...]:
    """Return these shared objects and those that they name, each once."""
    found: dict[SharedObject, None] = {}
    for one in chain.from_iterable(needs):
        found.update(dict.fromkeys((*one.needs, one)))
    return tuple(found)


def _load(payload: Payload) -> Any:
    """Return the object of a payload. Its arrays are views of the buffers, and read-only."""
    return pickle.loads(payload[0], buffers=protected(payload[1:]))


# The objects that names stand for in this process


class Registry:
    """The objects that this process has shared (`owned`), and functions that load the objects that
    others have sent (`registered`), by their names.
    """

    def __init__(self) -> None:
        self.owned: weakref.WeakValueDictionary[bytes, SharedObject] = weakref.WeakValueDictionary()
        self.registered: dict[bytes, tuple[Callable[[], Any], Callable[..., Payload]]] = {}
        self.fetch_descriptor: Callable[[bytes], int] = _no_descriptor
        """Takes the name of an open file of the caller. Returns a descriptor that this process
        owns, or raises a LookupError.
        """


@once
def registry() -> Registry:
    return Registry()


def register(name: bytes, fetch: Callable[..., Payload]) -> None:
    """Let a name stand for an object in this process. `fetch(writable=False)` returns its payload
    when the object is first needed.
    """
    registry().registered[name] = functools.cache(lambda: _load(fetch(writable=False))), fetch


def register_result(name: bytes, load: Callable[[], Any]) -> None:
    """Let a name stand for the result of a call in this process. `load` rebuilds the result for
    each call that names it.
    """
    registry().registered[name] = load, _no_buffers


def _no_buffers(*, writable: bool) -> NoReturn:
    raise LookupError("that is the name of a result, not of an array")


def unregister(name: bytes) -> None:
    """Forget a registered object; an unknown name is ignored."""
    registry().registered.pop(name, None)


def owned(name: bytes) -> SharedObject | None:
    """Return the object of this name that this process has shared, while it is referred to."""
    return registry().owned.get(name)


def find(name: bytes) -> Any:
    """Return the object that a name stands for, in a process that runs calls. In the process that
    handed the calls in, return the `SharedObject`, which may be handed in again.

    Raises:
        LookupError: the object has been released.
        Exception: an error of loading the object.
    """
    registered = registry().registered.get(name)
    if registered is not None:
        return registered[0]()
    shared = owned(name)
    if shared is None:
        raise LookupError("a shared object is not, or no longer, known in this process")
    return shared.object if _RESOLVING_LOCALLY.get() else shared


def buffers_of(name: bytes) -> Payload:
    """Return the bare buffers that a name stands for. A process that writes to mapped buffers
    changes only its own copy.

    Raises:
        LookupError: the buffers have been released.
    """
    registered, shared = registry().registered.get(name), owned(name)
    if registered is not None:
        return registered[1](writable=True)
    if shared is None:
        raise LookupError("an array that calls share is not, or no longer, known in this process")
    return shared.payload


_RESOLVING_LOCALLY: ContextVar[bool] = ContextVar("gridengine_resolving_locally", default=False)


@contextlib.contextmanager
def resolving_locally() -> Iterator[None]:
    """Let names stand for objects while this lasts, even in the process that has shared them."""
    token = _RESOLVING_LOCALLY.set(True)
    try:
        yield
    finally:
        _RESOLVING_LOCALLY.reset(token)


def _no_descriptor(name: bytes) -> int:
    raise LookupError("this process runs no calls for another")


def identity(obj: Any) -> Any:
    """Return the object. A handle that travels to the caller calls this function there, and so
    arrives as its object.
    """
    return obj


HELD_BYTES = 256_000_000
"""The most bytes of copies that are held for later calls. The arrays of one call are held together,
even if they have more.
"""


class _SeenArray(Struct, eq=False):
    """An array that was seen. From the second time on, the copy `shared` stands for it, unless the
    array `changes`.
    """

    owner: weakref.ref[Any]
    shared: Shared[Any] | None = None
    changes: bool = False


class RepeatedArrays(Struct, eq=False, weakref=True):
    """The large arrays among the arguments of calls, for one thread. It holds no array, and a copy
    no longer than its array lives.

    stored: how many bytes were copied, to be shared by calls.
    named: the size in bytes of the arrays for which calls have a name.
    generators: the generators of random numbers in the first calls that have any.
    repeats_generator: whether later calls have one of these too; None once the user was warned.
    """

    stored: int = 0
    named: int = 0
    generators: list[Any] = []
    repeats_generator: bool | None = False
    _known: dict[tuple[int, int], _SeenArray] = {}

    def find(self, view: memoryview, beside: Sequence[SharedObject] = ()) -> SharedObject | None:
        """Return the shared object that stands for a buffer that was seen before; else None.

        beside: the shared objects that were found for the same calls.
        """
        owner: Any = view.obj
        interface = getattr(owner, "__array_interface__", None)  # NumPy's: its views have new ids
        key = id(owner) if interface is None else interface["data"][0], view.nbytes
        while hasattr(getattr(owner, "base", None), "__array_interface__"):
            owner = owner.base
        known = self._known.pop(key, None)
        if known is None or known.owner() is not owner:
            forget = functools.partial(_forget, weakref.ref(self), key)
            with contextlib.suppress(TypeError):  # `bytes`, say, have no weak references
                self._known[key] = _SeenArray(weakref.ref(owner, forget))
            return None
        self._known[key] = known  # at the end: in order of use
        if known.changes:
            return None
        if known.shared is None:
            known.shared = _share(view)
            self.stored += view.nbytes
            self._drop_oldest(beside)
        elif not is_equal(shared_object_of(known.shared).payload[0], view):
            known.changes, known.shared = True, None  # from now on it travels with each call
            return None
        self.named += view.nbytes
        return shared_object_of(known.shared)

    def note_generators(self, found: list[Any]) -> None:
        """Note the generators that were pickled together for some calls."""
        known = set(map(id, self.generators))
        if self.repeats_generator is False and not known.isdisjoint(map(id, found)):
            self.repeats_generator = True
        self.generators = self.generators or found

    def _drop_oldest(self, beside: Sequence[SharedObject]) -> None:
        size = 0
        for key in reversed(list(self._known)):
            known = self._known.get(key)
            if known is not None and known.shared is not None:
                size += key[1]
                # Arrays of the present calls stay: otherwise calls with two arrays would copy both
                # each time.
                is_old = size > max(HELD_BYTES, key[1])
                if is_old and shared_object_of(known.shared) not in beside:
                    known.shared = None

    def clear(self) -> None:
        """Forget all arrays and generators. Copies that calls need stay until these have ended."""
        self._known.clear()
        self.generators = []


def _forget(where: weakref.ref[RepeatedArrays], key: tuple[int, int], _: object) -> None:
    repeated = where()
    if repeated is not None:
        repeated._known.pop(key, None)


def _share(view: memoryview) -> Shared[Any]:
    stored = store([view], whole=True)
    if not isinstance(stored, StoredPayload):
        stored = [bytes(view)]
    return Shared(SharedObject(os.urandom(NAME_BYTES), stored), memoryview)
