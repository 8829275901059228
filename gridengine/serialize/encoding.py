"""One object to its payload: by C `pickle` with our recipes, and with dill's if it refuses.

dill is imported only when C `pickle` has refused an object.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import socket
import sys
import threading
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gridengine.serialize.by_value import Pickler
from gridengine.serialize.payload import Buffer
from gridengine.serialize.recipes import Recipe, Reduction
from gridengine.serialize.references import NOTHING, Awaited
from gridengine.serialize.shared_memory import LARGE, BlockWriter, StoredPayload
from gridengine.serialize.shared_objects import (
    PayloadWithObjects,
    RepeatedArrays,
    SharedObject,
    all_needed,
)

OUT_OF_BAND = 64 * 1024
"""From this size in bytes a buffer is apart from the pickle: a copy costs more than a frame."""


def encode(
    obj: object,
    recipes: Mapping[type, Recipe],
    *,
    for_caller: bool = False,
    whole_classes: bool = False,
    takes_futures: bool = False,
    writer: BlockWriter | None = None,
    repeated: RepeatedArrays | None = None,
) -> list[Buffer]:
    """Return an object's payload.

    Args:
        recipes: recipes for types that C `pickle` refuses.
        for_caller: the object is sent at once, to the process that the calls came from. So its
            buffers are not copied, and that process knows the classes.
        whole_classes: the caller may forward the object to processes that do not know the classes.
        takes_futures: the object is handed in for calls, which get the results of futures.
        writer: takes the large buffers, if they may lie in shared memory.
        repeated: knows large arrays of earlier calls, and has a name stand for each of them.

    Raises:
        Exception: the object, or a part of it, cannot be pickled.
    """
    buffers: list[Buffer] = []
    named: list[SharedObject] = []  # a callback to the pickler would be a cycle

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < OUT_OF_BAND:
            return True
        large = view.nbytes >= LARGE
        if repeated is not None and large and (known := repeated.find(view, named)) is not None:
            buffers.append(known.name)
            named.append(known)
        elif writer is not None and large and writer.put(1 + len(buffers), view):
            buffers.append(b"")
        else:  # an object that is handed in may change before it is sent, or sent again
            buffers.append(view if for_caller or _never_changes(view) else view.tobytes())
        return False

    file = io.BytesIO()
    pickler = Pickler(file, 5, buffer_callback=in_band)
    pickler.for_caller, pickler.recipes = for_caller, recipes
    pickler.knows_classes = for_caller and not whole_classes
    pickler.takes_futures = takes_futures
    pickler.names_files = not for_caller
    pickler.dump(obj)
    for one in named:
        pickler.name_shared(one)
    payload = [file.getvalue(), *buffers]
    if writer is not None:
        payload = writer.finish(payload)
    if pickler.generators and repeated is not None:
        repeated.note_generators(pickler.generators)
    copies_generator = pickler.generators is not None and writer is not None
    if pickler.needs is None and pickler.awaits is None and not copies_generator:
        return payload
    marked = with_needs(payload, pickler.needs or (), awaits=pickler.awaits or {})
    marked.copies_generator = copies_generator
    return marked


def _never_changes(view: memoryview) -> bool:
    """Return whether nobody can write to this memory. A read-only view is not enough: the array
    behind it may be writable.
    """
    owner: Any = view
    while (base := getattr(owner, "base", getattr(owner, "obj", None))) is not None:
        owner = base
    try:
        return view.readonly and memoryview(owner).readonly
    except TypeError:  # the owner does not show its memory
        return False


def with_needs(
    payload: list[Buffer], *needs: Iterable[SharedObject], awaits: Awaited = NOTHING
) -> PayloadWithObjects | StoredPayload:
    """Return a payload that lists the shared objects and the results that it needs."""
    if not isinstance(payload, StoredPayload):
        payload = PayloadWithObjects(payload)
    payload.needs, payload.awaits = all_needed(*needs), awaits
    return payload


def with_dill(encode_with: Callable[[Mapping[type, Recipe]], list[Buffer]]) -> list[Buffer]:
    """Encode an object with recipes for sockets and for objects of `multiprocessing` alone. If it
    is refused, try dill's recipes too; then also names for objects that modules offer.

    Raises:
        TypeError, PicklingError: all three are refused; the error is that of the first.
    """
    recipes: Mapping[type, Recipe] = SOCKETS
    if "multiprocessing.reduction" in sys.modules:
        from gridengine.serialize import descriptors

        recipes = descriptors.recipes()
    try:
        return encode_with(recipes)
    except (TypeError, pickle.PicklingError) as error:
        more = {**dill_recipes(), **recipes}
        with contextlib.suppress(TypeError, pickle.PicklingError):
            return encode_with(more)

        from gridengine.serialize.named_objects import name_recipes

        try:
            return encode_with({**more, **name_recipes(more, recipes)})
        except (TypeError, pickle.PicklingError):
            raise error from None  # the text of the other errors is about dill


def _reduce_socket(pickler: Pickler, one: socket.socket) -> Reduction:
    import multiprocessing.reduction  # noqa: F401 (whose recipe for sockets this is; few need it)

    from gridengine.serialize import descriptors

    return descriptors.recipes()[socket.socket](pickler, one)


SOCKETS: Mapping[type, Recipe] = types.MappingProxyType({socket.socket: _reduce_socket})


@functools.cache
def dill_recipes() -> Mapping[type, Recipe]:
    """Return dill's recipes, but not those of locks and files, which would arrive as others."""
    import dill  # here: few need it, and its import would delay every start

    refused = (type(threading.Lock()), type(threading.RLock()), io.IOBase)
    return {
        kind: functools.partial(_record, handler)
        for kind, handler in dict(dill.Pickler.dispatch).items()
        if not issubclass(kind, refused)
    }


class _ReductionRecorder:
    """Stands in for dill's pickler, and records the reduction that a handler of dill saves."""

    reduction: Reduction = NotImplemented

    def save_reduce(self, *reduction: Any, obj: Any = None) -> None:
        self.reduction = reduction


def _record(
    handler: Callable[[_ReductionRecorder, Any], None], pickler: Pickler, obj: Any
) -> Reduction:
    recorder = _ReductionRecorder()
    try:
        handler(recorder, obj)
    except AttributeError:  # the handler wants to write bytes of its own
        return NotImplemented
    return recorder.reduction
