"""Functions and classes that another process cannot import, pickled by value; everything else as C `pickle` does it.

`Pickler` is the C pickler with one hook. What can be imported travels by name. A function or class that cannot (it lives
in `__main__`, in a notebook, inside another function) travels as its parts. Parts that may lead back to the whole (global
variables, closure cells, methods) are filled in after the whole has been made, so recursion needs no further care.

A class is more than its parts: `isinstance` asks for the very object. So each class sent by value has a *token*: a process
that has met the token uses the class that it has, and the one where the class was written gets its own back. A definition
that has changed since (a method replaced, a global variable that it uses assigned anew) is applied to the class in place.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import enum
import functools
import hashlib
import importlib
import io
import marshal
import os
import pickle
import sys
import threading
import types
import typing
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

Reduction: TypeAlias = Any
"""What `object.__reduce_ex__` may return, or `NotImplemented`."""
Recipe: TypeAlias = Callable[["Pickler", Any], Reduction]
Definition: TypeAlias = tuple[type, bytes, dict[str, Any], dict[str, dict[str, Any]]]
"""A class, the version of its definition, its attributes, and for an enumeration the attributes of each member."""

KEPT_CLASSES = 100
"""How many classes are kept alive for the sake of answers that are still on their way."""
NAMESPACE = ("__name__", "__package__", "__file__")
ATOMS = (type(None), bool, int, float, complex, str, bytes)


class KnownClasses:
    """The classes that this process has sent or received by value. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: weakref.WeakKeyDictionary[type, bytes] = weakref.WeakKeyDictionary()
        self._classes: weakref.WeakValueDictionary[bytes, type] = weakref.WeakValueDictionary()
        self._versions: weakref.WeakKeyDictionary[type, bytes] = weakref.WeakKeyDictionary()
        self._recent: OrderedDict[bytes, type] = OrderedDict()

    def token(self, cls: type) -> bytes:
        """Return the class's token; a class not met before gets a new one and counts as written here."""
        with self._lock:
            token = self._tokens.get(cls)
            return self._enter(os.urandom(16) if token is None else token, cls)

    def find(self, token: bytes) -> type | None:
        """Return the class that has this token, if it is known here."""
        with self._lock:
            return self._classes.get(token)

    def adopt(self, token: bytes, cls: type) -> type:
        """Return the class that has this token; when there is none it is `cls`, written elsewhere."""
        with self._lock:
            known = self._classes.get(token)
            if known is None:
                known = cls
                self._versions[cls] = b""
            self._enter(token, known)
            return known

    def version(self, cls: type) -> bytes | None:
        """Return which definition a class from elsewhere has; None for one that was written here."""
        with self._lock:
            return self._versions.get(cls)

    def set_version(self, cls: type, version: bytes) -> None:
        """Note which definition a class from elsewhere has now."""
        with self._lock:
            self._versions[cls] = version

    def _enter(self, token: bytes, cls: type) -> bytes:
        self._tokens[cls] = token
        self._classes[token] = cls
        self._recent[token] = cls
        self._recent.move_to_end(token)
        if len(self._recent) > KEPT_CLASSES:
            self._recent.popitem(last=False)
        return token


@functools.cache
def known_classes() -> KnownClasses:
    """Return this process's table."""
    return KnownClasses()


class Pickler(pickle.Pickler):
    """The C pickler, with functions and classes by value where they cannot be imported.

    Exceptions are rebuilt without calling their constructors, whose parameters need not be the exception's `args`.

    recipes: what else there is for types that C `pickle` refuses.
    homeward: classes that came from elsewhere are known to the receiver, and only their tokens are sent.
    """

    recipes: Mapping[type, Recipe] = {}
    homeward = False
    _spaces: dict[int, dict[str, Any]] | None = None
    _described: set[type] | None = None

    def reducer_override(self, obj: Any) -> Reduction:
        """Called by C `pickle` for all but plain builtin values."""
        kind = type(obj)
        recipe = RECIPES.get(kind)
        if recipe is not None:
            return recipe(self, obj)
        if issubclass(kind, type):
            return self.reduce_class(obj)
        if issubclass(kind, BaseException):
            return self.reduce_exception(obj)
        recipe = self.recipes.get(kind)
        return NotImplemented if recipe is None else recipe(self, obj)

    def reduce_function(self, function: types.FunctionType) -> Reduction:
        """Return a function's parts, with the global variables that its code names."""
        if is_importable(function):
            return NotImplemented
        if self._spaces is None:
            self._spaces = {}
        names = function.__globals__
        space = self._spaces.setdefault(id(names), {name: names[name] for name in NAMESPACE if name in names})
        used = {name: names[name] for name in global_names(function.__code__) if name in names}
        parts = {name: getattr(function, name) for name in FUNCTION_PARTS if getattr(function, name)}
        imports = list(_submodules(function.__code__, used.values()))
        state = (imports, used, parts, function.__dict__)
        return make_function, (function.__code__, space, function.__name__, function.__closure__), state, None, None, fill_function

    def reduce_class(self, cls: type) -> Reduction:
        """Return a class's skeleton, and the definitions of it and of its bases to be filled in afterwards."""
        if is_importable(cls):
            return NotImplemented
        if not is_written_in_python(cls):
            return _reduce_hidden_type(cls)
        known = known_classes()
        token = known.token(cls)
        if self.homeward and known.version(cls) is not None:
            return find_class, (token, cls.__qualname__)
        arguments = (token, type(cls), cls.__name__, cls.__bases__, _skeleton(cls), _members(cls))
        if self._described is None:
            self._described = set()
        if cls in self._described:
            return make_class, arguments
        family = [one for one in reversed(cls.__mro__) if one not in self._described and is_by_value(one)]
        self._described.update(family)
        return make_class, arguments, [define(one) for one in family], None, None, fill_classes

    def reduce_exception(self, error: BaseException) -> Reduction:
        """Return an exception's type, `args` and attributes, unless its class says itself how it is pickled."""
        kind = type(error)
        native = next(base for base in kind.__mro__ if base.__module__ == "builtins")
        if kind.__reduce__ is not native.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__ or kind is native:
            return NotImplemented
        _, arguments, *state = native.__reduce__(error)  # type: ignore[misc]
        return make_exception, (kind, native, arguments), *state


FUNCTION_PARTS = ("__defaults__", "__kwdefaults__", "__annotations__", "__doc__", "__module__", "__qualname__", "__type_params__")[:6]


class _VersionPickler(Pickler):
    """Pickles a definition only to compare it: other classes are mere tokens, each having a version of its own."""

    def reduce_class(self, cls: type) -> Reduction:
        return (find_class, (known_classes().token(cls), "")) if is_by_value(cls) else super().reduce_class(cls)


# What can be imported, and what is by value


def is_importable(obj: Any) -> bool:
    """Say whether a function or class is found by its name in its module, and its module is not `__main__`."""
    module = getattr(obj, "__module__", None)
    if module is None or module == "__main__":
        return False
    try:
        return functools.reduce(getattr, obj.__qualname__.split("."), sys.modules[module]) is obj  # type: ignore[comparison-overlap]
    except (AttributeError, KeyError):
        return False


def is_written_in_python(cls: type) -> bool:
    """Say whether a `class` statement or a call of `type` made this class, rather than C code."""
    heap, immutable = 1 << 9, 1 << 8
    return bool(cls.__flags__ & heap) and not cls.__flags__ & immutable


def is_by_value(cls: type) -> bool:
    """Say whether this class travels by value."""
    return is_written_in_python(cls) and not is_importable(cls)


def _reduce_hidden_type(cls: type) -> Reduction:
    name = next((name for name, value in vars(types).items() if value is cls), None)
    return NotImplemented if name is None else (getattr, (types, name))


# Functions


@functools.lru_cache(maxsize=4096)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of the global variables that this code, or code within it, reads or writes; sorted."""
    names = {str(one.argval) for one in dis.get_instructions(code) if one.opname in GLOBAL_OPERATIONS}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(global_names(constant))
    return tuple(sorted(names))


GLOBAL_OPERATIONS = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


def _submodules(code: types.CodeType, values: Any) -> Iterator[str]:
    """Yield the loaded submodules that code reaches as attributes: `import xml.dom` makes a global variable of `xml` alone."""
    for value in values:
        if isinstance(value, types.ModuleType) and hasattr(value, "__path__"):
            attributes = set(_all_names(code))
            prefix = value.__name__ + "."
            for name in sorted(sys.modules.copy()):
                if name.startswith(prefix) and attributes.issuperset(name[len(prefix) :].split(".")):
                    yield name


@functools.lru_cache(maxsize=4096)
def _all_names(code: types.CodeType) -> tuple[str, ...]:
    inner = [name for constant in code.co_consts if isinstance(constant, types.CodeType) for name in _all_names(constant)]
    return (*code.co_names, *inner)


def make_function(code: types.CodeType, space: dict[str, Any], name: str, closure: tuple[Any, ...] | None) -> types.FunctionType:
    """Return a function that has nothing yet but its code."""
    space.setdefault("__builtins__", builtins)
    return types.FunctionType(code, space, name, None, closure)


def fill_function(function: types.FunctionType, state: tuple[list[str], dict[str, Any], dict[str, Any], dict[str, Any]]) -> None:
    """Give a function its global variables and the rest of its parts."""
    imports, used, parts, attributes = state
    for name in imports:
        importlib.import_module(name)
    function.__globals__.update(used)
    for name, value in parts.items():
        setattr(function, name, value)
    function.__dict__.update(attributes)


def fill_cell(cell: types.CellType, state: tuple[Any]) -> None:
    """Give a closure's cell its contents."""
    cell.cell_contents = state[0]


def _reduce_cell(pickler: Pickler, cell: types.CellType) -> Reduction:
    try:
        state = (cell.cell_contents,)
    except ValueError:  # the variable has no value yet
        return types.CellType, ()
    return types.CellType, (), state, None, None, fill_cell


def _reduce_code(pickler: Pickler, code: types.CodeType) -> Reduction:
    # Version 2 knows no back references, whose use depends on reference counts: equal code gives equal bytes.
    return marshal.loads, (marshal.dumps(code, 2),)


def _reduce_method(pickler: Pickler, method: types.MethodType) -> Reduction:
    if getattr(method.__self__, method.__name__, None) == method:
        return NotImplemented
    return types.MethodType, (method.__func__, method.__self__)


# Classes


def define(cls: type) -> Definition:
    """Return what fills a class's skeleton, with its version."""
    attributes = {name: value for name, value in vars(cls).items() if not _is_made_anew(cls, name, value)}
    members = {name: {k: v for k, v in vars(one).items() if k not in MEMBER_PARTS} for name, one in _enum_members(cls)}
    file = io.BytesIO()
    _VersionPickler(file, 5).dump((attributes, members))
    return cls, hashlib.blake2b(file.getbuffer(), digest_size=16).digest(), attributes, members


MEMBER_PARTS = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_"})
SKELETON = ("__module__", "__qualname__", "__slots__", "__orig_bases__", "__doc__")
MADE_ANEW = frozenset({*SKELETON, "__dict__", "__weakref__", "_abc_impl"})
ENUM_PARTS = (types.FunctionType, classmethod, staticmethod, property)
ENUM_MADE_ANEW = frozenset({"__new__", "__new_member__", "_new_member_", "__reduce_ex__"})


def _is_made_anew(cls: type, name: str, value: Any) -> bool:
    if name in MADE_ANEW or isinstance(value, types.MemberDescriptorType):
        return True
    return isinstance(cls, enum.EnumMeta) and (name in ENUM_MADE_ANEW or not isinstance(value, ENUM_PARTS))


def _skeleton(cls: type) -> dict[str, Any]:
    """Return what must be there when the class is made; plain values too, for the hooks of its bases may ask for them."""
    skeleton = {name: vars(cls)[name] for name in SKELETON if name in vars(cls)}
    if isinstance(cls, enum.EnumMeta):
        return skeleton
    return {**{name: value for name, value in vars(cls).items() if type(value) in ATOMS}, **skeleton}


def _enum_members(cls: type) -> list[tuple[str, enum.Enum]]:
    return list(cls.__members__.items()) if isinstance(cls, enum.EnumMeta) else []


def _members(cls: type) -> list[tuple[str, Any]]:
    return [(name, member._value_) for name, member in _enum_members(cls)]


def find_class(token: bytes, name: str) -> type:
    """Return the class that has this token.

    Raises:
        LookupError: it is not, or no longer, known here.
    """
    cls = known_classes().find(token)
    if cls is None:
        raise LookupError(f"the class {name} is not known in this process")
    return cls


def make_class(
    token: bytes, metaclass: Any, name: str, bases: tuple[type, ...], skeleton: dict[str, Any], members: list[tuple[str, Any]]
) -> type:
    """Return the class that has this token; when there is none, one that has nothing yet but its skeleton."""
    known = known_classes()
    cls = known.find(token)
    if cls is not None:
        return cls

    def body(namespace: dict[str, Any]) -> None:
        for key, value in (*skeleton.items(), *members):
            namespace[key] = value

    return known.adopt(token, types.new_class(name, bases, {"metaclass": metaclass}, body))


def fill_classes(_: type, definitions: list[Definition]) -> None:
    """Give each of these classes its attributes, unless it has this definition already or was written here."""
    known = known_classes()
    for cls, version, attributes, members in definitions:
        if known.version(cls) in (None, version):
            continue
        for name in [name for name, value in vars(cls).items() if not _is_made_anew(cls, name, value) and name not in attributes]:
            type.__delattr__(cls, name)
        for name, value in attributes.items():
            type.__setattr__(cls, name, value)
        for name, parts in members.items():
            vars(cls.__members__[name]).update(parts)  # type: ignore[attr-defined]
        known.set_version(cls, version)


# Exceptions


def make_exception(kind: type[BaseException], native: type[BaseException], arguments: tuple[Any, ...]) -> BaseException:
    """Return an exception as its builtin base makes it; its own constructor is not called."""
    try:
        error = kind.__new__(kind, *arguments)
    except TypeError:  # its own __new__ wants other arguments
        error = native.__new__(kind, *arguments)
    native.__init__(error, *arguments)
    return error


# What C pickle does not do, or does by name alone


def _reduce_module(pickler: Pickler, module: types.ModuleType) -> Reduction:
    if sys.modules.get(module.__name__) is not module:
        raise pickle.PicklingError(f"the module {module.__name__} cannot be imported")
    return importlib.import_module, (module.__name__,)


def _reduce_lru_cache(pickler: Pickler, function: Any) -> Reduction:
    if is_importable(function):
        return NotImplemented
    return make_lru_cache, (function.__wrapped__, function.cache_parameters())


def make_lru_cache(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """Return a function with a cache, empty, like `functools.lru_cache` does."""
    return functools.lru_cache(**parameters)(function)


def _reduce_type_variable(pickler: Pickler, variable: typing.TypeVar) -> Reduction:
    if is_importable_variable(variable):
        return NotImplemented
    keywords = {"bound": variable.__bound__, "covariant": variable.__covariant__, "contravariant": variable.__contravariant__}
    return make_type_variable, (variable.__name__, variable.__constraints__, keywords)


def is_importable_variable(variable: typing.TypeVar) -> bool:
    """Say whether a type variable is found by its name in its module, and its module is not `__main__`."""
    module = variable.__module__
    return module != "__main__" and getattr(sys.modules.get(module), variable.__name__, None) is variable


def make_type_variable(name: str, constraints: tuple[Any, ...], keywords: dict[str, Any]) -> typing.TypeVar:
    """Return a type variable."""
    return typing.TypeVar(name, *constraints, **keywords)  # type: ignore[misc]


RECIPES: Mapping[type, Recipe] = types.MappingProxyType(
    {
        types.FunctionType: Pickler.reduce_function,
        types.CellType: _reduce_cell,
        types.CodeType: _reduce_code,
        types.MethodType: _reduce_method,
        types.ModuleType: _reduce_module,
        types.MappingProxyType: lambda pickler, proxy: (types.MappingProxyType, (dict(proxy),)),
        property: lambda pickler, one: (property, (one.fget, one.fset, one.fdel, one.__doc__)),
        classmethod: lambda pickler, one: (classmethod, (one.__func__,)),
        staticmethod: lambda pickler, one: (staticmethod, (one.__func__,)),
        functools.cached_property: lambda pickler, one: (functools.cached_property, (one.func,), {"attrname": one.attrname}),
        type(functools.lru_cache(len)): _reduce_lru_cache,
        typing.TypeVar: _reduce_type_variable,
        weakref.WeakKeyDictionary: lambda pickler, one: (weakref.WeakKeyDictionary, (dict(one),)),
        weakref.WeakValueDictionary: lambda pickler, one: (weakref.WeakValueDictionary, (dict(one),)),
        type(dataclasses.MISSING): lambda pickler, one: "MISSING",
        type(dataclasses.KW_ONLY): lambda pickler, one: "KW_ONLY",
        type(dataclasses._HAS_DEFAULT_FACTORY): lambda pickler, one: "_HAS_DEFAULT_FACTORY",  # type: ignore[attr-defined]
        type(dataclasses._FIELD): lambda pickler, one: one.name,  # type: ignore[attr-defined]
    }
)
