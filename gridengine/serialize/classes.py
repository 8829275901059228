"""Classes that travel by value: taken apart, put together, and the table of the known ones.

A class is more than its parts: `isinstance` asks for the very object. So each class sent by value
has a *token*. A process that knows the token uses the class that it has, and the process where the
class was written gets its own class back. A definition that has changed since (a method replaced, a
global variable that it uses assigned anew) is applied to the class in place.

A class of the script brings along its virtual subclasses (`ABC.register`), and the importable
abstract classes (`collections.abc.Sequence`, say) that it was registered with itself. A
registration of one importable class with another does not travel, like all changes that a script
makes in a module.
"""

from __future__ import annotations

import abc
import enum
import functools
import os
import sys
import threading
import types
import typing
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, NamedTuple, TypeAlias

from gridengine.errors import ConfigurationError, PicklingError
from gridengine.serialize import functions
from gridengine.serialize.functions import ANNOTATE, LOOKED_UP
from gridengine.serialize.namespaces import fill_class
from gridengine.serialize.payload import ATOMS
from gridengine.serialize.users_modules import add_class_to_main
from gridengine.threads import once

Relatives: TypeAlias = tuple[list[type], list[type]]
"""The classes registered with a class, and the importable ones that it was registered with."""
NONE: Relatives = ([], [])


def virtual_relatives(cls: type, is_by_value: Callable[[type], bool]) -> Relatives:
    """Return the virtual subclasses of a class that travels by value, and its virtual bases."""
    registrars = _registrars(abc.get_cache_token(), is_by_value).get(cls, [])
    if not isinstance(cls, abc.ABCMeta):
        return ([], registrars) if registrars else NONE
    return sorted(_registered_with(cls), key=_full_name), registrars


def register_relatives(cls: type, relatives: Relatives) -> None:
    """Make `relatives[0]` virtual subclasses of a class, and the class one of `relatives[1]`."""
    for one in relatives[0]:
        abc.ABCMeta.register(cls, one)  # type: ignore[arg-type]
    for registrar in relatives[1]:
        abc.ABCMeta.register(registrar, cls)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=1)
def _registrars(
    registrations: object, is_by_value: Callable[[type], bool]
) -> MutableMapping[type, list[type]]:
    """Return, for each class of the script, the importable abstract classes with which it was
    registered. This looks at all classes of the process, but only once after each new registration.
    """
    found: MutableMapping[type, list[type]] = weakref.WeakKeyDictionary()
    for one in _abstract_classes():
        scripts = [registered for registered in _registered_with(one) if is_by_value(registered)]
        if scripts and not is_by_value(one):  # last: a look-up of a deprecated class warns
            for registered in scripts:
                found.setdefault(registered, []).append(one)
    for registrars in found.values():
        registrars.sort(key=_full_name)
    return found


def _abstract_classes() -> Iterator[type]:
    todo, seen = [object], set[int]()
    while todo:
        for one in type.__subclasses__(todo.pop()):
            if id(one) not in seen:  # by `id`: a deprecated class warns when it is compared
                seen.add(id(one))
                todo.append(one)
                if isinstance(one, abc.ABCMeta):
                    yield one


def _registered_with(cls: Any) -> Iterator[type]:
    # `ABC._dump_registry` prints the same; other Pythons than CPython may have no such function.
    dump = getattr(abc, "_get_dump", None)
    references = dump(cls)[0] if dump is not None else ()
    return (one for reference in references if (one := reference()) is not None)


def _full_name(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


Definition: TypeAlias = tuple[type, bytes, dict[str, Any], dict[str, dict[str, Any]], Relatives]
"""A class, the version of its definition, its attributes, for an enumeration the attributes of
each member, and its virtual subclasses and bases (`ABC.register`).
"""

RECENT_CLASSES = 100
"""This many classes are kept alive for results that are still on their way."""
MEMBER_PARTS = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_"})
SKELETON = ("__module__", "__slots__", "__orig_bases__", "__doc__")
PYTHONS = frozenset({"__qualname__", "__dict__", "__weakref__", "_abc_impl", "__slotnames__"})
"""What Python itself writes into a class, the last when it first pickles an instance."""
MADE_ANEW = frozenset(SKELETON) | PYTHONS
ENUM_PARTS = (types.FunctionType, classmethod, staticmethod, property)
ENUM_MADE_ANEW = frozenset({"__new__", "__new_member__", "_new_member_", "__reduce_ex__"})


class Filled(NamedTuple):
    """Comes in a pickle after the definitions of classes: from there on the classes are filled."""

    classes: list[type]


class KnownClasses:
    """The classes that this process has sent or received by value. Safe to use from several
    threads.

    classes: by their tokens.
    versions: the version of the definition of each class from elsewhere. A class that was written
        here has none.
    changes: the last version of each class that was sent, and how often it has changed before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: weakref.WeakKeyDictionary[type, bytes] = weakref.WeakKeyDictionary()
        self.classes: weakref.WeakValueDictionary[bytes, type] = weakref.WeakValueDictionary()
        self.versions: weakref.WeakKeyDictionary[type, bytes] = weakref.WeakKeyDictionary()
        self.changes: weakref.WeakKeyDictionary[type, tuple[bytes, int]] = (
            weakref.WeakKeyDictionary()
        )
        self._recent: OrderedDict[bytes, type] = OrderedDict()
        self.finds_by_name = False
        """Whether a token of an earlier process, unknown here, stands for the class that has the
        same name here. Set while stored results are read.
        """

    def token(self, cls: type) -> bytes:
        """Return the class's token. An unknown class gets a new one, and counts as written here."""
        with self._lock:
            token = self._tokens.get(cls)
            return self._enter(os.urandom(16) if token is None else token, cls)

    def adopt(self, token: bytes, cls: type) -> type:
        """Return the class that has this token. If there is none, it is `cls` from now on, which
        counts as written elsewhere.
        """
        with self._lock:
            known = self.classes.get(token)
            if known is None:
                known = cls
                self.versions[cls] = b""
            self._enter(token, known)
            return known

    def by_name(self, name: str) -> type | None:
        """Return the script's class of this name, else the latest known class of this name."""
        found: Any = sys.modules["__main__"]
        for part in name.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type):
            return found
        with self._lock:
            known = (one for one in reversed(self._recent.values()) if one.__qualname__ == name)
            return next(known, None)

    def _enter(self, token: bytes, cls: type) -> bytes:
        self._tokens[cls] = token
        self.classes[token] = cls
        self._recent[token] = cls
        self._recent.move_to_end(token)
        if len(self._recent) > RECENT_CLASSES:
            self._recent.popitem(last=False)
        return token


@once
def known_classes() -> KnownClasses:
    return KnownClasses()


def is_importable(obj: Any) -> bool:
    """Return whether another process finds a function, class or type variable by its name: in its
    module, which is not `__main__`.
    """
    module = getattr(obj, "__module__", None)
    if module in (None, "__main__", "__mp_main__"):
        return False
    try:
        name = getattr(obj, "__qualname__", None) or obj.__name__
        return functools.reduce(getattr, name.split("."), sys.modules[module]) is obj
    except (AttributeError, KeyError):
        return False


def check_imported(f: Any) -> None:
    """Refuse a function that travels by name, if the import of its module is under way: a process
    that runs its calls would import the module, which would make calls again, without end.

    Raises:
        ConfigurationError: the function is such a one.
    """
    while isinstance(f, functools.partial):
        f = f.func
    module = getattr(f, "__module__", None)
    spec = getattr(sys.modules.get(module or ""), "__spec__", None)
    if getattr(spec, "_initializing", False) and is_importable(f):
        raise ConfigurationError(
            f"the module {module} makes calls of {f.__qualname__} when it is imported, and each of "
            "them imports it",
            hint='put what makes them into a function, or below `if __name__ == "__main__":`',
        )


def is_by_value(cls: type) -> bool:
    """Return whether this class travels by value: it was made by a `class` statement or a call of
    `type`, not by C code, and it cannot be imported.
    """
    heap, immutable = 1 << 9, 1 << 8
    made_here = cls.__flags__ & (heap | immutable) == heap
    return made_here and not is_importable(cls) and home_of(cls) is None


def home_of(cls: type) -> str | None:
    """Return the module in which a class is found if its `__module__` names another module, as with
    pytest's `Skipped`; None if there is no such module. The class's functions tell where they were
    written.
    """
    function = next((one for one in vars(cls).values() if type(one) is types.FunctionType), None)
    home = getattr(function, "__module__", None)
    if home in (None, cls.__module__, "__main__", "__mp_main__"):
        return None
    found = getattr(sys.modules.get(str(home)), cls.__qualname__, None)
    return home if found is cls else None


def _is_made_anew(cls: type, name: str, value: Any) -> bool:
    if name in MADE_ANEW or isinstance(value, types.MemberDescriptorType):
        return True
    if name in LOOKED_UP and functions.is_looked_up(name, value, vars(cls)):
        return True
    if name == "__annotations__" and not value:  # made by whoever asked for it
        return True
    if not isinstance(cls, enum.EnumMeta):
        return False
    if name in ENUM_MADE_ANEW or name in cls.__members__:
        return True
    parts_of_enum = name.startswith("_") or isinstance(value, types.DynamicClassAttribute)
    return parts_of_enum and not isinstance(value, ENUM_PARTS)


def _skeleton(cls: type) -> dict[str, Any]:
    """Return the attributes that a class must have when it is made; plain values too, since hooks
    of its bases may read them.
    """
    needed = {name: vars(cls)[name] for name in SKELETON if name in vars(cls)}
    needed["__qualname__"] = cls.__qualname__
    if isinstance(cls, enum.EnumMeta):
        return needed
    if typing.is_typeddict(cls):
        return {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return {**{name: value for name, value in vars(cls).items() if type(value) in ATOMS}, **needed}


def _enum_members(cls: type) -> list[tuple[str, enum.Enum]]:
    return list(cls.__members__.items()) if isinstance(cls, enum.EnumMeta) else []


def beginnings(cls: type) -> tuple[tuple[Any, ...], dict[str, Any], list[tuple[str, Any]]]:
    """Return the parts that a class is made from: its bases, its skeleton, and the names and values
    of an enumeration's members, aliases included.
    """
    bases = (typing.TypedDict,) if typing.is_typeddict(cls) else cls.__bases__
    members = [(name, member._value_) for name, member in _enum_members(cls)]
    return bases, _skeleton(cls), members


def own_attributes(cls: type) -> dict[str, Any]:
    """Return the attributes that a class gets after it has been made from its skeleton."""
    own = vars(cls)
    return {name: value for name, value in own.items() if not _is_made_anew(cls, name, value)}


def attributes(cls: type) -> dict[str, Any]:
    """Return these attributes as they travel."""
    found = own_attributes(cls)
    if ANNOTATE in found:
        found[ANNOTATE] = functions.take_annotations_apart(found[ANNOTATE])
    return found


def member_attributes(cls: type) -> dict[str, dict[str, Any]]:
    """Return the attributes that an enumeration's own constructor gave each member."""
    return {
        name: {key: value for key, value in vars(one).items() if key not in MEMBER_PARTS}
        for name, one in _enum_members(cls)
    }


def find_class(token: bytes, name: str) -> type:
    """Return the class that has this token.

    Raises:
        LookupError: no class has this token here, or no longer.
    """
    known = known_classes()
    cls = known.classes.get(token)
    if cls is None and known.finds_by_name:
        cls = known.by_name(name)
    if cls is None:
        raise LookupError(f"the class {name} is not known in this process")
    return cls


def make_class(token: bytes, *beginning: Any) -> type:
    """Return the class that has this token. If there is none, make one that has only its skeleton.

    beginning: the metaclass, the name, and the parts that `beginnings` returns.
    """
    known = known_classes()
    try:
        made = known.classes.get(token) or known.adopt(token, _new_class(*beginning))
    except Exception as error:
        raise _not_rebuilt(beginning[0], beginning[1], error) from error
    add_class_to_main(made)
    return made


def _not_rebuilt(metaclass: type, name: str, error: Exception) -> PicklingError:
    kind = f"{metaclass.__module__}.{metaclass.__qualname__}"
    by = "" if metaclass is type else f", as its metaclass {kind} does not let it be"
    return PicklingError(
        f"the class {name} cannot be made again from its parts in another process{by}: "
        f"{type(error).__name__}: {error}",
        hint="put the class into a module beside the script, and import it from there",
    )


def _new_class(
    metaclass: Any,
    name: str,
    bases: tuple[type, ...],
    skeleton: dict[str, Any],
    members: list[tuple[str, Any]],
) -> type:
    def body(namespace: dict[str, Any]) -> None:
        for key, value in skeleton.items():
            namespace[key] = value
        for key, value in members:  # an enumeration takes functions for methods otherwise
            namespace[key] = enum.member(value)

    keywords = {"metaclass": metaclass}
    try:
        return types.new_class(name, bases, keywords, body)
    except Exception as error:
        # A hook of a base (`__init_subclass__`) wants more than a skeleton. Leave it out: it was
        # called where the class was written.
        try:
            made = types.new_class(name, (_Blank,), keywords, body)
            made.__bases__ = bases
        except Exception:
            raise error from None
        return made


class _Blank:
    """A base that has no hooks, until the class gets its own bases."""


def fill_classes(_: type, definitions: list[Definition | tuple[()]]) -> None:
    """Give each class its attributes, unless it was written here. In a process that calls functions
    they are the attributes of the function that is called; else of the last definition.
    """
    known = known_classes()
    filled: list[tuple[type, Relatives]] = []
    for definition in definitions:
        if not definition:  # a `Filled` arrives as an empty tuple
            continue
        cls, version, given, members, relatives = definition
        if (before := known.versions.get(cls)) is None:
            continue
        if ANNOTATE in given:
            space = {"__name__": cls.__module__}
            given[ANNOTATE] = functions.put_annotations_together(given[ANNOTATE], space)
        attributes = _Attributes(cls)
        if not fill_class(known.token(cls), attributes, version, (given, members)):
            if before == version:
                continue
            attributes[""] = given, members
        known.versions[cls] = version
        if before != version:
            filled.append((cls, relatives))
    for cls, relatives in filled:  # last: `register` asks for subclasses
        register_relatives(cls, relatives)


State: TypeAlias = tuple[dict[str, Any], dict[str, dict[str, Any]]]
"""The attributes of a class, and those of the members of an enumeration."""


class _Attributes(MutableMapping[str, State]):
    """The state of a class as the one variable of a namespace. It has no name, and stays."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __getitem__(self, name: str) -> State:
        return own_attributes(self._cls), member_attributes(self._cls)

    def __setitem__(self, name: str, value: State) -> None:
        cls, (given, members) = self._cls, value
        known_classes().versions[cls] = b""  # known again once a definition arrives
        try:
            for gone in own_attributes(cls).keys() - given.keys():
                type.__delattr__(cls, gone)
            for key, one in given.items():  # `__annotate__` drops annotations that it made before
                type.__setattr__(cls, "__annotate__" if key == ANNOTATE else key, one)
        except Exception as error:
            raise _not_rebuilt(type(cls), cls.__qualname__, error) from error
        for key, parts in members.items():
            vars(cls.__members__[key]).update(parts)  # type: ignore[attr-defined]

    def __delitem__(self, name: str) -> None:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(("",))

    def __len__(self) -> int:
        return 1

    def clear(self) -> None:
        """Leave the attributes, until others are assigned."""
