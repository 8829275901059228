"""Digests by which the calls of an earlier run are known again: of functions, and of arguments.

They are the same in each process that has the same: no memory address, no random name, no order of
a set is in them. Nor is where a function is written, or its comments. A function's digest covers
those of the user's own functions, classes and variables that it refers to, each by itself, so that
it can be said which of them has changed.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import io
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from msgspec import Struct

from gridengine.journal.imported_code import imported_code
from gridengine.serialize.annotation_code import LOOKED_UP
from gridengine.serialize.by_value import Pickler, Reduction
from gridengine.serialize.byte_code import PYTHON, codes, global_names
from gridengine.serialize.classes import MADE_ANEW, is_importable
from gridengine.serialize.encoding import with_dill
from gridengine.serialize.functions import contents_of
from gridengine.serialize.lazy_imports import LAZY, path_of
from gridengine.serialize.module_changes import MAINS, is_own_module
from gridengine.serialize.payload import ATOMS, FULL, SINGLE, STAR
from gridengine.serialize.references import ResultHolder, hook
from gridengine.serialize.sentinels import SENTINEL
from gridengine.serialize.shared_objects import Shared
from gridengine.serialize.unpicklable import name_of

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
CONSTANTS_SHIFT = sys.version_info >= (3, 14)
HAS_DOCSTRING = 0x400_0000  # of `inspect`; before Python 3.14 no flag has this value
_FUNCTION_DATA = ("__defaults__", "__kwdefaults__", "__dict__")

Parts: TypeAlias = dict[str, str]
"""What a function is made of: the names of functions, classes and variables, with a digest each."""


class FunctionKey(Struct, frozen=True):
    """What a function is known by: its name, its digest, and those of its parts."""

    name: str
    digest: bytes
    parts: Parts


class CallKeys:
    """Makes the keys of the calls of one run. What was digested once is not looked at again, so a
    class that is changed meanwhile counts as it was.
    """

    def __init__(self) -> None:
        self._definitions: dict[int, tuple[object, bytes]] = {}
        """By its `id`: a function or class, and the digest of all that it is made of."""
        self._shared: dict[int, tuple[object, bytes]] = {}
        """By its `id`: the handle of a shared object, and the digest of that."""

    def of_function(self, f: Callable[..., Any]) -> FunctionKey:
        """Return what a function is known by. What of it cannot be pickled counts by its type."""
        parts = _Walk(self).parts_of(f)
        parts["Python"] = PYTHON
        return FunctionKey(_name(f), _digest_of_parts(parts), parts)

    def of_call(self, call: Any, form: int) -> bytes:
        """Return the key of what one call is given.

        Raises:
            PicklingError, TypeError: it cannot be pickled.
        """
        if is_plain([call]):
            return hashlib.blake2b(
                pickle.dumps(call, 5), digest_size=KEY_BYTES, salt=_SALTS[form]
            ).digest()
        return self.of_object(call, salt=_SALTS[form])

    def of_calls(self, calls: Sequence[Any], form: int) -> list[bytes]:
        """Return the keys of many calls."""
        if not is_plain(calls):
            return [self.of_call(call, form) for call in calls]
        blake2b, dumps, salt = hashlib.blake2b, pickle.dumps, _SALTS[form]
        return [blake2b(dumps(call, 5), digest_size=16, salt=salt).digest() for call in calls]

    def of_object(self, obj: Any, *, salt: bytes = b"", walk: _Walk | None = None) -> bytes:
        """Return the digest of an object; functions and classes of the user's own are noted in a
        walk or, without one, are part of it.
        """
        names = _Walk(self) if walk is None else walk
        body, buffers = _pickled(_KeyPickler, obj, names)
        if any(opcode in body for opcode in SETS):  # or a byte like it, which does no harm
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
        """Return the digest of what a handle stands for."""
        known = self._shared.get(id(handle))
        if known is None:
            known = self._shared[id(handle)] = handle, self.of_object(handle.get())
        return known[1]


def is_plain(calls: Sequence[Any]) -> bool:
    """Return whether calls are given nothing but numbers, texts, bytes and None: what is unpickled
    then has the same keys as what was pickled.
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
    """Pickles for digests alone: of the user's own functions and classes the names."""

    walk: _Walk

    def reducer_override(self, obj: Any) -> Reduction:
        """Called by C `pickle` for all but plain builtin values."""
        kind = type(obj)
        if (kind is types.FunctionType or isinstance(obj, type)) and is_users(obj):
            return str, (self.walk.name(obj),)
        if kind is functools._lru_cache_wrapper:
            return tuple, (("lru_cache", obj.__wrapped__),)
        if kind is types.CodeType:
            return str, (repr(_facts(obj)),)
        if kind is SENTINEL:
            return str, (f"{obj.__module__}.{obj.__name__}",)
        if kind is Shared:
            return bytes, (self.walk.keys.of_shared(obj),)
        if isinstance(obj, (ResultHolder, *hook().kinds)):
            self.walk.awaits = True
            raise TypeError("the result of another call, a future, which is not there yet")
        return super().reducer_override(obj)


class _OrderedPickler(_KeyPickler):
    """As the other, with sets in an order that does not change from process to process."""

    def persistent_id(self, obj: Any) -> Any:
        """Called by C `pickle` for each object."""
        kind = type(obj)
        if kind is set or kind is frozenset:
            digests = sorted(self.walk.keys.of_object(one, walk=self.walk) for one in obj)
            return kind.__name__, tuple(digests)
        return None


def is_users(obj: Any) -> bool:
    """Return whether a function or class is of the user's own code: of the script or a notebook,
    made in a function, or of a module that belongs neither to the environment nor to Python.
    """
    if isinstance(obj, type) and not obj.__flags__ & 1 << 9:  # made by C code
        return False
    if obj.__module__ in MAINS or not is_importable(obj):
        return True
    return is_own_module(sys.modules.get(obj.__module__))


def _name(f: Any) -> str:
    """Return what people call a function: one with some arguments given as it is without them."""
    while isinstance(f, functools.partial):
        f = f.func
    return name_of(f)


class _Walk:
    """Finds all of the user's own that one object is made of."""

    def __init__(self, keys: CallKeys) -> None:
        self.keys = keys
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        self.awaits = False
        """Whether the result of another call was met."""
        self.waiting: list[Any] = []
        """Functions and classes that were met and have not been looked into."""

    def name(self, obj: Any) -> str:
        """Return what a function or class is called among the parts: of several that have the same
        name, as lambdas do, the later ones have a number.
        """
        if id(obj) not in self._names:
            name = obj.__qualname__
            if obj.__module__ not in MAINS:
                name = f"{obj.__module__}.{name}"
            free = (name if not number else f"{name} ({number})" for number in range(sys.maxsize))
            self._names[id(obj)] = chosen = next(one for one in free if one not in self._taken)
            self._taken.add(chosen)
            self.waiting.append(obj)
        return self._names[id(obj)]

    def parts_of(self, root: Any) -> Parts:
        """Return the digests of all that an object is made of."""
        parts: Parts = {}
        self._note(parts, "itself", root)
        met = []  # none of them may be collected: another could have its `id`
        while self.waiting:
            one = self.waiting.pop()
            met.append(one)
            of = _of_class(one) if isinstance(one, type) else _of_function(one)
            for name, value in of:
                whole = f"{self.name(one)}{name}" if name.startswith(":") else name
                self._note(parts, whole, value)
        return parts

    def _note(self, parts: Parts, name: str, value: Any) -> None:
        try:
            digest = self.keys.of_object(value, walk=self)
        except KeyboardInterrupt:
            raise
        except BaseException:  # what the user's own class does when it is pickled may be anything
            # With the result of another call, which may be any, it is like nothing before.
            unlike = os.urandom(KEY_BYTES) if self.awaits else b""
            told = unlike + str(type(value)).encode()
            digest = hashlib.blake2b(told, digest_size=KEY_BYTES).digest()
            self.awaits = False
        parts[name] = digest.hex()


def _of_function(f: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function is made of, the parts of its own as ":...", variables by their name."""
    data = [getattr(f, name) or None for name in _FUNCTION_DATA]
    closure = [contents_of(cell) for cell in f.__closure__ or ()]
    code = f.__code__
    # A docstring is no matter to what it does. It shifts no other constant before Python 3.14.
    if not CONSTANTS_SHIFT and code.co_consts and code.co_consts[0] == f.__doc__:
        code = code.replace(co_consts=(None, *code.co_consts[1:]))
    yield ":", (code, data, closure)
    used = {name: f.__globals__[name] for name in global_names(f.__code__) if name in f.__globals__}
    named = [(_shown(name, value), value) for name, value in used.items()]
    named += _of_modules(f.__code__, used)
    yield from named
    lazily = [path_of(value) for _, value in named if type(value) is LAZY]
    for name, code in imported_code(f.__code__, f.__globals__.get("__package__"), lazily):
        yield f"import {name}", code


def _of_modules(code: types.CodeType, used: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what code reaches in modules of the user's own, those in other modules included."""
    attributes = set(chain.from_iterable(one.co_names for one in codes(code)))
    waiting, seen = list(used.items()), set[int]()
    while waiting:
        name, module = waiting.pop()
        if not isinstance(module, types.ModuleType) or id(module) in seen:
            continue
        seen.add(id(module))
        if is_own_module(module):
            found = vars(module)
            for attribute in sorted(attributes & found.keys()):
                whole, value = f"{name}.{attribute}", found[attribute]
                yield _shown(whole, value), value
                waiting.append((whole, value))


def _shown(name: str, value: Any) -> str:
    """Return what a global variable is called among the parts: one that is a function or class,
    which is a part itself, apart from that.
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


def _facts(code: types.CodeType) -> tuple[Any, ...]:
    """Return what code does, without where it is written and what its local variables are called
    that are no parameters.
    """
    parameters = code.co_argcount + code.co_kwonlyargcount
    does: tuple[Any, ...] = code.co_code, tuple(map(_constant, code.co_consts))
    if CONSTANTS_SHIFT:
        does = (tuple(_instructions(code)),)
    flags = code.co_flags & ~HAS_DOCSTRING
    return (
        *does,
        code.co_names,
        code.co_varnames[:parameters],
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, flags),
        getattr(code, "co_exceptiontable", b""),
    )


def _instructions(code: types.CodeType) -> Sequence[Any]:
    """Return what code does, with constants by their values, not their numbers; a class that is
    made in it does not say in which line.
    """
    found: list[Any] = []
    for one in dis.get_instructions(code):
        if one.opname == "STORE_NAME" and one.argval == "__firstlineno__":
            found.pop()
        elif one.opcode in dis.hasconst:
            found.append((one.opname, _constant(one.argval)))
        elif one.opname != "EXTENDED_ARG":
            found.append((one.opname, one.arg))
    return found


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return _facts(value)
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    if isinstance(value, frozenset):
        return "frozenset", sorted(repr(_constant(one)) for one in value)
    return type(value).__name__, value


def changed_parts(before: Parts, after: Parts) -> Iterable[str]:
    """Return the names of the parts that differ, a function's own first."""
    names = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return sorted({name.partition(":")[0] for name in names if not name.startswith("the name ")})
