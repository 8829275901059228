"""Virtual subclasses: what `ABC.register` has said of classes that travel by value.

A class of the script brings along what was registered with it, and the importable abstract classes
(`collections.abc.Sequence`, say) that it was registered with itself. A registration of one
importable class with another does not travel, as nothing does that a script changes in a module.
"""

from __future__ import annotations

import abc
import functools
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, TypeAlias

Relatives: TypeAlias = tuple[list[type], list[type]]
"""The classes that were registered with a class, and the importable ones that it was registered
with.
"""
NONE: Relatives = ([], [])


def virtual_relatives(cls: type, is_by_value: Callable[[type], bool]) -> Relatives:
    """Return the virtual relatives of a class that travels by value."""
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
    """Return the importable abstract classes by the classes of the script that were registered
    with them. All classes of the process are looked at, once for each number of registrations.
    """
    found: MutableMapping[type, list[type]] = weakref.WeakKeyDictionary()
    for one in _abstract_classes():
        scripts = [registered for registered in _registered_with(one) if is_by_value(registered)]
        if scripts and not is_by_value(one):  # which looks it up: a deprecated one warns
            for registered in scripts:
                found.setdefault(registered, []).append(one)
    for registrars in found.values():
        registrars.sort(key=_full_name)
    return found


def _abstract_classes() -> Iterator[type]:
    todo, seen = [object], set[int]()
    while todo:
        for one in type.__subclasses__(todo.pop()):
            if id(one) not in seen:  # a deprecated one warns when it is compared
                seen.add(id(one))
                todo.append(one)
                if isinstance(one, abc.ABCMeta):
                    yield one


def _registered_with(cls: Any) -> Iterator[type]:
    # What `ABC._dump_registry` prints; other Pythons than CPython have another, or none.
    dump = getattr(abc, "_get_dump", None)
    references = dump(cls)[0] if dump is not None else ()
    return (one for reference in references if (one := reference()) is not None)


def _full_name(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__
