"""The C pickler with one hook, by which functions and classes that cannot be imported are pickled.

An object that can be imported travels by name. A function or class that cannot (it lives in
`__main__`, in a notebook, inside another function) travels as its parts: see `functions` and
`classes`. Parts that may lead back to the whole (global variables, closure cells, methods) are
filled in after the whole has been made, so recursion needs no further care.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from gridengine.serialize import classes, functions, shared_objects
from gridengine.serialize.byte_code import dump_code
from gridengine.serialize.classes import (
    Definition,
    Filled,
    home_of,
    is_by_value,
    is_importable,
    known_classes,
    virtual_relatives,
)
from gridengine.serialize.exceptions import (
    MOST_OPTIONAL,
    OptionalObject,
    exception_parts,
    fill_exception,
    load_optional,
    make_exception,
    native_base,
    reduces_natively,
    unpickled_members,
)
from gridengine.serialize.namespaces import Origin, Version, dated, origin_of, token_of
from gridengine.serialize.payload import ATOMS, Buffer
from gridengine.serialize.recipes import MORE_RECIPES, RECIPES, Recipe, Reduction
from gridengine.serialize.references import Reference, hook
from gridengine.serialize.shared_memory import LARGE


class Pickler(pickle.Pickler):
    """The C pickler, with functions and classes by value where they cannot be imported.

    Exceptions are rebuilt without calling their constructors, whose parameters need not be the
    exception's `args`.

    recipes: further recipes, for types that C `pickle` refuses.
    for_caller: the object was made by a call, and goes to the caller of that call.
    knows_classes: the receiver knows the classes that came from elsewhere, so that only their
        tokens are sent.
    takes_futures: a future is pickled as a reference to its result, else not at all.
    names_files: an array that is mapped from a file, to be written to, is pickled as its place in
        that file.
    needs: the shared objects that were named, each with its handle if it has one; None if there are
        none.
    awaits: the references that were pickled, each with its source; None if there are none.
    generators: the generators of random numbers that were pickled with their states; None if there
        are none.
    """

    recipes: Mapping[type, Recipe] = types.MappingProxyType({})
    for_caller = knows_classes = takes_futures = names_files = False
    needs: dict[shared_objects.SharedObject, shared_objects.Shared[Any] | None] | None = None
    awaits: dict[Reference, Any] | None = None
    generators: list[Any] | None = None
    _is_optional = False
    _origins: dict[int, Origin] | None = None
    _families: dict[type, list[Definition | Filled]] | None = None
    _unfilled: set[type] | frozenset[type] = frozenset()
    """Classes whose attributes are being pickled. Until a class has its attributes, its methods
    cannot be found by name.
    """

    def reducer_override(self, obj: Any) -> Reduction:
        """Called by C `pickle` for all objects but plain builtin values."""
        kind = type(obj)
        recipe = RECIPES.get(kind)
        if recipe is not None:
            return recipe(self, obj)
        if issubclass(kind, type):
            return self.reduce_class(obj)
        if issubclass(kind, BaseException):
            return self.reduce_exception(obj)
        more = MORE_RECIPES.get(kind.__module__)
        recipe = (self.recipes if more is None else more()).get(kind)
        if recipe is not None:
            return recipe(self, obj)
        if self.names_files and kind.__name__ == "memmap":
            from gridengine.serialize import mapped_files

            return mapped_files.reduction(obj)
        return self.name_result(obj) if isinstance(obj, hook().kinds) else NotImplemented

    def reduce_function(self, function: types.FunctionType) -> Reduction:
        """Return a function's parts, unless it can be imported."""
        if is_importable(function):
            return NotImplemented
        if self._origins is None:
            self._origins = {}
        in_texts = named_in_texts(function, self._origins)
        return functions.reduction(function, self._origins, version_of, in_texts)

    def reduce_class(self, cls: type) -> Reduction:
        """Return a class's skeleton, and the definitions that fill it and its bases afterwards."""
        if not is_by_value(cls):
            return NotImplemented if is_importable(cls) else _reduce_hidden_type(cls)
        known = known_classes()
        token = known.token(cls)
        if self.knows_classes and cls in known.versions:
            return classes.find_class, (token, cls.__qualname__)
        arguments = (token, type(cls), cls.__name__, *classes.beginnings(cls))
        definitions = self._definitions(cls)
        return classes.make_class, arguments, definitions, None, None, classes.fill_classes

    def _definitions(self, cls: type) -> list[Definition | Filled]:
        """Return the definitions of a class and of its bases. A base itself gets no definitions:
        they come with the class that inherits from it.

        An object that must exist before the class is made (a metaclass) may lead back to the class.
        The class is then made and filled there: the same definitions are returned again.
        """
        families = self._families = {} if self._families is None else self._families
        if cls not in families:
            bases = [one for one in cls.__mro__ if one not in families and is_by_value(one)]
            families.update((one, []) for one in bases)
            self._origins = {} if self._origins is None else self._origins
            families[cls] = [define(one, self.recipes, self._origins) for one in reversed(bases)]
            families[cls].append(Filled(bases))
            self._unfilled = self._unfilled.union(bases)
        return families[cls]

    def note_filled(self, filled: Filled) -> Reduction:
        """Note that for the rest of the pickle these classes have all their attributes."""
        self._unfilled = self._unfilled.difference(filled.classes)
        return tuple, ()

    def reduce_method(self, method: types.MethodType) -> Reduction:
        """Return a method's object and name; or its object and function, if the class does not have
        the method by that name, or not yet.
        """
        owner = method.__self__
        if self._unfilled:
            own = owner.__mro__ if isinstance(owner, type) else ()
            if not self._unfilled.isdisjoint((*own, *type(owner).__mro__)):
                return types.MethodType, (method.__func__, owner)
        if getattr(owner, method.__name__, None) == method:
            return NotImplemented
        return types.MethodType, (method.__func__, owner)

    def reduce_lru_cache(self, function: Any) -> Reduction:
        """Return the function without its cache."""
        if is_importable(function):
            return NotImplemented
        return make_lru_cache, (function.__wrapped__, function.cache_parameters())

    def name_shared(
        self, one: shared_objects.SharedObject, handle: shared_objects.Shared[Any] | None = None
    ) -> Reduction:
        """Return the name of a shared object, and note that it is needed."""
        if self.needs is None:
            self.needs = {}
        self.needs[one] = handle
        return shared_objects.find, (one.name,)

    def name_result(self, future: Any) -> Reduction:
        """Return the name of a result, and note that it is awaited."""
        found = hook().find(future) if self.takes_futures else None
        if found is None:
            return NotImplemented
        reference, source = found
        if self.awaits is None:
            self.awaits = {}
        self.awaits[reference] = source
        return shared_objects.find, (reference.name,)

    def reduce_exception(self, error: BaseException) -> Reduction:
        """Return an exception's type, `args` and attributes, unless its class defines itself how
        its exceptions are pickled.
        """
        kind = type(error)
        obj = AttributeError.obj.__get__(error) if isinstance(error, AttributeError) else None  # type: ignore[attr-defined]
        if kind is native_base(kind) and obj is None and not unpickled_members(error):
            return NotImplemented
        if not reduces_natively(kind):
            reduction = error.__reduce_ex__(5)
            bare = len(reduction) == 2 and "__notes__" in vars(error)
            return (*reduction, {"__notes__": error.__notes__}) if bare else NotImplemented
        arguments, attributes = exception_parts(error)
        setstate = kind.__setstate__
        # The `__setstate__` of a frozen dataclass with slots takes a list; exceptions have a dict.
        is_users = getattr(setstate, "__module__", None) != "dataclasses"
        if setstate is not BaseException.__setstate__ and is_users:
            return make_exception, (kind, arguments), attributes
        if obj is not None and (optional := self._pickled_optional(obj)) is not None:
            attributes["obj"] = OptionalObject(optional)
        return make_exception, (kind, arguments), attributes, None, None, fill_exception

    def reduce_wanted(self, wanted: functions.Wanted) -> Reduction:
        """Return the reduction of a value that only annotations name."""
        return load_optional, (self._pickled_optional(wanted.value) or pickle.dumps(None),)

    def reduce_in_text(self, found: functions.InText) -> Reduction:
        """Return the reduction of a value that only texts name."""
        return functions.load_in_text, (found.pickled,)

    def _pickled_optional(self, obj: Any) -> bytes | None:
        """Return the pickle of an object that may be left out; None if it has none, or is large."""
        if self._is_optional:
            return None
        file = _Limited(MOST_OPTIONAL)
        pickler = Pickler(file, 5)
        pickler.for_caller, pickler.recipes = self.for_caller, self.recipes
        pickler.knows_classes = self.knows_classes
        pickler._is_optional = True
        return file.getvalue() if can_travel(pickler, obj) and pickler.needs is None else None


def make_lru_cache(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """Return a function with a cache, empty, like `functools.lru_cache` does."""
    return functools.lru_cache(**parameters)(function)


MOST_IN_TEXTS = 1_000_000
"""The most bytes of the pickle of a global variable that only a text names."""


class _Limited(io.BytesIO):
    """A file of at most so many bytes. Raises `OverflowError` after these."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: Any) -> int:
        """Write more of a pickle."""
        if self.tell() + memoryview(data).nbytes > self._most:
            raise OverflowError("too much")
        return super().write(data)


def can_travel(pickler: Pickler, obj: Any) -> bool:
    """Return whether this pickler can pickle an object that may be left out."""
    try:
        pickler.dump(obj)
    except KeyboardInterrupt:
        raise
    except BaseException:  # the object's own code may do anything
        return False
    return True


class _Trial(Pickler):
    """Pickles an object by itself, to find out whether it can travel, and is small. Raises
    `OverflowError` at the first large part. Objects that need recipes, and futures, are refused.
    """

    has_file = False
    """Whether the object has an array that is mapped from a file."""
    is_kept = True
    """Whether the pickle is used."""

    def reducer_override(self, obj: Any) -> Reduction:
        """Called by C `pickle` for all objects but plain builtin values."""
        if type(obj) not in RECIPES and not isinstance(obj, type):
            # Of an array, or of a frame of polars: some are copied when they are pickled.
            size = getattr(obj, "nbytes", None) or getattr(obj, "estimated_size", int)()
            if isinstance(size, int) and size > MOST_IN_TEXTS:
                raise OverflowError("too much")
            self.has_file = self.has_file or type(obj).__name__ == "memmap"
        return super().reducer_override(obj)

    def reduce_in_text(self, found: functions.InText) -> Reduction:
        return super().reduce_in_text(found) if self.is_kept else (tuple, ())

    def name_result(self, future: Any) -> Reduction:
        raise pickle.PicklingError("a result of another call")


def named_in_texts(
    function: types.FunctionType, origins: dict[int, Origin]
) -> dict[str, functions.InText]:
    """Return the global variables that only texts of a function name, as far as they can travel and
    are small: nobody knows whether the function needs them. `origins` are those of one pickle, or
    of one look at functions, in which each variable is tried once.
    """
    variables = function.__globals__
    origin = origin_of(variables, origins)
    known = origin.texts
    names = [name for name in functions.names_in_texts(function) if name in variables]
    for name in names:
        if name not in known:
            known[name] = None  # for functions whose texts name each other
            origin.tried.add(name)
            known[name] = _in_text(variables[name], origins)
            origin.tried.remove(name)
    return {name: one for name in names if (one := known[name]) is not None}


def _in_text(value: Any, origins: dict[int, Origin]) -> functions.InText | None:
    """Return a value with its pickle; None if it cannot travel, or is large. Functions and classes
    by value, and what a pickle has to note, travel within the pickle of the function.
    """
    file = _Limited(MOST_IN_TEXTS)
    trial = _Trial(file, 5)
    trial._origins = origins
    is_defined = isinstance(value, (type, types.FunctionType)) and not is_importable(value)
    trial.is_kept = not is_defined
    if not can_travel(trial, value):
        return None
    is_noted = trial.needs is not None or trial.generators is not None or trial.has_file
    return functions.InText(value, None if is_defined or is_noted else file.getvalue())


class _VersionPickler(Pickler):
    """Pickles a definition only to compare it. Other classes are mere tokens, since each has a
    version of its own.
    """

    _is_optional = takes_futures = True

    def reduce_class(self, cls: type) -> Reduction:
        return (
            (classes.find_class, (known_classes().token(cls), ""))
            if is_by_value(cls)
            else super().reduce_class(cls)
        )

    def reduce_function(self, function: types.FunctionType) -> Reduction:
        """Return a function's parts, with the versions of global variables in place of values."""
        reduction = super().reduce_function(function)
        if reduction is NotImplemented or len(reduction[2]) == 5:
            return reduction
        make, arguments, (imports, used, *parts, versions), *rest = reduction
        used = {name: value for name, value in used.items() if versions[name] is None}
        return make, arguments, (imports, used, *parts, versions), *rest


class _ValuePickler(_VersionPickler):
    """Pickles the value of a global variable only to compare it. Functions are pickled without
    their global variables, which have versions of their own.
    """

    takes_futures = False

    def reduce_function(self, function: types.FunctionType) -> Reduction:
        if is_importable(function):
            return NotImplemented
        if not token_of(function.__globals__):  # these have no versions
            raise _NoVersionError
        parts = function.__defaults__, function.__kwdefaults__, function.__closure__
        return tuple, (), (function.__code__, *parts, function.__dict__)


class _NoVersionError(Exception):
    """A value is too large to be compared, or depends on variables without versions."""


class _Digester:
    """A file that digests a pickle, up to `LARGE` bytes."""

    def __init__(self) -> None:
        from _blake2 import blake2b  # not `hashlib`: see `pickling`

        self._left = LARGE
        self.digest = blake2b(digest_size=16)

    def write(self, data: Buffer) -> None:
        """Called by C `pickle`."""
        view = memoryview(data)
        self._left -= view.nbytes
        if self._left < 0:
            raise _NoVersionError
        self.digest.update(view)

    def take(self, buffer: pickle.PickleBuffer) -> None:
        """Called for each buffer that is apart from the pickle."""
        self.write(buffer.raw())


def version_of(value: Any) -> tuple[Version, Mapping[int, Any]]:
    """Return the version of the value of a global variable: equal values have equal versions. It is
    None for a value that is large, or that is pickled in another way. Return also, by `id`, the
    objects in the value that may change in place.
    """
    kind = type(value)
    if kind in SMALL or ((kind is str or kind is bytes) and len(value) < MOST_PLAIN):
        return pickle.dumps(value, 5), NOTHING
    if kind is types.ModuleType:
        return value.__name__.encode(errors="replace"), NOTHING
    if (kind is types.FunctionType or isinstance(value, type)) and is_importable(value):
        return f"{value.__module__} {value.__qualname__}".encode(errors="replace"), NOTHING
    if isinstance(value, type) and is_by_value(value):
        return known_classes().token(value), NOTHING
    if kind is types.FunctionType and not (
        value.__defaults__ or value.__kwdefaults__ or value.__closure__ or value.__dict__
    ):
        return _version_of_code(value.__code__) if token_of(value.__globals__) else None, NOTHING
    if kind is functools._lru_cache_wrapper and not is_importable(value):
        return None, NOTHING  # what it has cached may depend on any variable
    file = _Digester()
    pickler = _ValuePickler(file, 5, buffer_callback=file.take)
    if not can_travel(pickler, value):
        return None, NOTHING
    # An object that can be hashed by its value cannot change in place.
    by_identity: tuple[Any, ...] = None, object.__hash__
    parts = [one for _, one in pickler.memo.copy().values() if type(one).__hash__ in by_identity]
    return file.digest.digest(), {id(one): one for one in parts if not isinstance(one, FIXED)}


@functools.lru_cache(maxsize=4096)
def _version_of_code(code: types.CodeType) -> bytes:
    from _blake2 import blake2b  # not `hashlib`: see `pickling`

    return blake2b(dump_code(code), digest_size=16).digest()


FIXED = type, types.FunctionType, types.BuiltinFunctionType, types.CodeType
SMALL, MOST_PLAIN = ATOMS - {str, bytes}, 64
NOTHING: Mapping[int, Any] = types.MappingProxyType({})


def _reduce_hidden_type(cls: type) -> Reduction:
    home = home_of(cls)
    if home is not None:
        return getattr, (sys.modules[home], cls.__qualname__)
    name = next((name for name, value in vars(types).items() if value is cls), None)
    return NotImplemented if name is None else (getattr, (types, name))


def define(
    cls: type, recipes: Mapping[type, Recipe], origins: dict[int, Origin] | None = None
) -> Definition:
    """Return the definition that fills a class's skeleton, with its version. `origins` are those of
    the pickle that it belongs to.
    """
    relatives = virtual_relatives(cls, is_by_value)
    parts = classes.attributes(cls), classes.member_attributes(cls), relatives
    from _blake2 import blake2b  # not `hashlib`: see `pickling`

    digest = blake2b(digest_size=16)
    file = io.BytesIO()
    pickler = _VersionPickler(file, 5, buffer_callback=lambda buffer: digest.update(buffer.raw()))
    pickler.recipes, pickler._origins = recipes, origins
    pickler.dump(parts)
    digest.update(file.getbuffer())
    return cls, dated(known_classes().changes, cls, digest.digest()), *parts
