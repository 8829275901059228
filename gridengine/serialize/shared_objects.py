"""Objects that many calls use: shared by `share`, or large arrays that arguments repeat.

Wherever a handle (`Shared`) lies in what is handed in, only the object's name is pickled, and the
payload lists the objects that it needs. Workers are sent a shared object as they are sent a
function: once, by name, until a message has them forget it. A runner that unpickles the name gets
the object, loaded once in each process.

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
from typing import Any, Generic, NoReturn, Protocol, Self, TypeVar

from msgspec import Struct

from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.serialize.references import NOTHING, Awaited
from gridengine.serialize.shared_memory import StoredPayload, store

T = TypeVar("T")
NAME_BYTES = 16
"""How long names are: shorter than any buffer that travels apart from its pickle."""


class User(Protocol):
    """A dispatcher, whose workers may have got shared objects."""

    def release(self, name: bytes) -> None: ...


class SharedObject:
    """A shared object as it travels: its payload, and the name that stands for it.

    Args:
        name: unlike any other.
        payload: pickled; none of its buffers may be written to.
        handles: those that lie in the object itself.
    """

    def __init__(
        self, name: bytes, payload: Payload, handles: tuple[Shared[Any] | None, ...] = ()
    ) -> None:
        self.name = name
        self.payload = payload
        self.handles = handles
        self.needs: tuple[SharedObject, ...] = needs_of(payload)
        self._users: list[weakref.ref[User]] = []
        self._lock = threading.Lock()
        self._released = False
        registry().owned[name] = self

    @functools.cached_property
    def object(self) -> Any:
        """The object, made of these very bytes; its arrays cannot be written to."""
        with resolving_locally():
            return _load(self.payload)

    def used_by(self, user: User) -> None:
        """Have `user.release` called once no handle is left; at once if none is."""
        with self._lock:
            users = [one for one in self._users if one() not in (None, user)]
            self._users = [*users, weakref.ref(user)]
        if self._released:
            user.release(self.name)

    def release(self) -> None:
        """Note that no handle is left. Called by the collector too, at any point and in any thread:
        it must not wait for a lock.
        """
        self._released = True
        for one in self._users:
            user = one()
            if user is not None:
                user.release(self.name)


class Shared(Generic[T]):
    """A handle for an object that many calls use; `gridengine.share` makes one.

    In a call there is the object itself in its place. Close it, leave its `with` or drop it, and
    the object is let go when no call needs it any more.
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
        """Let go of the object once no call that was handed in needs it. May be called twice."""
        self._finalizer()
        self._shared = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

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
        ValueError: it is closed.
    """
    if handle._shared is None:
        raise ValueError(f"the shared {handle._kind.__qualname__} has been closed; share it again")
    return handle._shared


class PayloadWithObjects(list[Buffer]):
    """A payload that names shared objects, or results: it is of use only where these are."""

    needs: tuple[SharedObject, ...] = ()
    awaits: Awaited = NOTHING


def needs_of(payload: Payload) -> tuple[SharedObject, ...]:
    """Return the shared objects that are named in a payload, and those named in them."""
    return getattr(payload, "needs", ())


def all_needed(*needs: Iterable[SharedObject]) -> tuple[SharedObject, ...]:
    """Return these shared objects and those named in them, each once."""
    found: dict[SharedObject, None] = {}
    for one in chain.from_iterable(needs):
        found.update(dict.fromkeys((*one.needs, one)))
    return tuple(found)


def _load(payload: Payload) -> Any:
    """Return the object of a payload: its arrays are views of the buffers, and cannot be written
    to.
    """
    return pickle.loads(
        payload[0], buffers=[memoryview(buffer).toreadonly() for buffer in payload[1:]]
    )


# What names stand for in this process


class Registry:
    """What this process has shared (`owned`), and what loads that which others have sent
    (`registered`).
    """

    def __init__(self) -> None:
        self.owned: weakref.WeakValueDictionary[bytes, SharedObject] = weakref.WeakValueDictionary()
        self.registered: dict[bytes, tuple[Callable[[], Any], Callable[..., Payload]]] = {}
        self.fetch_descriptor: Callable[[bytes], int] = _no_descriptor
        """Takes the name of an open file of the caller's, and returns a descriptor of this
        process's own, or raises a LookupError.
        """


@functools.cache
def registry() -> Registry:
    return Registry()


def register(name: bytes, fetch: Callable[..., Payload]) -> None:
    """Have a name stand for an object here, whose payload `fetch(writable=False)` gives when it is
    first asked for.
    """
    registry().registered[name] = functools.cache(lambda: _load(fetch(writable=False))), fetch


def register_result(name: bytes, load: Callable[[], Any]) -> None:
    """Have a name stand for the result of a call here, which `load` gives anew for each call that
    names it.
    """
    registry().registered[name] = load, _no_buffers


def _no_buffers(*, writable: bool) -> NoReturn:
    raise LookupError("that is the name of a result, not of an array")


def unregister(name: bytes) -> None:
    """Forget an object that was registered, if it was."""
    registry().registered.pop(name, None)


def owned(name: bytes) -> SharedObject | None:
    """Return what this process has shared by that name, while it is referred to."""
    return registry().owned.get(name)


def find(name: bytes) -> Any:
    """Return what a name stands for: where calls are run the object, and where they were handed in
    what may be handed in again.

    Raises:
        LookupError: it has been let go.
        Exception: whatever loading the object raised.
    """
    registered = registry().registered.get(name)
    if registered is not None:
        return registered[0]()
    shared = owned(name)
    if shared is None:
        raise LookupError("a shared object is not, or no longer, known in this process")
    return shared.object if _RESOLVING_LOCALLY.get() else shared


def buffers_of(name: bytes) -> Payload:
    """Return the bare buffers that a name stands for; what is written to mapped ones nobody else
    sees.

    Raises:
        LookupError: they have been let go.
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
    """Have what is unpickled meanwhile get objects, though it is unpickled where they were
    shared.
    """
    token = _RESOLVING_LOCALLY.set(True)
    try:
        yield
    finally:
        _RESOLVING_LOCALLY.reset(token)


def _no_descriptor(name: bytes) -> int:
    raise LookupError("this process runs no calls for another")


def identity(obj: Any) -> Any:
    """Return the object: how a handle travels to the caller."""
    return obj


KEPT_BYTES = 256_000_000
"""So much of arrays that were used before others is kept, for calls that are yet to come; beyond it
what calls are given together.
"""
_COMPARED_BYTES = 64 * 1024
"""So much is compared at a time: it stays in the processor's cache."""


class _Known(Struct, eq=False):
    """An array that was met; `shared` is the copy that stands for it from the second time on,
    unless it `changes`.
    """

    owner: weakref.ref[Any]
    shared: Shared[Any] | None = None
    changes: bool = False


class RepeatedArrays(Struct, eq=False, weakref=True):
    """The arrays among the arguments of calls, for one thread. It holds none of them, and the copy
    of one no longer than the array itself.

    stored, named: how many bytes were copied for calls to share, and for how many the calls have a
        name, all in all.
    """

    stored: int = 0
    named: int = 0
    _known: dict[tuple[int, int], _Known] = {}

    def find(self, view: memoryview, beside: Sequence[SharedObject] = ()) -> SharedObject | None:
        """Return what stands for a buffer that was met before, else None; `beside` is what was
        found for the same calls.
        """
        owner: Any = view.obj
        interface = getattr(owner, "__array_interface__", None)  # NumPy's, who makes views anew
        key = id(owner) if interface is None else interface["data"][0], view.nbytes
        while hasattr(getattr(owner, "base", None), "__array_interface__"):
            owner = owner.base
        known = self._known.pop(key, None)
        if known is None or known.owner() is not owner:
            forget = functools.partial(_forget, weakref.ref(self), key)
            with contextlib.suppress(TypeError):  # `bytes`, say, cannot be referred to weakly
                self._known[key] = _Known(weakref.ref(owner, forget))
            return None
        self._known[key] = known  # the last, as it is the latest used
        if known.changes:
            return None
        if known.shared is None:
            known.shared = _share(view)
            self.stored += view.nbytes
            self._drop_oldest(beside)
        elif not _is_equal(shared_object_of(known.shared).payload[0], view):
            known.changes, known.shared = True, None  # and will again: it travels with each call
            return None
        self.named += view.nbytes
        return shared_object_of(known.shared)

    def _drop_oldest(self, beside: Sequence[SharedObject]) -> None:
        size = 0
        for key in reversed(list(self._known)):
            known = self._known.get(key)
            if known is not None and known.shared is not None:
                size += key[1]
                # What was used just now stays, or calls of two large arrays copied both each time.
                is_old = size > max(KEPT_BYTES, key[1])
                if is_old and shared_object_of(known.shared) not in beside:
                    known.shared = None

    def clear(self) -> None:
        """Forget all; what calls that were handed in need stays until they have ended."""
        self._known.clear()


def _forget(where: weakref.ref[RepeatedArrays], key: tuple[int, int], _: object) -> None:
    repeated = where()
    if repeated is not None:
        repeated._known.pop(key, None)


def _share(view: memoryview) -> Shared[Any]:
    stored = store([view], whole=True)
    if not isinstance(stored, StoredPayload):
        stored = [bytes(view)]
    return Shared(SharedObject(os.urandom(NAME_BYTES), stored), memoryview)


def _is_equal(kept: Buffer, view: memoryview) -> bool:
    """Return whether these bytes are the same, by the C library's `memcmp`, which `memoryview` does
    not use.
    """
    return all(
        bytes(kept[start : start + _COMPARED_BYTES]).startswith(
            view[start : start + _COMPARED_BYTES]
        )
        for start in range(0, view.nbytes, _COMPARED_BYTES)
    )
