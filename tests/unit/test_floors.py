"""The house has floors: a module imports from its own floor or from below it, and nobody inside imports the face."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "gridengine"

FLOORS = {
    8: "__init__ __main__",
    7: "cli doctor reinforce joblib_backend",
    6: "functional gathering line executor pool",
    5: "job ticket flight wares intake promise progress",
    4: "dispatcher hub opening desk inline local worker agent hearing pending",
    3: "limits state lending crew answers stock fleet pools work blame events transport session channel nursery hand memory "
    "output outbox encryption runner stage cradle target schedulers stalls relay background signals inherit recalls "
    "fairqueue",
    2: "initial frozen protocol current processors blocks lent sharing pickling byvalue callersmain classes exceptions "
    "resources algebra units adjust packing security config setting settingsfiles openfiles itemwise typeparameters "
    "parent child_state descriptors ownmodules trusted sockets",
    1: "errors _version",
}
"""All modules of the package; a subpackage is on one floor."""

FLOOR_OF = {f"gridengine.{name}": number for number, names in FLOORS.items() for name in names.split()}

DECIDES = {
    "gridengine",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "math",
    "msgspec",
    "signal",
    "typing",
    "__future__",
}
PURE = {
    **dict.fromkeys(
        [f"gridengine.{name}" for name in ("state", "crew", "answers", "stalls", "recalls", "fairqueue")],
        DECIDES,
    ),
    **dict.fromkeys(
        ("gridengine.algebra", "gridengine.resources", "gridengine.units", "gridengine.adjust", "gridengine.packing"),
        DECIDES | {"abc", "contextlib", "copy", "numbers", "operator", "re", "statistics"},
    ),
    "gridengine.protocol": {"gridengine", "collections", "typing", "__future__", "msgspec"},
}
"""Modules that decide or describe and never act, and all that they may import."""


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def floor(module: str) -> int:
    return FLOOR_OF[".".join([*module.split("."), "__init__"][:2])]


class _NoTypeImports(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else node


def tree_of(path: Path) -> ast.AST:
    return ast.parse(path.read_text())


def tree_as_run(path: Path) -> ast.AST:
    """Return a file's syntax tree without what is imported for the type checker alone."""
    return _NoTypeImports().visit(tree_of(path))  # type: ignore[no-any-return]


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the full names of what is imported, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def inner_imports(module: str, parse: Callable[[Path], ast.AST] = tree_of) -> set[str]:
    """Return the modules of this package that a module imports; a name is taken for the module that holds it."""
    names = {name for name in imported(parse(MODULES[module])) if name.partition(".")[0] == "gridengine"}
    return {name if name in MODULES else name.rpartition(".")[0] for name in names} - {module}


def test_every_module_has_a_floor() -> None:
    assert {module for module in MODULES if ".".join([*module.split("."), "__init__"][:2]) not in FLOOR_OF} == set()


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_go_down_only(module: str) -> None:
    assert {name for name in inner_imports(module) if floor(name) > floor(module)} == set()


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"gridengine"}))
def test_nobody_inside_imports_the_face(module: str) -> None:
    assert "gridengine" not in inner_imports(module)


def test_imports_never_go_in_a_circle() -> None:
    try:
        TopologicalSorter({module: inner_imports(module, tree_as_run) for module in MODULES if module != "gridengine"}).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' imports '.join(reversed(error.args[1]))}")


@pytest.mark.parametrize("module", sorted(set(PURE) & set(MODULES)))
def test_what_decides_imports_nothing_that_acts(module: str) -> None:
    assert {name.partition(".")[0] for name in imported(tree_of(MODULES[module]))} <= PURE[module]
