"""The functions that a runner has unpickled, the things that their calls need, and the caller's own
modules that it has imported for them.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import socket
import sys
import time
import types
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from typing import Any, TypeAlias

from msgspec import Struct, field

from gridengine.call_context import environment
from gridengine.call_context.current_call import GVAR
from gridengine.call_context.environment import (
    NONE_GIVEN,
    CallEnvironment,
    SiteEnvironment,
    Variables,
)
from gridengine.serialize import pickling, shared_objects, users_modules
from gridengine.serialize.codecs import CODECS, PICKLE, Codec, import_function
from gridengine.serialize.exceptions import note_on
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.namespaces import SHARED, Namespaces, Table
from gridengine.serialize.payload import SINGLE, STAR, Payload
from gridengine.serialize.shared_memory import fetch
from gridengine.serialize.unpicklable import rebuilding_error
from gridengine.serialize.users_modules import (
    MAINS,
    CallersMain,
    OwnModules,
    is_module,
    is_own_module,
    parts_of,
)
from gridengine.wire.messages import Assignment, Define, input_name
from gridengine.worker.process_setup import set_path_and_directory

Modules: TypeAlias = dict[str, types.ModuleType]
MOST_SET_ASIDE = 8
NO_VARIABLES = Table()
WRAPPING = ("gridengine.client.initializer", "gridengine.call_context.random_streams")
"""The modules whose objects wrap functions of users, to be called in their place."""


class _Imported(Struct):
    """The modules imported under one module search path. `changes` tells whether one of their files
    has changed since `looked_at` (nanoseconds since 1970). `modules` holds the modules themselves
    while those of another search path are in their place. `namespaces` has the global variables of
    functions that refer to these modules.
    """

    changes: OwnModules = field(default_factory=OwnModules)
    looked_at: int = field(default_factory=time.time_ns)
    modules: Modules = field(default_factory=dict)
    namespaces: Namespaces = field(default_factory=Namespaces)


class CallersModules:
    """Keeps in `sys.modules` the modules that the present caller would import. Packages with
    extension modules stay, because many of these can be loaded only once in a process.
    """

    def __init__(self) -> None:
        self._path = tuple(sys.path)
        self._present = _Imported()
        self._set_aside: dict[tuple[str, ...], _Imported] = {}
        self._is_fresh = True

    def share(self) -> Namespaces:
        """Have functions share global variables, from here on, with the others that refer to the
        present modules, and return these.
        """
        namespaces = self._present.namespaces
        namespaces.is_entered = False
        SHARED.set(namespaces)
        return namespaces

    def enter(self, path: Sequence[str]) -> None:
        """Set aside the modules that this search path would not find, and restore those that were
        imported under it before.
        """
        before, self._path = self._path, tuple(path)
        if before == self._path:
            return
        count, own = modules_before_fork()
        if not self._is_fresh or len(sys.modules) != count:
            own = _own_modules()
        self._is_fresh = False
        if any(_is_elsewhere(name, own[name], path) for name in own if "." not in name):
            self._present.modules = own
            _remove(own)
            self._set_aside[before] = self._present
            known = self._set_aside
            self._present = known.pop(self._path) if self._path in known else _Imported()
            sys.modules.update(self._present.modules)
            self._present.modules = {}
            if len(self._set_aside) > MOST_SET_ASIDE:
                del self._set_aside[next(iter(self._set_aside))]

    def refresh(self) -> bool:
        """Remove all own modules if the file of one has changed, and return whether one has: the
        next loading imports them anew.

        A module that was imported since the last call may have been imported before its file
        changed. Therefore a file newer than the last call counts as changed.
        """
        changes, looked_at = self._present.changes, self._present.looked_at
        generation, self._present.looked_at = changes.generation, time.time_ns()
        changes.check()
        changed = changes.generation != generation or changes.newest > looked_at
        if changed:
            _remove(_own_modules())
            self._present.changes, self._present.namespaces = OwnModules(), Namespaces()
        return changed


@functools.cache
def modules_before_fork() -> tuple[int, Modules]:
    """Return how many modules the fork server has, and its own modules. A fork server calls this,
    so that its runners need not look at all modules: that would copy the memory of each.
    """
    return len(sys.modules), _own_modules()


def _own_modules() -> Modules:
    """Return the callers' own modules by name: whole packages, but none with extension modules."""
    packages: dict[str, Modules] = {}
    for name, module in list(sys.modules.items()):
        if name not in MAINS and is_module(module):
            packages.setdefault(name.partition(".")[0], {})[name] = module
    own: Modules = {}
    for name, package in packages.items():
        files = [str(parts_of(module).get("__file__")) for module in package.values()]
        has_extension = any(file.endswith(tuple(EXTENSION_SUFFIXES)) for file in files)
        if is_own_module(package.get(name)) and not has_extension:
            own |= package
    return own


def _remove(modules: Modules) -> None:
    for name in modules:
        sys.modules.pop(name, None)


def _is_elsewhere(name: str, module: types.ModuleType, path: Sequence[str]) -> bool:
    """Return whether this search path leads to another module of this name, or to none."""
    found, parts = PathFinder.find_spec(name, path), parts_of(module)
    if found is None:
        return True
    folders: Any = found.submodule_search_locations
    if found.origin is None:  # a namespace package: a folder without an `__init__`
        return folders is None or list(folders) != list(parts.get("__path__", ()))
    return found.origin != parts.get("__file__")


Loaded: TypeAlias = tuple[Callable[..., Any], tuple[type[BaseException], ...]]
"""A function, and the exceptions after which its calls are retried."""


class LoadedFunctions:
    """Functions by their digests; and shared objects, registered for the unpickler."""

    def __init__(
        self, main: CallersMain, site: SiteEnvironment | None = None, threads: int = 0
    ) -> None:
        self._main = main
        self.environment = CallEnvironment(site, threads)
        self._scratch = "" if site is None else site.scratch
        self._defined: dict[bytes, tuple[list[str], str, Define, Payload]] = {}
        """By function: its module search path, its directory, its definition and its payload."""
        self._loaded: dict[bytes, Loaded] = {}
        self._tables: dict[bytes, Table] = {}
        """The global variables of each loaded function."""
        self.codecs: dict[bytes, Codec] = {}
        """For functions that are known by name: the codec of their calls."""
        self._own_path = tuple(sys.path)
        self._modules = CallersModules()
        self.namespaces = Namespaces()
        """The global variables of the functions, while the present modules are there."""
        self._path: list[str] | None = None

    def define(self, message: Define, buffers: Payload) -> None:
        """Add a function, a shared object, or a large result."""
        if message.result:
            self._defined[message.function] = [], "", message, buffers
            return
        if message.shared:
            shared_objects.register(message.function, functools.partial(_fetch, message, buffers))
        if message.codec != PICKLE:
            self.codecs[message.function] = CODECS[message.codec]
        given, directory = list(map(os.fsdecode, message.path)), os.fsdecode(message.directory)
        if self._scratch:  # the caller's folders are not here
            given, directory = [self._scratch], self._scratch
        path = [*given, *(entry for entry in self._own_path if entry not in given)]
        self._defined[message.function] = path, directory, message, buffers

    def forget(self, digests: Iterable[bytes]) -> None:
        """Drop functions and shared objects, and everything that was sent with them."""
        large = has_variables = False
        for digest in digests:
            known = self._defined.pop(digest, None)
            has_variables = bool(self._tables.pop(digest, None)) or has_variables
            self._loaded.pop(digest, None)
            self.codecs.pop(digest, None)
            users_modules.forget_function(self._main, digest)
            shared_objects.unregister(digest)
            if known is not None and known[2].blocks and not known[2].result:
                large = True
        if has_variables:
            self.namespaces.forget(self._tables.values())
        if large:
            # A function may be part of a reference cycle, which would keep its memory. Results of
            # calls are left out: there are many, and each is loaded anew for each call.
            gc.collect()

    def register_inputs(
        self, assignment: Assignment, payload: Payload, passed_on: dict[int, Payload]
    ) -> Payload:
        """Make the results that calls refer to available to the unpickler, until `forget_inputs`.
        Results that earlier runs have passed on are taken out of `passed_on`. Return the part of
        the payload that belongs to the calls themselves.
        """
        offset = own = len(payload) - sum(one.buffers for one in assignment.inputs)
        for one in assignment.inputs:
            name, begin, offset = input_name(one.reference), offset, offset + one.buffers
            given = passed_on.pop(one.run) if one.run else payload[begin:offset]
            load = functools.partial(pickling.load_result, given, one.item)
            if not given:
                _, _, message, buffers = self._defined[name]
                load = functools.partial(_load_large, message, buffers, one.item)
            shared_objects.register_result(name, load)
        return payload[:own]

    def forget_inputs(self, assignment: Assignment) -> None:
        """Undo `register_inputs`."""
        for one in assignment.inputs:
            shared_objects.unregister(input_name(one.reference))

    def load(self, digest: bytes, given: Variables = NONE_GIVEN, *, alone: bool = False) -> Loaded:
        """Return a function, after setting up the caller's environment, directory, path and
        `__main__`, and the variables of the allocation; see `CallEnvironment.enter`.

        Raises:
            Exception: the function cannot be loaded, or this machine does not have the directory.
        """
        path, directory, message, payload = self._defined[digest]
        entered = GVAR.environment_number
        self.environment.enter(message.caller, given, alone=alone)
        try:
            if path is not self._path:
                self._modules.enter(path)
                self._path = path
                self.namespaces = self._modules.share()
            set_path_and_directory(path, directory)
            users_modules.enter_function(self._main, digest)
            state = b""
            if entered != GVAR.environment_number and message.caller:
                state = message.caller.interpreter
                if state:
                    environment.restore(state)  # may import, by that path
            loaded = self._loaded.get(digest)
            if loaded is None:
                if self._modules.refresh():
                    self._loaded.clear()
                    self._tables.clear()
                    state = message.caller.interpreter if message.caller else b""
                    self.namespaces = self._modules.share()
                with self.namespaces.recording() as self._tables[digest]:
                    loaded = self._loaded[digest] = _load(message, payload)
            table = self._tables.get(digest, NO_VARIABLES)
            if not (self.namespaces.is_entered and self.namespaces.entered is table):
                self.namespaces.enter(table)
            self.namespaces.is_loading = True  # the arguments, next
            if state:  # last: `set` may assign to global variables of modules, or of the function
                environment.restore_carried(state)
        except BaseException:
            self.environment.leave()
            raise
        return loaded

    def is_left_by_another(self, digest: bytes) -> bool:
        """Return whether this process has state of another caller that a function must not find."""
        caller = self._defined[digest][2].caller
        return caller != self.environment.caller and environment.is_left_by_another(caller)

    def loaded(self, digest: bytes) -> Callable[..., Any] | None:
        """Return a function as it was loaded last; None if it has failed to load."""
        return self._loaded.get(digest, (None, ()))[0]

    def name_of(self, digest: bytes) -> str:
        """Return the name of a function for an error. The function may have failed to load."""
        function = self.loaded(digest)
        return (
            getattr(function, "__qualname__", None)
            or getattr(function, "__name__", None)
            or "a function"
        )


def taking_item(
    function: Callable[..., Any], assignment: Assignment, complete: bool
) -> Callable[[Any], Any]:
    """Return a function that makes the call of one item of a run's list.

    Args:
        complete: whether all items could be loaded. An item that could not be loaded raises its
            error.
    """
    call: Callable[[Any], Any]
    if assignment.form == SINGLE:
        call = function
    elif assignment.form == STAR:

        def call(arguments: Any) -> Any:
            return function(*arguments)

    else:

        def call(pair: Any) -> Any:
            return function(*pair[0], **pair[1])

    if complete:
        return call

    def checked(item: Any) -> Any:
        if type(item) is Unloadable:
            raise item.error
        return call(item)

    return checked


def _load(define: Define, payload: Payload) -> Loaded:
    """Unpickle a function. An error says on which machine and with which path it was tried."""
    _list_folders_anew()
    try:
        if define.codec != PICKLE:
            from gridengine.call_context.coroutines import synchronous  # few name functions

            return synchronous(import_function(str(payload[0], "utf-8"))), ()
        environment.import_for_effect()
        function, retry_on = pickling.load_function(_fetch(define, payload))
        return resumed(function), retry_on
    except BaseException as error:
        where = f"on {socket.gethostname()}, where sys.path is {sys.path}"
        told = rebuilding_error(error)
        note_on(told, [f"while loading the function {where}"])
        if told is error:
            raise
        raise told from None


def resumed(function: Any) -> Any:
    """Return a function that is called by the convention of its `checkpoint_method`, if it has one;
    also within what the package wraps around it, for a seed or an initializer.
    """
    if type(function).__module__ in WRAPPING:
        function._function = resumed(function._function)
    elif method := checkpoint_method(function):
        from gridengine.call_context.checkpoints import ResumedFunction  # here: few need it

        return ResumedFunction(function, method)
    return function


def checkpoint_method(function: Any) -> str:
    """Return the name of the method by which an object makes its next attempt, in submitit's
    spelling or ours; empty if it has none. A class is no such object, even if its instances are.
    """
    kind = type(function)
    if kind is types.FunctionType or isinstance(function, type):
        return ""
    names = ("checkpoint", "__submitit_checkpoint__")
    return next((name for name in names if callable(getattr(kind, name, None))), "")


def _list_folders_anew() -> None:
    """Have the next imports list their folders anew: a module may have been written since. This
    replaces `importlib.invalidate_caches`, which from Python 3.13 on imports `importlib.metadata`,
    30 ms in each runner.
    """
    external: Any = sys.modules["_frozen_importlib_external"]
    namespaces: Any = getattr(external, "_NamespacePath", None)
    if not hasattr(namespaces, "_epoch") or "importlib.metadata" in sys.modules:
        importlib.invalidate_caches()
        return
    for folder, finder in list(sys.path_importer_cache.items()):
        if finder is None or not folder.startswith(os.sep):
            sys.path_importer_cache.pop(folder, None)
    namespaces._epoch += 1
    finders: list[Any] = [*sys.meta_path, *sys.path_importer_cache.values()]
    for one in finders:
        if one is not PathFinder and hasattr(one, "invalidate_caches"):
            one.invalidate_caches()


def _load_large(define: Define, payload: Payload, item: int) -> Any:
    if define.blocks:
        return pickling.load_result(_fetch(define, payload), item)
    return pickling.load_result([memoryview(buffer).toreadonly() for buffer in payload], item)


def _fetch(define: Define, payload: Payload, *, writable: bool = True) -> Payload:
    return fetch(define.blocks, payload, writable=writable) if define.blocks else payload
