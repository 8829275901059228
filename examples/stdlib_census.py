"""A census of Python's standard library: its largest functions and the names it uses most.

Every module is read and parsed by a call of its own. Real input that is on every machine:

    python examples/stdlib_census.py
    python examples/stdlib_census.py --scheduler grid_engine
"""

import argparse
import ast
import sysconfig
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import gridengine

SHOWN = 10


class Function(NamedTuple):
    lines: int
    module: str
    name: str


class Census(NamedTuple):
    modules: int
    lines: int
    functions: list[Function]
    names: Counter[str]


def take_census(module: str) -> Census:
    """Count one module of the standard library, given its path below the library's folder."""
    source = Path(sysconfig.get_path("stdlib"), module).read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old modules hold odd escapes; that is not our question
        nodes = list(ast.walk(ast.parse(source)))
    functions = [
        Function((node.end_lineno or node.lineno) - node.lineno + 1, module, node.name)
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    names = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    return Census(1, source.count(b"\n"), sorted(functions, reverse=True)[:SHOWN], names)


def total(parts: Iterable[Census]) -> Census:
    """Add up the censuses of many modules."""
    modules, lines, functions, names = 0, 0, list[Function](), Counter[str]()
    for part in parts:
        modules += part.modules
        lines += part.lines
        functions += part.functions
        names += part.names
    return Census(modules, lines, sorted(functions, reverse=True)[:SHOWN], names)


def library_modules() -> list[str]:
    """List the library's modules, but for those that are not meant to be valid: test data and the
    old 2to3's grammar tests.
    """
    library = Path(sysconfig.get_path("stdlib"))
    left_out = {
        "site-packages",
        "dist-packages",
        "test",
        "tests",
        "idlelib",
        "lib2to3",
        "__pycache__",
    }
    found = (path.relative_to(library) for path in library.rglob("*.py"))
    return sorted(str(path) for path in found if left_out.isdisjoint(path.parts))


def show(census: Census) -> None:
    print(f"{census.modules} modules, {census.lines} lines\n\nthe largest functions:")
    for function in census.functions:
        print(f"{function.lines:6} lines  {function.module}: {function.name}")
    print("\nthe most used names:")
    for name, count in sorted(census.names.items(), key=lambda pair: (-pair[1], pair[0]))[:SHOWN]:
        print(f"{count:6} times  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the standard library, serially and mapped.")
    parser.add_argument(
        "--scheduler",
        help="where the calls run: processes, grid_engine, slurm or inline (default: the best)",
    )
    options = parser.parse_args()
    modules = library_modules()

    start = time.monotonic()
    serial = total(map(take_census, modules))
    between = time.monotonic()
    mapped = total(gridengine.map(take_census, modules, scheduler=options.scheduler))
    end = time.monotonic()

    show(mapped)
    print(f"\nserial: {between - start:.1f} s, mapped: {end - between:.1f} s")
    if mapped != serial:
        raise SystemExit("the mapped census is not the serial one")
    print("the mapped census equals the serial one")


if __name__ == "__main__":
    main()
