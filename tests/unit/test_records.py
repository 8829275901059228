"""How structs, named tuples and dataclasses of many fields are made."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gridengine

ROOT = Path(gridengine.__file__).parent
FEW_FIELDS, FEW_POSITIONS = 6, 4
LARGEST = {"Assignment": 6}
"""Made for each task, with more than the 15 keywords for which CPython makes no dictionary."""
TABLES = ("BatchSystem",)
"""Each row of a literal table begins with the same fields."""


def _fields(made: Any) -> int:
    """Return how many fields a class has; 0 if it is none of those."""
    kinds = "__struct_fields__", "_fields", "__dataclass_fields__"
    found = [
        getattr(made, kind) for kind in kinds if isinstance(made, type) and hasattr(made, kind)
    ]
    slots = getattr(made, "__slots__", ())
    if isinstance(slots, list):  # of a `wire.records.record`
        found.append(slots)
    return len(found[0]) if found else 0


def _made_by_position(path: Path) -> Iterator[str]:
    name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    known = vars(importlib.import_module(name))
    for call in ast.walk(ast.parse(path.read_text())):
        if not isinstance(call, ast.Call):
            continue
        starred = any(isinstance(one, ast.Starred) for one in call.args)
        if not starred and len(call.args) <= FEW_POSITIONS:
            continue
        first, *others = words = ast.unparse(call.func).split(".")
        made = known.get(first)
        for other in others:
            made = getattr(made, other, None)
        many = starred or len(call.args) > LARGEST.get(words[-1], FEW_POSITIONS)
        if many and _fields(made) > FEW_FIELDS and words[-1] not in TABLES:
            yield f"{path.relative_to(ROOT)}:{call.lineno}: {'.'.join(words)}"


def test_a_record_of_many_fields_is_made_by_keyword() -> None:
    paths = [path for path in ROOT.rglob("*.py") if path.name != "__main__.py"]
    assert [words for path in paths for words in _made_by_position(path)] == []
