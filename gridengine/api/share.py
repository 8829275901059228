"""`gridengine.share`: an object that many calls use, copied once and held once on each machine."""

from __future__ import annotations

import io
import secrets
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from gridengine.serialize.by_value import Pickler
from gridengine.serialize.encoding import with_dill, with_needs
from gridengine.serialize.payload import Buffer
from gridengine.serialize.recipes import Recipe, Reduction
from gridengine.serialize.shared_memory import StoredPayload, store
from gridengine.serialize.shared_objects import Shared, SharedObject
from gridengine.serialize.unpicklable import or_explain

T = TypeVar("T")


def share(obj: T) -> Shared[T]:
    """Return a handle for an object that many calls use. A call gets the object itself in the
    handle's place.

    The handle may stand anywhere in a call: as an argument, in a list or an attribute, bound by
    `partial`, captured by a function. The object is copied once, now. It is sent to each worker at
    most once, when it is first needed, and the worker's processes map it. Arrays in it cannot be
    written to; see `docs/sharing.md`.

    Raises:
        PicklingError: it cannot travel; the text names the part.
    """
    handles: list[Shared[Any] | None] = []

    def pickled(recipes: Mapping[type, Recipe]) -> list[Buffer]:
        payload, handles[:] = _pickle(obj, {**recipes, **_array_recipes()})
        return payload

    payload = or_explain(lambda: with_dill(pickled), obj, "the object to be shared")
    return Shared(SharedObject(secrets.token_bytes(16), payload, tuple(handles)), type(obj))


def _pickle(
    obj: Any, recipes: Mapping[type, Recipe]
) -> tuple[list[Buffer], list[Shared[Any] | None]]:
    """Return the payload of an object, and the handles that it contains.

    A large payload is in a block. Small arrays are buffers of their own too, and none may be
    written to.
    """
    views: list[memoryview] = []
    file = io.BytesIO()
    pickler = Pickler(file, 5, buffer_callback=lambda buffer: views.append(buffer.raw()))
    pickler.recipes = recipes
    pickler.dump(obj)
    stored = store([file.getvalue(), *views], whole=True)
    payload: list[Buffer] = (
        stored if isinstance(stored, StoredPayload) else [bytes(buffer) for buffer in stored]
    )
    if pickler.needs is None:
        return payload, []
    return with_needs(payload, pickler.needs), list(pickler.needs.values())


def _array_recipes() -> Mapping[type, Recipe]:
    """Return the recipe for arrays with gaps, for which NumPy itself makes no buffers."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return {}

    def reduce_array(pickler: Pickler, array: Any) -> Reduction:
        return (
            NotImplemented
            if array.flags.forc or array.dtype.hasobject
            else numpy.ascontiguousarray(array).__reduce_ex__(5)
        )

    return {numpy.ndarray: reduce_array}
