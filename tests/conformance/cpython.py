"""CPython's own tests, as this machine has them installed: Debian's package, or what came with the
interpreter.

Nothing of them is in this repository. `run_source` executes an installed file in the namespace of a
module of ours, with other modules in the place of those that it imports; so its classes are
importable, in workers too, under that module's name.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
VERSIONS = ("python3.11", "python3.14", "python3.15")
"""The Pythons whose tests the tables of expected failures know."""
MULTIPROCESSING = ("_test_multiprocessing.py",)
FUTURES: tuple[str, ...] = ("test_concurrent_futures.py",)
if sys.version_info >= (3, 12):
    _PARTS = "util executor test_as_completed test_deadlock test_init test_process_pool"
    FUTURES = tuple(
        f"test_concurrent_futures/{part}.py" for part in f"{_PARTS} test_shutdown test_wait".split()
    )


def folder() -> Path | None:
    """Return the folder of CPython's tests of this version: Debian's, else the interpreter's own;
    None where there is neither.
    """
    for library in (Path("/usr/lib") / VERSION, Path(sysconfig.get_path("stdlib"))):
        if all((library / "test" / file).is_file() for file in (*FUTURES, *MULTIPROCESSING)):
            return library / "test"
    return None


def why_not() -> str:
    """Return why CPython's tests cannot be run here, empty when they can."""
    if VERSION not in VERSIONS:
        return f"the tables know CPython's tests of {', '.join(VERSIONS)}; this is {VERSION}"
    return (
        ""
        if folder()
        else f"CPython's tests are not installed; on Debian: apt-get install lib{VERSION}-testsuite"
    )


def import_test_package(found: Path) -> None:
    """Have `import test` find this folder, without anything beside it."""
    if "test" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "test", found / "__init__.py", submodule_search_locations=[str(found)]
        )
        assert spec is not None
        sys.modules["test"] = importlib.util.module_from_spec(spec)


def run_source(
    files: tuple[str, ...], namespace: dict[str, Any], instead: Mapping[str, ModuleType]
) -> None:
    """Execute files of CPython's tests, in this order, in this namespace of a module. What they
    import by these names are the modules given; what they import of each other is in the namespace.
    """
    found = folder()
    assert found is not None
    import_test_package(found)
    here = sys.modules[namespace["__name__"]]
    package = namespace["__package__"]
    with modules({**instead, **{f"{package}.{Path(file).stem}": here for file in files}}):
        for file in files:
            path = found / file
            namespace["__file__"] = str(path)  # by which they know their own lines in what is told
            exec(compile(path.read_text(), str(path), "exec"), namespace)


@contextlib.contextmanager
def modules(instead: Mapping[str, ModuleType]) -> Iterator[None]:
    """Import these modules by the names given, for a while; `from package import name` asks the
    package.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(sys.modules, instead))
        for name, module in instead.items():
            package, _, child = name.rpartition(".")
            if package:
                stack.enter_context(
                    mock.patch.object(sys.modules[package], child, module, create=True)
                )
        yield


class Substitute(ModuleType):
    """A module with some names of our own; it has all others of the real one."""

    def __init__(self, real: ModuleType, **ours: Any) -> None:
        super().__init__(real.__name__)
        vars(self).update(ours, _real=real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def is_test(name: str, namespace: Mapping[str, Any]) -> bool:
    """Return whether there is a test of this name, as `SomeTest::test_this`."""
    case, _, test = name.partition("::")
    return hasattr(namespace.get(case), test)
