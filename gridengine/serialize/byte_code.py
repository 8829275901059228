"""Code objects: the variables that they name, and their bytes, which no other Python may run.

Byte code is of one version of Python. Another runs it all the same, and dies of it: so the version
goes along with the bytes, wherever they are kept or sent.
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
MARK = f"{PYTHON} (byte code {int.from_bytes(MAGIC_NUMBER[:2], 'little')})\n".encode()
"""Stands before the bytes of code: the Python that they are of, and its version of byte code."""
GLOBAL_OPERATIONS = frozenset(
    {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
)
UNMARKED = b"\x8c\x07marshal", b"\x8c\x05loads"
"""What a pickle has of code that does not say its version, as the first files of runs have it."""
CLASS_OPERATIONS = frozenset({"LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF"})


@functools.lru_cache(maxsize=4096)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of the global variables that this code, or code within it, reads or writes;
    sorted.
    """
    return _names(code, GLOBAL_OPERATIONS)


@functools.lru_cache(maxsize=4096)
def class_names(code: types.CodeType) -> tuple[str, ...]:
    """Return the names that this code, or code within it, looks up among the attributes of the
    class around it; sorted.
    """
    return _names(code, CLASS_OPERATIONS)


def _names(code: types.CodeType, operations: frozenset[str]) -> tuple[str, ...]:
    import dis  # here, since what is only imported by name never needs it

    instructions = chain.from_iterable(map(dis.get_instructions, codes(code)))
    return tuple(sorted({str(one.argval) for one in instructions if one.opname in operations}))


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield this code, and all code within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def submodules(code: types.CodeType, values: Iterable[Any]) -> Iterator[str]:
    """Yield the loaded submodules that code reaches as attributes of one of these values: `import
    xml.dom` makes a global variable of `xml` alone.
    """
    waiting = [one.__name__ for one in values if isinstance(one, types.ModuleType)]
    while waiting:
        package = waiting.pop()
        if hasattr(sys.modules.get(package), "__path__"):
            found = [
                name for one in _attributes(code) if (name := f"{package}.{one}") in sys.modules
            ]
            yield from found
            waiting += found


@functools.lru_cache(maxsize=4096)
def _attributes(code: types.CodeType) -> tuple[str, ...]:
    return tuple(sorted(set(chain.from_iterable(one.co_names for one in codes(code)))))


def dump_code(code: types.CodeType) -> bytes:
    """Return what a pickle has of code, for `load_code`."""
    # Version 2 knows no back references, whose use depends on reference counts: equal code gives
    # equal bytes.
    try:
        return MARK + marshal.dumps(code, 2)
    except ValueError:  # a constant of a kind that is newer
        return MARK + marshal.dumps(code)


def load_code(dumped: bytes) -> types.CodeType:
    """Return the code that was dumped so.

    Raises:
        VersionMismatch: by another Python.
    """
    mark, _, code = dumped.partition(b"\n")
    if mark != MARK[:-1]:
        raise VersionMismatch(
            f"this is code of Python {mark.decode()}, which Python {MARK[:-1].decode()} cannot run",
            hint="load it with that Python, or have it made again",
        )
    return marshal.loads(code)  # type: ignore[no-any-return]


def check_unmarked(pickled: Buffer, python: str) -> None:
    """Check that a pickle which was made by this version of Python loads no code of another that
    does not say so itself.

    Raises:
        VersionMismatch: it does.
    """
    if minor_version(python) != PYTHON and all(name in bytes(pickled) for name in UNMARKED):
        raise VersionMismatch(
            f"this has code of Python {python}, which Python {PYTHON} cannot run",
            hint="load it with that Python, or have it made again",
        )


def minor_version(python: str) -> str:
    """Return the part of a Python's version that says which byte code it runs: 3.11 of 3.11.7."""
    return ".".join(python.split(".")[:2])
