"""Objects that many calls use: the handle that stands for one where it was shared, and the object
where calls run.

Wherever a handle (`Shared`) lies in what is handed in, its name alone is pickled, and the payload
lists what it needs. Workers are sent a shared object as they are sent a function: once, by name,
until a message has them forget it. A runner that unpickles the name gets the object, loaded once in
each process.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from itertools import chain
from typing import Any, Generic, NoReturn, Protocol, Self, TypeVar

from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.serialize.references import NOTHING, Awaited

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
