"""How dill takes apart what C `pickle` refuses. Imported, as dill is, only when something is."""

from __future__ import annotations

import functools
import io
import threading
from collections.abc import Callable, Mapping
from typing import Any

import dill

from gridengine.serialize.by_value import Pickler, Recipe, Reduction


@functools.cache
def dill_recipes() -> Mapping[type, Recipe]:
    """Return dill's recipes, but for what would arrive as something else: locks and files."""
    refused = (type(threading.Lock()), type(threading.RLock()), io.IOBase)
    return {
        kind: functools.partial(_record, handler)
        for kind, handler in dict(dill.Pickler.dispatch).items()
        if not issubclass(kind, refused)
    }


class _Recorder:
    """Stands in for dill's pickler, and keeps the reduction that one of its handlers would have
    saved.
    """

    reduction: Reduction = NotImplemented

    def save_reduce(self, *reduction: Any, obj: Any = None) -> None:
        self.reduction = reduction


def _record(handler: Callable[[_Recorder, Any], None], pickler: Pickler, obj: Any) -> Reduction:
    recorder = _Recorder()
    try:
        handler(recorder, obj)
    except AttributeError:  # it wanted to write bytes of its own
        return NotImplemented
    return recorder.reduction
