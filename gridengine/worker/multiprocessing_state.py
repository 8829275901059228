"""The state of `multiprocessing` in a runner (a name, a parent, the caller's authentication key),
and the threads and children of `multiprocessing` that calls leave running there.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import functools
import importlib.machinery
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

from msgspec import Struct

from gridengine.serialize import shared_objects
from gridengine.serialize.users_modules import after_import, note_sending
from gridengine.system import peer_process

SAY_SECONDS = 5.0
"""After this time a job says what it waits for."""


def left() -> Iterator[str]:
    """Yield the names of the threads and processes that this process must wait for, for people. No
    process is reaped here: another thread may be waiting for it.
    """
    from gridengine.system.machine import exists  # few jobs leave any

    multiprocessing = sys.modules.get("multiprocessing.process")
    for child in list(getattr(multiprocessing, "_children", ())):
        if not child.daemon and child.pid is not None and exists(child.pid):
            yield f"the process {child.name} ({child.pid})"
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            yield f"the thread {thread.name}"


def is_running(own_threads: int = 0) -> bool:
    """Return whether there are threads or processes that this process waits for before it ends.
    `own_threads` is the number of daemon threads of this package.
    """
    # Counts the threads beside the main one. `threading.active_count` takes a lock each time.
    if _thread._count() > own_threads:
        main = threading.main_thread()
        if any(not thread.daemon and thread is not main for thread in threading.enumerate()):
            return True
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is not None and any(
        not child.daemon for child in multiprocessing.active_children()
    )


def is_left(own_threads: int = 0) -> bool:
    """Return whether this process must end by `finish`, and not at once: something is running, exit
    handlers are registered, or `multiprocessing` has to release named objects of the system
    (semaphores, folders).
    """
    util = sys.modules.get("multiprocessing.util")
    return (
        atexit._ncallbacks() > 0
        or bool(util is not None and util._finalizer_registry)
        or is_running(own_threads)
    )


def finish(what: str = "") -> None:
    """Wait for all threads and processes that are left, and let `multiprocessing` release its named
    objects, as its `process.BaseProcess._bootstrap` does. There is no time limit: loky's pool keeps
    its processes for minutes. With `what`, standard error says after a while what that job waits
    for.

    Afterwards this process can only end: executors that have shut down take no more work.
    """
    if what:
        teller = threading.Timer(SAY_SECONDS, _tell, (what,))
        teller.daemon = True
        teller.start()
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._exit_function()
    threading._shutdown()  # type: ignore[attr-defined]


def _tell(what: str) -> None:
    waited_for = ", ".join(left())
    if waited_for:
        with contextlib.suppress(Exception):  # user code may have closed or replaced it
            print(
                f"{what} waits for processes or threads that its function left running: "
                f"{waited_for}\n  try: end them before the function returns",
                file=sys.stderr,
                flush=True,
            )


def prepare(sock: socket.socket, number: int) -> None:
    """Prepare this process to request these things from its agent, by this socket, when user code
    needs them. `number` becomes part of the process's name.
    """
    name = f"PoolWorker-{number}"
    adaptations: dict[str, Callable[[Any], None]] = {
        **_ADAPTATIONS,
        "logging": functools.partial(_name_in_records, name),
        "multiprocessing.process": functools.partial(_be_child, name, sock),
        "multiprocessing.resource_tracker": functools.partial(_share_resource_tracker, sock),
    }
    shared_objects.registry().fetch_descriptor = functools.partial(_fetch_descriptor, sock)
    sys.meta_path.insert(0, _Finder(adaptations))
    for module, adapt in adaptations.items():
        if module in sys.modules:
            adapt(sys.modules[module])


def _fetch_descriptor(sock: socket.socket, name: bytes) -> int:
    from gridengine.wire import agent_requests  # here, as below: most calls request nothing

    return agent_requests.ask(sock, agent_requests.DESCRIPTOR + name)[1]


def _name_in_records(name: str, logging: Any) -> None:
    """Put this process's name into log records before `multiprocessing`, which `logging` would ask
    for the name, is imported.
    """
    made = logging.getLogRecordFactory()

    def record(*args: Any, **kwargs: Any) -> Any:
        one = made(*args, **kwargs)
        if one.processName and "multiprocessing" not in sys.modules:
            one.processName = name
        return one

    logging.setLogRecordFactory(record)


def _be_child(name: str, sock: socket.socket, process: Any) -> None:
    """Set this process's name, its parent (the agent; on the caller's machine that is the caller's
    process), and the caller's authentication key (multiprocessing.process), so that managers of the
    caller accept its proxies. On another machine it has a key of its own.
    """
    from gridengine.wire import agent_requests

    process.current_process().name = name
    process._parent_process = process._ParentProcess(
        "MainProcess", peer_process(sock), sock.fileno()
    )
    try:
        key, _ = agent_requests.ask(sock, agent_requests.AUTHENTICATION_KEY)
        process.current_process().authkey = key
    except LookupError:
        return


def _share_resource_tracker(sock: socket.socket, module: Any) -> None:
    """Share the resource tracker of the caller's machine (multiprocessing.resource_tracker).

    A tracker of the runner's own would remove, when the runner ends, everything that its calls have
    made for others.
    """
    from gridengine.wire import agent_requests

    tracker = module._resource_tracker

    class Tracker(type(tracker)):  # type: ignore[misc]
        @property
        def _fd(self) -> int | None:
            """The descriptor of the tracker; requested when it is first needed."""
            if self.__dict__["_fd"] is None:
                try:
                    self.__dict__["_fd"] = agent_requests.ask(
                        sock, agent_requests.RESOURCE_TRACKER
                    )[1]
                except LookupError:
                    return None  # `multiprocessing` then starts a tracker of its own
            return self.__dict__["_fd"]  # type: ignore[no-any-return]

        @_fd.setter
        def _fd(self, descriptor: int | None) -> None:
            self.__dict__["_fd"] = descriptor

    tracker.__class__ = Tracker


def _leave_segments_to_their_makers(module: Any) -> None:
    """Register a segment of shared memory only in the process that creates it
    (multiprocessing.shared_memory).

    Before Python 3.13, a process that attached to a segment destroyed it as well; since then it
    still does, unless told otherwise.
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
            if self._attached:  # register it first, so that `unlink` finds it registered
                tracker.register(self._name, "shared_memory")
            super().unlink()

    for name in ("__module__", "__qualname__", "__name__"):
        setattr(SharedMemory, name, getattr(made, name))
    module.SharedMemory = SharedMemory
    module.resource_tracker = SimpleNamespace(register=register, unregister=tracker.unregister)


def _fork_unless_told(module: Any) -> None:
    """Fork children by default (multiprocessing.context), as before Python 3.14. From 3.14 on the
    default is a fork server, whose children do not know the script's functions, because the script
    is not run in a runner.
    """
    default = module._default_context
    default._default_context = default.get_context("fork")


_ADAPTATIONS: Mapping[str, Callable[[Any], None]] = MappingProxyType(
    {
        "multiprocessing.context": _fork_unless_told,
        "multiprocessing.reduction": note_sending,
        "multiprocessing.shared_memory": _leave_segments_to_their_makers,
    }
)
"""Functions that are called once these modules have been imported."""


class _Finder(Struct, eq=False):
    """An import hook that finds these modules normally, and calls a function after each import."""

    adaptations: Mapping[str, Callable[[Any], None]]

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.adaptations:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        after_import(spec, self.adaptations[name])
        return spec
