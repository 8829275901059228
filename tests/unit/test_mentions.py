"""Names in backquotes, in docstrings, comments and developers' pages, are there."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *("gridengine", "hydra_plugins", "tests", "tools", "benchmarks", "docs", ".ci", "schedulers"),
    *("findings", "examples"),
)
PLACES = {
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if "node_modules" not in path.parts
} | {path.name for path in ROOT.iterdir()}
TEXTS = {
    name: (ROOT / name).read_text(errors="replace")
    for name in PLACES
    if name.endswith((".py", ".md")) and (ROOT / name).is_file()
}
PAGES = "CONTRIBUTING.md", "docs/architecture.md", "docs/decisions.md"
PACKAGE = [name for name in TEXTS if name.startswith("gridengine/") and name.endswith(".py")]
FOREIGN = {
    "ABC": "CPython's",
    "dask": "dask's",
    "numpy": "NumPy's",
    "from_thread": "trio's",
    "process.BaseProcess._bootstrap": "CPython's",
    "grid_engine.queue": "a setting's",
    "dist/gridengine.pyz": "what is built",
    "DelayedSubmission": "submitit's",
    "InactiveLimit": "Slurm's",
    "MAP_FIXED": "Linux's",
    "Skipped": "pytest's",
    "RESOURCE_RESERVE_PER_TASK": "LSF's",
    "acdirmax": "NFS's",
    "allowed_execute_duration": "HTCondor's",
    "batch_sched_delay": "Slurm's",
    "control_slaves": "Grid Engine's",
    "drmaa_get_DRM_system": "DRMAA's",
    "drmaa_native_specification": "DRMAA's",
    "inotify": "Linux's",
    "memcmp": "C's",
    "models": "an example's",
    "salloc": "Slurm's",
    "toError": "OAR's",
    "vmsplice": "Linux's",
    "SLURM_EXPORT_ENV": "Slurm's",
    "SLURM_RESTART_COUNT": "Slurm's",
}
"""Names that the package's own words mention and its code does not use, by whose they are."""
NAME = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(\(.*\))?")
FILE = re.compile(r"[\w.-]+\.(?:json|toml|yml|sqlite|md)")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+")


def identifiers(text: str) -> Iterator[str]:
    """Yield every name that code uses or defines, and the words of its short texts."""
    for node in ast.walk(ast.parse(text)):
        for field in ("id", "name", "arg", "attr", "asname", "module"):
            if isinstance(value := getattr(node, field, None), str):
                yield from value.split(".")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 60:
            yield from re.findall(r"\w+", node.value)


USED = {name: set(identifiers(text)) for name, text in TEXTS.items() if name.endswith(".py")}
OF_MODULE: dict[str, set[str]] = defaultdict(set)
"""The names in the modules of the package that have this name."""
for one in PACKAGE:
    *_, room, stem = one.removesuffix(".py").split("/")
    OF_MODULE[room if stem == "__init__" else stem] |= USED[one]
    OF_MODULE[room].add(stem)
KNOWN = {
    *dir(builtins),
    *keyword.kwlist,
    *sys.stdlib_module_names,
    *OF_MODULE,
    *FOREIGN,
    *(part for name in PLACES for part in Path(name).with_suffix("").parts),
}.union(*USED.values())


def mentions(name: str) -> Iterator[str]:
    """Yield what stands in backquotes in the docstrings and comments of a module, or in a page."""
    text = TEXTS[name]
    if name.endswith(".md"):
        words = [re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)]
    else:
        nodes = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
        values = [node.value for node in nodes if isinstance(node, ast.Constant)]
        words = [value for value in values if isinstance(value, str)]
        words += [line.partition("#")[2] for line in text.splitlines() if "#" in line]
    for one in words:
        yield from re.findall(r"(?<!`)`([^`]+)`(?!`)", one)


def is_there(mention: str) -> bool:
    """Return whether a mention names something that exists, or is no name at all."""
    if PATH.fullmatch(mention) and mention not in FOREIGN:
        ends = f"/{mention}", f"/{mention}.py"
        return not mention.islower() or any(f"/{place}".endswith(ends) for place in PLACES)
    found = NAME.fullmatch(mention)
    if not found or FILE.fullmatch(mention):
        return True
    first, *others = found[1].split(".")
    if first in sys.stdlib_module_names or first in FOREIGN or mention in FOREIGN:
        return True
    *owners, last = first, *others
    if owners and owners[-1] in OF_MODULE and not found[2]:
        return last in OF_MODULE[owners[-1]]
    return {*owners, last} <= KNOWN


@pytest.mark.parametrize("name", [*PAGES, *PACKAGE])
def test_names_in_backquotes_are_there(name: str) -> None:
    assert {one for one in mentions(name) if not is_there(one)} == set()


@pytest.mark.parametrize(
    ("mention", "expected"),
    [
        ("wire/clock", True),
        ("wire/no_such_module", False),
        ("Scheduler", True),
        ("NoSuchClassAnywhere"[::-1], False),
        ("clock.Clock", True),
        ("clock.Worker", False),
        ("a sentence of words", True),
    ],
)
def test_a_name_that_is_not_there_is_found(mention: str, expected: bool) -> None:
    assert is_there(mention) is expected
