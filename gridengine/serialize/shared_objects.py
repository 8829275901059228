"""Objects that many calls use: what stands for one here, and what it is there.

Wherever a handle (`Shared`) lies in what is handed in, its name alone is pickled, and the payload
says what it needs. To workers a shared object is what a function is: sent once, by name, and
forgotten. A runner that unpickles the name gets the object, loaded once in each process.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from gridengine.serialize.payload import Buffer, Payload

T = TypeVar("T")


class Keeper(Protocol):
    """A hub, whose workers may have got shared objects."""

    def release(self, name: bytes) -> None: ...


class SharedObject:
    """A shared object as it travels: the bytes, and the name that they go by.

    Args:
        name: unlike any other.
        payload: pickled; none of its buffers may be written to.
        within: the handles that lie in the object itself.
    """

    def __init__(
        self, name: bytes, payload: Payload, within: tuple[Shared[Any] | None, ...] = ()
    ) -> None:
        self.name = name
        self.payload = payload
        self.within = within
        self.needs: tuple[SharedObject, ...] = needs_of(payload)
        self._keepers: list[weakref.ref[Keeper]] = []
        self._lock = threading.Lock()
        self._released = False
        self._load = functools.partial(loaded, payload)
        _shelf().lent[name] = self

    @functools.cached_property
    def object(self) -> Any:
        """The object, made of these very bytes; its arrays cannot be written to."""
        with in_hand():
            return self._load()

    def used_by(self, keeper: Keeper) -> None:
        """Note who is to be told when no handle is left; that is told at once if none is."""
        with self._lock:
            if not any(one() is keeper for one in self._keepers):
                self._keepers = [
                    *(one for one in self._keepers if one() is not None),
                    weakref.ref(keeper),
                ]
        if self._released:
            keeper.release(self.name)

    def release(self) -> None:
        """Say that no handle is left. Called by the collector too, at any point and in any thread:
        it must not wait for a lock.
        """
        self._released = True
        for one in self._keepers:
            keeper = one()
            if keeper is not None:
                keeper.release(self.name)


class Shared(Generic[T]):
    """A handle for an object that many calls use; `gridengine.share` makes one.

    In a call there is the object itself in its place. Close it, leave its `with` or drop it, and
    the object is let go when no call needs it any more.
    """

    def __init__(self, lent: SharedObject, kind: type) -> None:
        self._lent: SharedObject | None = lent
        self._kind = kind
        self._finalizer = weakref.finalize(self, lent.release)
        self._finalizer.atexit = False

    def get(self) -> T:
        """Return the object as calls get it: a copy, made when it was shared, whose arrays cannot
        be written to.

        Raises:
            ValueError: the handle is closed.
        """
        return lent_of(self).object  # type: ignore[no-any-return]

    def close(self) -> None:
        """Let go of the object once no call that was handed in needs it. May be called twice."""
        self._finalizer()
        self._lent = None

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
        size = (
            "closed"
            if self._lent is None
            else f"{sum(memoryview(one).nbytes for one in self._lent.payload):,} bytes"
        )
        return f"<shared {self._kind.__qualname__}, {size}>"


def lent_of(handle: Shared[Any]) -> SharedObject:
    """Return what stands behind a handle.

    Raises:
        ValueError: it is closed.
    """
    if handle._lent is None:
        raise ValueError(f"the shared {handle._kind.__qualname__} has been closed; share it again")
    return handle._lent


class PayloadWithObjects(list["Buffer"]):
    """A payload in which shared objects are named: it is of use only where these are."""

    needs: tuple[SharedObject, ...] = ()


def needs_of(payload: Payload) -> tuple[SharedObject, ...]:
    """Return the shared objects that are named in a payload, and those named in them."""
    needs: tuple[SharedObject, ...] = getattr(payload, "needs", ())
    return needs


def all_needed(*needs: Iterable[SharedObject]) -> tuple[SharedObject, ...]:
    """Return these shared objects and those named in them, each once."""
    found: dict[SharedObject, None] = {}
    for one in needs:
        for lent in one:
            found.update(dict.fromkeys((*lent.needs, lent)))
    return tuple(found)


def loaded(payload: Payload) -> Any:
    """Return the object of a payload: its arrays are views of the buffers, and cannot be written
    to.
    """
    return pickle.loads(
        payload[0], buffers=[memoryview(buffer).toreadonly() for buffer in payload[1:]]
    )


# ------------------------------------------------------------------ what names stand for in this
# process


class _Brought:
    """A shared object that was brought here to be used by calls."""

    def __init__(self, fetch: Callable[[], Payload]) -> None:
        self._fetch = fetch

    @functools.cached_property
    def object(self) -> Any:
        """The object, loaded when it is first asked for."""
        return loaded(self._fetch())


class _Shelf:
    """The shared objects of this process: lent to others, and brought here by others."""

    def __init__(self) -> None:
        self.lent: weakref.WeakValueDictionary[bytes, SharedObject] = weakref.WeakValueDictionary()
        self.brought: dict[bytes, _Brought] = {}


@functools.cache
def _shelf() -> _Shelf:
    return _Shelf()


def bring(name: bytes, fetch: Callable[[], Payload]) -> None:
    """Have a name stand for an object here, whose payload `fetch` gives when it is first asked
    for.
    """
    _shelf().brought[name] = _Brought(fetch)


def take_away(name: bytes) -> None:
    """Forget an object that was brought, if it was."""
    _shelf().brought.pop(name, None)


def known(name: bytes) -> SharedObject | None:
    """Return what was lent to others in this process by that name, while somebody refers to it."""
    return _shelf().lent.get(name)


def find(name: bytes) -> Any:
    """Return what a name stands for: where calls are run the object, and where they were handed in
    what may be handed in again.

    Raises:
        LookupError: it has been let go.
        Exception: whatever loading the object raised.
    """
    brought = _shelf().brought.get(name)
    if brought is not None:
        return brought.object
    lent = known(name)
    if lent is None:
        raise LookupError("a shared object is not, or no longer, known in this process")
    return lent.object if _IN_HAND.get() else lent


_IN_HAND: ContextVar[bool] = ContextVar("gridengine_in_hand", default=False)


@contextlib.contextmanager
def in_hand() -> Iterator[None]:
    """Have what is unpickled meanwhile get objects, though it is unpickled where they were
    shared.
    """
    token = _IN_HAND.set(True)
    try:
        yield
    finally:
        _IN_HAND.reset(token)


def itself(obj: Any) -> Any:
    """Return the object: how a handle travels home."""
    return obj
