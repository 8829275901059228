"""The global variables of functions that travel by value: one set for all functions of a module, in
each process that runs them.

What one function assigns or caches, the next one finds, as in the processes of `multiprocessing`.
Yet each call finds the variables as its caller had them when it submitted the call. Therefore each
value travels with its version (see `by_value.version_of`), and a process keeps one value for each
version of a variable. A variable that gets an earlier value again gets a version of its own: the
process may have changed the earlier one. When a process goes from the calls of one function to
those of another, it changes only the variables whose versions differ (`Namespaces.enter`). So a
value that the caller has not changed since stays as this process has made it, and one that the
caller has changed is assigned.

The version of a variable that the caller does not have is `MISSING_VERSION`: what an initializer
assigns to such a variable belongs to that version. Large values, and functions with a cache that
may depend on other variables, have no version (None). They are assigned each time.

All attributes of a class that travels by value are, together, one such variable.

The calls of each executor that has an initializer have a space of their own, with other values:
several executors may share a process.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import os
import sys
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar

from gridengine.serialize.users_modules import CallersMain, parts_of
from gridengine.threads import once

NAMES = ("__name__", "__package__", "__file__")
"""The names that a function's global variables have beside those that its code names."""
T = TypeVar("T")
MISSING = object()
MISSING_VERSION = b""
COUNT_BYTES = 8
MOST_UNUSED = 4
"""A process keeps at most this many namespaces, and spaces of each, that no function uses: the next
function may use them.
"""

Version: TypeAlias = bytes | None


class Origin:
    """The global variables of a module, in the pickle of functions that name them. `token`
    identifies the module and the process; it is empty for a dictionary that is no module's.
    """

    def __init__(self, variables: dict[str, Any]) -> None:
        self.token = token_of(variables)
        self._received = _received().get(id(variables))
        self.names = {name: variables[name] for name in NAMES if name in variables}
        self.reductions: dict[types.FunctionType, Any] = {}
        self.texts: dict[str, Any] = {}
        """The variables that texts name (see `by_value.named_in_texts`); None: left out."""
        self.tried: set[str] = set()
        """Those of them that are being pickled now, to see whether they can travel."""
        self.versions: dict[str, Version] = {}
        self.parts: dict[str, Mapping[int, Any]] = {}
        """For each variable, by `id`, the objects in its value that may change in place."""

    def note(self, found: Mapping[str, tuple[Version, Mapping[int, Any]]]) -> None:
        """Note the versions of variables that a function names. Variables that have an object in
        common get one version for all: another process has to assign them together.
        """
        self.versions.update((name, self._dated(name, one)) for name, (one, _) in found.items())
        more = {name: parts for name, (_, parts) in found.items() if parts}
        self.parts.update(more)
        if not more or len(self.parts) == 1:
            return
        owners: dict[int, str] = {}
        for name, parts in self.parts.items():
            for part in parts:
                owners.setdefault(part, name)
        joined = {
            one
            for name, parts in more.items()
            for part in parts
            if owners[part] != name
            for one in (name, owners[part])
        }
        alike = [self.versions[name] for name in sorted(joined)]
        both = None if None in alike else b"".join(filter(None, alike))
        self.versions.update(dict.fromkeys(joined & found.keys(), both))

    def _dated(self, name: str, version: Version) -> Version:
        """Return the version of a variable, with the number of its changes. A call that hands on a
        variable of its caller's, unchanged, hands on the version too.
        """
        given = None if self._received is None else self._received.versions.get(name)
        if given and version in (given, given[:-COUNT_BYTES]):
            return given
        return version and dated(_changes(), (self.token, name), version)


def dated(changes: MutableMapping[T, tuple[bytes, int]], key: T, version: bytes) -> bytes:
    """Return a version with the number of changes so far; `changes` has the last version."""
    before, count = changes.get(key, (version, 0))
    count += before != version
    changes[key] = version, count
    return version + count.to_bytes(COUNT_BYTES, "big") if count else version


def origin_of(variables: dict[str, Any], origins: dict[int, Origin]) -> Origin:
    """Return the origin of global variables. `origins` are those of one pickle, by `id`."""
    known = origins.get(id(variables))
    if known is None:
        known = origins[id(variables)] = Origin(variables)
    return known


def token_of(variables: dict[str, Any]) -> bytes:
    """Return the token of global variables: empty for those of no module, and for those of modules
    that a call has imported.
    """
    received = _received().get(id(variables))
    if received is not None:
        return received.token
    name = variables.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or parts_of(module) is not variables:
        return b""
    if isinstance(sys.modules.get("__main__"), CallersMain):
        return b""
    return _token(os.getpid(), str(name))


@functools.cache
def _changes() -> dict[tuple[bytes, str], tuple[bytes, int]]:
    """Return the last sent version of each variable, and how often it had changed before."""
    return {}


@functools.cache
def _token(process: int, name: str) -> bytes:
    """Return the token of a module. A child that this process has forked has other tokens."""
    return os.urandom(16)


class Namespace:
    """The global variables of one module of a caller, or the attributes of a class, in the present
    space.
    """

    def __init__(
        self,
        token: bytes,
        names: Mapping[str, Any],
        space: str,
        variables: MutableMapping[str, Any] | None = None,
    ) -> None:
        self.token = token
        self.variables: Any = dict(names) if variables is None else variables
        self._names = names
        self._space = space
        self.versions: dict[str, Version] = {}
        """The present version of each variable."""
        self._kept: dict[tuple[str, bytes], Any] = {}
        """The values of variables in other versions, as this process left them."""
        self.of_functions: set[tuple[str, Version]] = set()
        """The versions of variables that loaded functions name; arguments bring others."""
        self._others: dict[str, State] = {}
        """The variables, versions and kept values in other spaces."""

    def enter(self, space: str) -> None:
        """Change to the variables of a space. Functions and classes refer to the same dictionary,
        in all spaces.
        """
        others = self._others
        others[self._space] = dict(self.variables), self.versions, self._kept
        known = others.pop(space, None)
        variables, self.versions, self._kept = known or (self._names, {}, {})
        self._space = space
        self.variables.clear()
        self.variables.update(variables)

    def put(self, name: str, version: Version, value: Any) -> bool:
        """Change a variable to a version, unless it has that version. `value` is its value if this
        process has none for that version. Return whether the variable has changed.
        """
        present = self.versions.get(name, MISSING_VERSION)
        if present == version and version is not None:
            return False
        if present is not None:
            self._kept[name, present] = self.variables.get(name, MISSING)
            if (name, present) not in self.of_functions:
                # Keep the last few values of a variable that no function names.
                kept = [one for one in self._kept if one[0] == name]
                for one in [one for one in kept if one not in self.of_functions][:-MOST_UNUSED]:
                    del self._kept[one]
        if version is not None:
            value = self._kept.pop((name, version), value)
        self.versions[name] = version
        if value is MISSING:
            self.variables.pop(name, None)
        else:
            self.variables[name] = value
        return True

    def forget(self, used: Mapping[str, set[Variable]]) -> None:
        """Drop the values that no function needs any more. `used` are the variables that functions
        name, by space.
        """
        self.of_functions = {(n, v) for one in used.values() for ns, n, v in one if ns is self}
        unused = [space for space in self._others if space not in used]
        for space in unused[:-MOST_UNUSED]:
            del self._others[space]
        present = self.variables, self.versions, self._kept
        for space, (variables, versions, kept) in (*self._others.items(), (self._space, present)):
            needed = used.get(space, set())
            for name, version in list(kept):
                if version and (self, name, version) not in needed:
                    del kept[name, version]
            for name, given in list(versions.items()):
                if given is None and (self, name, None) not in needed:
                    del versions[name]
                    variables.pop(name, None)


State: TypeAlias = tuple[dict[str, Any], dict[str, Version], dict[tuple[str, bytes], Any]]
Variable: TypeAlias = tuple[Namespace, str, Version]


class Table(dict[tuple[Namespace, str], tuple[Version, Any]]):
    """The variables that the functions of one payload name, each with its version and its value."""

    space = ""


class Namespaces:
    """The namespaces of a process, as long as it has the same modules."""

    def __init__(self) -> None:
        self._known: dict[bytes, Namespace] = {}
        """By their tokens, in the order of use."""
        self._space = ""
        self._recorded = Table()
        self._is_recording = False
        """Whether a function is being loaded, not arguments."""
        self.entered = Table()
        """The table that was entered last."""
        self.is_entered = False
        """Whether no variable has changed its version since then."""
        self.is_loading = True
        """Whether functions are loaded to be called, or their arguments. Otherwise they are results
        of calls that a call has made: these do not change its variables.
        """

    def find(self, token: bytes, names: Mapping[str, Any]) -> dict[str, Any]:
        """Return the global variables of this token."""
        found = self._known.pop(token, None) or Namespace(token, names, self._space)
        self._known[token] = _received()[id(found.variables)] = found
        variables: dict[str, Any] = found.variables
        return variables

    def fill(
        self, namespace: Namespace, versions: Mapping[str, Version], used: Mapping[str, Any]
    ) -> None:
        """Change variables to the versions that came with a function."""
        if not self.is_loading:
            for name, value in used.items():
                namespace.variables.setdefault(name, value)
            return
        for name, version in versions.items():
            value = used.get(name, MISSING)
            if self._is_recording:
                namespace.of_functions.add((name, version))
            if namespace.put(name, version, value):
                self.is_entered = False
            self._recorded[namespace, name] = version, value

    def fill_class(
        self, token: bytes, attributes: MutableMapping[str, Any], version: bytes, value: Any
    ) -> bool:
        """Change the attributes of a class to the version that came with a function, or with an
        argument if a function has the class too; return whether that is so.
        """
        namespace = self._known.pop(token, None)
        if namespace is None:
            if not self._is_recording:
                return False
            namespace = Namespace(token, {}, self._space, attributes)
        self._known[token] = namespace
        if self._is_recording:
            namespace.of_functions.add(("", version))
        if namespace.put("", version, value):
            self.is_entered = False
        self._recorded[namespace, ""] = version, value
        return True

    def enter_space(self, space: str) -> None:
        """Change to the variables of an executor that has its own."""
        self._recorded.space = space
        if space != self._space:
            self._space, self.is_entered = space, False
            for namespace in self._known.values():
                namespace.enter(space)

    @contextlib.contextmanager
    def recording(self) -> Iterator[Table]:
        """Record the variables that come with a function, which is loaded meanwhile."""
        self.is_entered, self.is_loading = False, True
        self._recorded = table = Table()
        self.enter_space("")
        self._is_recording = True
        try:
            yield table
        finally:
            self._is_recording = False

    def enter(self, table: Table) -> None:
        """Change to the variables of this table, before calls of its function."""
        self.entered = table
        self._recorded = Table()  # for variables of arguments
        self.enter_space(table.space)
        self.enter_again()

    def enter_again(self) -> None:
        """Change to the variables of the last table again, unless `is_entered`: arguments that have
        been loaded may have brought others.
        """
        self._recorded.clear()
        for (namespace, name), (version, value) in self.entered.items():
            namespace.put(name, version, value)
        self.is_entered = True

    def forget(self, tables: Iterable[Table]) -> None:
        """Drop the values that none of these tables, which are all that are left, needs."""
        used: dict[str, set[Variable]] = {}
        for table in tables:
            variables = ((*key, version) for key, (version, _) in table.items())
            used.setdefault(table.space, set()).update(variables)
        needed = {namespace for table in used.values() for namespace, _, _ in table}
        unused = [token for token, one in self._known.items() if one not in needed]
        for token in unused[:-MOST_UNUSED]:
            del self._known[token]
        for namespace in self._known.values():
            namespace.forget(used)


SHARED: ContextVar[Namespaces | None] = ContextVar("gridengine_namespaces", default=None)
"""The namespaces of functions that are loaded now. None where functions are not loaded to be
called: each payload then has variables of its own.
"""


def find(token: bytes, names: dict[str, Any]) -> dict[str, Any]:
    """Return the global variables for functions of a payload."""
    shared = SHARED.get()
    return dict(names) if shared is None else shared.find(token, names)


def fill(variables: dict[str, Any], versions: Mapping[str, Version], used: dict[str, Any]) -> bool:
    """Give a function its global variables; return whether it shares them with functions of other
    payloads.
    """
    shared, namespace = SHARED.get(), _received().get(id(variables))
    if shared is None or namespace is None:
        return False
    shared.fill(namespace, versions, used)
    return True


def fill_class(
    token: bytes, attributes: MutableMapping[str, Any], version: bytes, value: Any
) -> bool:
    """Give a class its attributes, if it shares them with the functions of other payloads; return
    whether it does.
    """
    shared = SHARED.get()
    if shared is None or not shared.is_loading:
        return False
    return shared.fill_class(token, attributes, version, value)


def enter_space(space: str) -> None:
    """Change to the variables of an executor for the payload that is being loaded."""
    shared = SHARED.get()
    if shared is not None:
        shared.enter_space(space)


def unknown_names(names: Iterable[str], variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names that code uses and that neither these variables nor Python has."""
    known = vars(builtins)
    return (name for name in names if name not in variables and name not in known)


@once
def _received() -> weakref.WeakValueDictionary[int, Namespace]:
    """Return the namespaces of this process, by the `id` of their variables."""
    return weakref.WeakValueDictionary()
