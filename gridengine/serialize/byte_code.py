"""Code objects: the variables that they name, and their bytes, which only one Python may run.

Byte code belongs to one version of Python. Another version runs it without a question, and its
process dies. So the bytes begin with the version, wherever they are stored or sent.
"""

from __future__ import annotations

import functools
import marshal
import sys
import types
from _frozen_importlib_external import MAGIC_NUMBER  # `importlib.util` takes time to import
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from gridengine.errors import VersionMismatch
from gridengine.serialize.payload import Buffer

PYTHON = ".".join(map(str, sys.version_info[:2]))
"""The minor version of this Python, such as `3.11`."""
MARK = f"{PYTHON} (byte code {int.from_bytes(MAGIC_NUMBER[:2], 'little')})\n".encode()
"""Stands before the bytes of code: the version of Python, and that of its byte code."""
GLOBAL_OPERATIONS = frozenset(
    {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
)
UNMARKED = b"\x8c\x07marshal", b"\x8c\x05loads"
"""Both stand in a pickle with unmarked code, as in the first files of named runs."""
CLASS_OPERATIONS = frozenset({"LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF"})


@functools.lru_cache(maxsize=4096)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of the global variables that this code, or code within it, uses, sorted."""
    return _names(code, GLOBAL_OPERATIONS)


@functools.lru_cache(maxsize=4096)
def class_names(code: types.CodeType) -> tuple[str, ...]:
    """Return the names that this code, or code within it, looks up among the attributes of the
    class around it, sorted.
    """
    return _names(code, CLASS_OPERATIONS)


def _names(code: types.CodeType, operations: frozenset[str]) -> tuple[str, ...]:
    import dis  # here: functions that travel by name never need it

    instructions = chain.from_iterable(map(dis.get_instructions, codes(code)))
    return tuple(sorted({str(one.argval) for one in instructions if one.opname in operations}))


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield this code, and all code within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def submodules(
    code: types.CodeType, values: Iterable[Any], names: Iterable[str] = ()
) -> Iterator[str]:
    """Yield the loaded submodules that code reaches as attributes of these values: `import xml.dom`
    makes a global variable of `xml` alone. `names` are further attributes.
    """
    attributes = sorted({*_attributes(code), *names})
    waiting = [one.__name__ for one in values if isinstance(one, types.ModuleType)]
    while waiting:
        package = waiting.pop()
        if hasattr(sys.modules.get(package), "__path__"):
            found = [name for one in attributes if (name := f"{package}.{one}") in sys.modules]
            yield from found
            waiting += found


@functools.lru_cache(maxsize=4096)
def _attributes(code: types.CodeType) -> tuple[str, ...]:
    return tuple(sorted(set(chain.from_iterable(one.co_names for one in codes(code)))))


def dump_code(code: types.CodeType) -> bytes:
    """Return the bytes of code, with the version of Python, for `load_code`."""
    # Version 2 has no back references. Their use depends on reference counts; without them, equal
    # code gives equal bytes.
    try:
        return MARK + marshal.dumps(code, 2)
    except ValueError:  # a constant of a type that version 2 lacks
        return MARK + marshal.dumps(code)


def load_code(dumped: bytes) -> types.CodeType:
    """Return the code that `dump_code` has dumped.

    Raises:
        VersionMismatch: another version of Python has dumped it.
    """
    mark, _, code = dumped.partition(b"\n")
    if mark != MARK[:-1]:
        raise VersionMismatch(
            f"this is code of Python {mark.decode()}, which Python {MARK[:-1].decode()} cannot run",
            hint="load it with that Python, or have it made again",
        )
    return marshal.loads(code)  # type: ignore[no-any-return]


def check_unmarked(pickled: Buffer, python: str) -> None:
    """Check a pickle that the given version of Python has made.

    Raises:
        VersionMismatch: it has unmarked code, and the version is not this one.
    """
    if minor_version(python) != PYTHON and all(name in bytes(pickled) for name in UNMARKED):
        raise VersionMismatch(
            f"this has code of Python {python}, which Python {PYTHON} cannot run",
            hint="load it with that Python, or have it made again",
        )


def minor_version(python: str) -> str:
    """Return the part of a version of Python that decides its byte code: 3.11 of 3.11.7."""
    return ".".join(python.split(".")[:2])
