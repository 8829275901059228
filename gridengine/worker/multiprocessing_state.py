"""What `multiprocessing` finds in a runner: the caller's authentication key and resource tracker,
as in a child process of its own.

Nothing of it is imported before user code does so: a hook waits for that.
"""

from __future__ import annotations

import importlib.machinery
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

from gridengine.serialize import shared_objects
from gridengine.worker import parent_requests


def prepare(descriptor: int) -> None:
    """Have this process inherit, once it is wanted, what its agent gives by the socket of this
    descriptor.
    """
    parent_requests.connect(descriptor)
    shared_objects.fetch_descriptors_by(
        lambda name: parent_requests.ask(parent_requests.DESCRIPTOR + name)[1]
    )
    sys.meta_path.insert(0, _Finder())
    for name, adapt in _ADAPTATIONS.items():
        if name in sys.modules:
            adapt(sys.modules[name])


def _inherit_key(process: Any) -> None:
    """Have proxies of the caller's managers accepted (multiprocessing.process); elsewhere this
    process keeps a key of its own.
    """
    try:
        key, _ = parent_requests.ask(parent_requests.AUTHENTICATION_KEY)
        process.current_process().authkey = key
    except LookupError:
        return


def _share_resource_tracker(module: Any) -> None:
    """Have what calls make and let go of noted where the caller notes it
    (multiprocessing.resource_tracker).

    With a tracker of its own a runner would take all away, when it ends, that its calls have made
    for others.
    """
    tracker = module._resource_tracker

    class Tracker(type(tracker)):  # type: ignore[misc]
        @property
        def _fd(self) -> int | None:
            """The descriptor that the tracker reads from; asked for when it is first needed."""
            if self.__dict__["_fd"] is None:
                try:
                    self.__dict__["_fd"] = parent_requests.ask(parent_requests.RESOURCE_TRACKER)[1]
                except LookupError:
                    return None  # it starts one of its own
            return self.__dict__["_fd"]  # type: ignore[no-any-return]

        @_fd.setter
        def _fd(self, descriptor: int | None) -> None:
            self.__dict__["_fd"] = descriptor

    tracker.__class__ = Tracker


def _leave_segments_to_their_makers(module: Any) -> None:
    """Have a segment of shared memory noted by who has made it alone
    (multiprocessing.shared_memory).

    Before Python 3.13 who attached it destroyed it as well; and from then on too, unless told not
    to.
    """
    made, tracker = module.SharedMemory, module.resource_tracker
    here = threading.local()

    def register(name: str, kind: str) -> None:
        if not getattr(here, "attaches", False):
            tracker.register(name, kind)

    class SharedMemory(made):  # type: ignore[misc, valid-type]
        __doc__ = made.__doc__
        _attached = False

        def __init__(
            self, name: str | None = None, create: bool = False, size: int = 0, **more: Any
        ) -> None:
            self._attached = here.attaches = not create and "track" not in more
            try:
                super().__init__(name, create, size, **more)
            finally:
                here.attaches = False

        def unlink(self) -> None:
            if self._attached:  # so that what is struck off the list stood there
                tracker.register(self._name, "shared_memory")
            super().unlink()

    for name in ("__module__", "__qualname__", "__name__"):
        setattr(SharedMemory, name, getattr(made, name))
    module.SharedMemory = SharedMemory
    module.resource_tracker = SimpleNamespace(register=register, unregister=tracker.unregister)


_ADAPTATIONS: Mapping[str, Callable[[Any], None]] = MappingProxyType(
    {
        "multiprocessing.process": _inherit_key,
        "multiprocessing.resource_tracker": _share_resource_tracker,
        "multiprocessing.shared_memory": _leave_segments_to_their_makers,
    }
)
"""What is done once these modules have been imported."""


class _Finder:
    """Finds these modules where they are, and has something done when they have been imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        adapt = _ADAPTATIONS.get(name)
        spec = (
            None if adapt is None else importlib.machinery.PathFinder.find_spec(name, path, target)
        )
        if adapt is not None and spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, adapt)  # type: ignore[assignment]
        return spec


class _Loader:
    def __init__(self, loader: Any, adapt: Callable[[Any], None]) -> None:
        self._loader = loader
        self._adapt = adapt

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._adapt(module)
