"""Keys of calls: the digests of functions and of arguments by which a named run recognises its
calls.

A key is the same in every process that has the same function and arguments. It contains no memory
address, no random name, and no order of a set. A function's place in its file and its comments do
not count. A function's digest covers the user's own functions, classes and variables that the
function refers to. Each of these has a digest of its own, so that the log can name the changed one.

Rejected: digests of source text. Code objects ignore comments, docstrings and positions, and exist
for code that is made by `exec` or typed at a prompt. The price: another minor version of Python
makes other code.

Modules of the user that a function imports when it runs count too (see `code_facts`).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from msgspec import Struct

from gridengine.errors import ConfigurationError
from gridengine.journal.code_facts import (
    CONSTANTS_SHIFT,
    facts_of,
    imported_code,
    own_code,
    with_packages,
)
from gridengine.journal.key_recipes import recipe_of, reduced
from gridengine.journal.module_uses import (
    ByName,
    by_name,
    imports_by_text,
    is_users_module,
    members,
    own_modules_around,
    reads_globals,
    uses,
)
from gridengine.journal.what_counts import IgnoredArguments, counted_function
from gridengine.serialize.by_value import Pickler, named_in_texts
from gridengine.serialize.byte_code import PYTHON, global_names
from gridengine.serialize.classes import MADE_ANEW, is_by_value, is_importable, known_classes
from gridengine.serialize.encoding import with_dill
from gridengine.serialize.functions import LOOKED_UP, contents_of, names_in_texts
from gridengine.serialize.imports_for_effect import imports_for_effect
from gridengine.serialize.lazy_imports import LAZY, path_of
from gridengine.serialize.payload import ATOMS, FULL, SINGLE, STAR
from gridengine.serialize.recipes import Reduction
from gridengine.serialize.references import ResultHolder, hook
from gridengine.serialize.sentinels import SENTINEL
from gridengine.serialize.shared_objects import Shared
from gridengine.serialize.unpicklable import name_of
from gridengine.serialize.users_modules import MAINS, is_own_module

KEY_BYTES = 16
SETS: tuple[bytes, ...] = (pickle.EMPTY_SET, pickle.FROZENSET)
_SALTS: Mapping[int, bytes] = {form: bytes([form]) for form in (SINGLE, STAR, FULL)}
_CLASS_PARTS = frozenset(
    {
        *MADE_ANEW,
        *LOOKED_UP,
        "__annotations__",
        "__firstlineno__",
        "__static_attributes__",
        "__annotate__",
    }
) - {"__slots__"}
_FUNCTION_DATA = ("__defaults__", "__kwdefaults__", "__dict__")

Parts: TypeAlias = dict[str, str]
"""The digests of the parts of a function: its functions, classes and variables by name."""


class FunctionKey(Struct, frozen=True):
    """The key of a function: its name, its digest, and the digests of its parts."""

    name: str
    digest: bytes
    parts: Parts
    ignored: IgnoredArguments | None = None
    """Says which arguments of its calls do not count; None if all do."""


class CallKeys:
    """Makes the keys of the calls of one run. Each object is digested once. A class that changes
    afterwards keeps its first digest.

    ignored: says which arguments do not count; None if all do.
    """

    def __init__(self, ignored: IgnoredArguments | None = None) -> None:
        self.ignored = ignored
        self._definitions: dict[int, tuple[object, bytes]] = {}
        """By `id`: a function or class, and the digest of all its parts."""
        self._shared: dict[int, tuple[object, bytes]] = {}
        """By `id`: the handle of a shared object, and the digest of the object."""

    def of_function(
        self,
        f: Callable[..., Any],
        depends: Sequence[tuple[str, Any]] = (),
        ignore: Sequence[str] = (),
        *,
        prepared_by: Iterable[tuple[str, Any]] = (),
    ) -> FunctionKey:
        """Return the key of a function. A part that cannot be pickled counts by its type.

        depends: objects that count with the function, by their names.
        ignore: the parameters of the function whose arguments do not count.
        prepared_by: the initializer of the processes and its arguments, by their names.

        Raises:
            ConfigurationError: one of `depends` cannot be pickled.
        """
        for name, value in depends:
            try:
                self.of_object(value)
            except Exception as error:
                raise ConfigurationError(
                    f"depends= has a {type(value).__qualname__}, which cannot be pickled ({name}): "
                    f"{error}",
                    hint="give a file, or plain data that changes when it does",
                ) from error
        counted = counted_function(f, ignore) if ignore else f
        parts = _Walk(self).parts_of(counted, [*depends, *prepared_by])
        main = sys.modules["__main__"]
        _, unused = imports_for_effect(main, len(vars(main)), len(sys.modules))
        for name, code in own_code(unused):  # the function may find what they have registered
            parts[f"import {name}"] = self.of_object(code).hex()
        parts["Python"] = PYTHON
        ignored = IgnoredArguments(f, ignore) if ignore else None
        return FunctionKey(_name(f), _digest_of_parts(parts), parts, ignored)

    def of_call(self, call: Any, form: int) -> bytes:
        """Return the key of the arguments of one call.

        Raises:
            PicklingError, TypeError: the arguments cannot be pickled.
        """
        if self.ignored is not None:
            call = self.ignored.counted(call, form)
        if is_plain([call]):
            return hashlib.blake2b(
                pickle.dumps(call, 5), digest_size=KEY_BYTES, salt=_SALTS[form]
            ).digest()
        return self.of_object(call, salt=_SALTS[form])

    def of_calls(self, calls: Sequence[Any], form: int) -> list[bytes]:
        """Return the keys of many calls."""
        if not self.are_plain(calls):
            return [self.of_call(call, form) for call in calls]
        blake2b, dumps, salt = hashlib.blake2b, pickle.dumps, _SALTS[form]
        return [blake2b(dumps(call, 5), digest_size=16, salt=salt).digest() for call in calls]

    def are_plain(self, calls: Sequence[Any]) -> bool:
        """Return whether the keys of these calls follow from their pickles alone."""
        return self.ignored is None and is_plain(calls)

    def of_object(self, obj: Any, *, salt: bytes = b"", walk: _Walk | None = None) -> bytes:
        """Return the digest of an object. With a walk, the user's own functions and classes in the
        object are noted there. Without one, their digests are part of the object's.
        """
        names = _Walk(self) if walk is None else walk
        body, buffers = _pickled(_KeyPickler, obj, names)
        # A byte that only looks like the opcode costs a second pickling, and does no other harm.
        if any(opcode in body for opcode in SETS):
            body, buffers = _pickled(_OrderedPickler, obj, names)
        digest = hashlib.blake2b(body, digest_size=KEY_BYTES, salt=salt)
        for buffer in buffers:
            digest.update(buffer.raw())
        if walk is None:
            for one in names.waiting:
                digest.update(self._of_definition(one))
        return digest.digest()

    def _of_definition(self, one: Any) -> bytes:
        known = self._definitions.get(id(one))
        if known is None:
            known = one, _digest_of_parts(_Walk(self).parts_of(one))
            self._definitions[id(one)] = known
        return known[1]

    def of_shared(self, handle: Shared[Any]) -> bytes:
        """Return the digest of the object that a handle stands for."""
        known = self._shared.get(id(handle))
        if known is None:
            known = self._shared[id(handle)] = handle, self.of_object(handle.get())
        return known[1]


def is_plain(calls: Sequence[Any]) -> bool:
    """Return whether all arguments of the calls are numbers, texts, bytes or None. Their keys stay
    the same when they are pickled and unpickled.
    """
    kinds = set(map(type, calls))
    if kinds == {tuple}:
        kinds = set(map(type, chain.from_iterable(calls)))
    return kinds <= ATOMS


def _digest_of_parts(parts: Parts) -> bytes:
    digest = hashlib.blake2b(digest_size=KEY_BYTES)
    for name, of in sorted(parts.items()):
        digest.update(f"{name}\0{of}\0".encode())
    return digest.digest()


def _pickled(
    kind: type[_KeyPickler], obj: Any, walk: _Walk
) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Return the pickle of an object for its digest, and its buffers, which are not copied."""
    made: list[Any] = []

    def encode(recipes: Mapping[type, Any]) -> list[Any]:
        file, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
        pickler = kind(file, 5, buffer_callback=buffers.append)
        pickler.recipes, pickler.walk = recipes, walk
        pickler.dump(obj)
        made[:] = file.getvalue(), buffers
        return made

    with_dill(encode)
    body, buffers = made
    return body, buffers


class _KeyPickler(Pickler):
    """Pickles only for digests: the user's own functions and classes are mere names."""

    walk: _Walk

    def reducer_override(self, obj: Any) -> Reduction:
        """Called by C `pickle` for all objects but plain builtin values."""
        kind: Any = type(obj)
        recipe = recipe_of(kind)
        if recipe is not None and (reduction := reduced(recipe, obj)) is not NotImplemented:
            return reduction
        is_class = isinstance(obj, type)
        if (kind is types.FunctionType or is_class) and is_users(obj):
            if is_class and is_by_value(obj):
                known_classes().token(obj)  # a stored result finds the class by its name
            return str, (self.walk.name(obj),)
        if kind is ByName:
            return importlib.import_module, (obj.module.__name__,)
        if is_users_module(obj):
            return str, (self.walk.name(obj),)
        if kind is functools._lru_cache_wrapper:
            return tuple, (("lru_cache", obj.__wrapped__),)
        if kind is types.CodeType:
            return str, (repr(facts_of(obj)),)
        if kind is SENTINEL:
            return str, (f"{obj.__module__}.{obj.__name__}",)
        if kind is Shared:
            return bytes, (self.walk.keys.of_shared(obj),)
        if isinstance(obj, (ResultHolder, *hook().kinds)):
            self.walk.awaits = True
            raise TypeError("the result of another call, a future, which is not there yet")
        return super().reducer_override(obj)


class _OrderedPickler(_KeyPickler):
    """Like `_KeyPickler`, with sets in an order that is the same in every process."""

    def persistent_id(self, obj: Any) -> Any:
        """Called by C `pickle` for each object."""
        kind = type(obj)
        if kind is set or kind is frozenset:
            digests = sorted(self.walk.keys.of_object(one, walk=self.walk) for one in obj)
            return kind.__name__, tuple(digests)
        return None


def is_users(obj: Any) -> bool:
    """Return whether a function or class is the user's own: defined in the script or a notebook,
    inside a function, or in a module that belongs neither to the environment nor to Python.
    """
    if isinstance(obj, type) and not obj.__flags__ & 1 << 9:  # made by C code
        return False
    if obj.__module__ in MAINS or not is_importable(obj):
        return True
    return is_own_module(sys.modules.get(obj.__module__))


def _name(f: Any) -> str:
    """Return the name of a function for people. A partial has the name of its function."""
    while isinstance(f, functools.partial):
        f = f.func
    return name_of(f)


class _Walk:
    """Finds all of the user's own functions, classes and variables that one object refers to."""

    def __init__(self, keys: CallKeys) -> None:
        self.keys = keys
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        self.awaits = False
        """Whether the walk has met the result of another call."""
        self.waiting: list[Any] = []
        """Functions and classes that were met and have not been looked into."""

    def name(self, obj: Any) -> str:
        """Return the name of a function, class or module among the parts. Where several have one
        name, as lambdas do, the later ones get a number.
        """
        if id(obj) not in self._names:
            if isinstance(obj, types.ModuleType):
                name = f"module {obj.__name__}"
            else:
                name = obj.__qualname__
                if obj.__module__ not in MAINS:
                    name = f"{obj.__module__}.{name}"
            free = (name if not number else f"{name} ({number})" for number in range(sys.maxsize))
            self._names[id(obj)] = chosen = next(one for one in free if one not in self._taken)
            self._taken.add(chosen)
            self.waiting.append(obj)
        return self._names[id(obj)]

    def parts_of(self, root: Any, others: Iterable[tuple[str, Any]] = ()) -> Parts:
        """Return the digests of all parts of an object, and of other objects by their names."""
        parts: Parts = {}
        for name, value in (("itself", root), *others):
            self._note(parts, name, value)
        met = []  # keep them alive: another object could get the `id` of a collected one
        while self.waiting:
            one = self.waiting.pop()
            met.append(one)
            for name, value in _parts(one):
                whole = f"{self.name(one)}{name}" if name.startswith(":") else name
                self._note(parts, whole, value)
        return parts

    def _note(self, parts: Parts, name: str, value: Any) -> None:
        try:
            digest = self.keys.of_object(value, walk=self)
        except KeyboardInterrupt:
            raise
        except BaseException:  # a user's class may do anything when it is pickled
            # An object with the result of another call may have any value: give it a random
            # digest, which equals none before.
            unlike = os.urandom(KEY_BYTES) if self.awaits else b""
            told = unlike + str(type(value)).encode()
            digest = hashlib.blake2b(told, digest_size=KEY_BYTES).digest()
            self.awaits = False
        parts[name] = digest.hex()


def _parts(one: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(one, types.ModuleType):
        return _of_module(one)
    return _of_class(one) if isinstance(one, type) else _of_function(one)


def _of_function(f: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a function: its own parts as ":...", variables by their names."""
    data = [getattr(f, name) or None for name in _FUNCTION_DATA]
    code = f.__code__
    cells = zip(code.co_freevars, map(contents_of, f.__closure__ or ()), strict=True)
    found, closure = uses(code), dict(cells)
    # Ignore the docstring. Before Python 3.14 it is the first constant, and shifts no other.
    if not CONSTANTS_SHIFT and code.co_consts and code.co_consts[0] == f.__doc__:
        code = code.replace(co_consts=(None, *code.co_consts[1:]))
    yield ":", (code, data, [by_name(name, value, found) for name, value in closure.items()])
    used = {name: f.__globals__[name] for name in global_names(f.__code__) if name in f.__globals__}
    outside = {**used, **closure}
    texts = set(names_in_texts(f))
    named = {name: by_name(name, value, found, texts) for name, value in used.items()}
    named.update((name, one.value) for name, one in named_in_texts(f, {}).items())
    named.update(members(found, outside))
    if reads_globals(found, outside):
        named.update(_by_text(f))
    yield from ((_shown(name, value), value) for name, value in named.items())
    imported = imports_by_text(f.__code__, outside)
    names = [path_of(value) for value in named.values() if type(value) is LAZY]
    names += [*imported.names, *(own_modules_around() if imported.others else ())]
    for name, code in imported_code(f.__code__, f.__globals__.get("__package__"), names):
        yield f"import {name}", code


def _by_text(f: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the variables that a function may reach through `globals()` or `eval`: its module. Of
    the script, yield functions and classes: other variables travel only when they are named.
    """
    module = sys.modules.get(f.__module__)
    if f.__module__ not in MAINS and is_own_module(module):
        yield f.__module__, module
        return
    for name, value in f.__globals__.items():
        if isinstance(value, types.FunctionType | type) and is_users(value):
            yield name, value


def _of_module(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a module that counts as a whole: its variables, its code, and the code of
    the user's own modules that it imports.
    """
    for name, value in sorted(vars(module).items()):
        if not name.startswith("__"):
            path = f"{module.__name__}.{name}"
            yield _shown(path, value), value
    if module.__name__ not in MAINS:
        for name, code in own_code(with_packages([module.__name__])):
            yield f"import {name}", code


def _shown(name: str, value: Any) -> str:
    """Return the name of a global variable among the parts. A variable that refers to a function or
    class gets a name of its own, since the function or class is a part too.
    """
    return f"the name {name}" if isinstance(value, types.FunctionType | type) else name


def _of_class(cls: type) -> Iterator[tuple[str, Any]]:
    yield ":", (cls.__bases__, type(cls))
    for name, value in sorted(vars(cls).items()):
        if name in _CLASS_PARTS or isinstance(
            value, types.MemberDescriptorType | types.GetSetDescriptorType
        ):
            continue
        yield f":.{name}", value


def changed_parts(before: Parts, after: Parts) -> Iterable[str]:
    """Return the names of the parts that differ, a function's own first."""
    names = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return sorted({name.partition(":")[0] for name in names if not name.startswith("the name ")})
