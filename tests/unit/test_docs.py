"""The pages: that the tests they name, the places they point to and their sessions are there."""

from __future__ import annotations

import ast
import builtins
import codeop
import doctest
import re
import sys
from pathlib import Path

import pytest

import gridengine
from gridengine import errors

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]
}
NAMED = {page: set(re.findall(r"`(test_\w+)`", text)) for page, text in PAGES.items()}
WIDTH = 100
SCRIPTS = [
    path
    for folder in ("schedulers", "tools", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and path.suffix not in (".py", ".pyc") and "node_modules" not in path.parts
]
SESSIONS = [page for page, text in PAGES.items() if "\n>>> " in text]


def test_the_reference_has_each_public_name() -> None:
    named = set(re.findall(r"^::: gridengine\.(\w+)$", PAGES["docs/reference.md"], re.MULTILINE))
    assert named == {*gridengine.__all__} - {"__version__", "resources", "schedulers"}


def rows_of(page: str) -> list[str]:
    """Return the rows of a page's tables, without their headings."""
    tables = re.findall(r"(?:^\|.*\n)+", PAGES[page], flags=re.MULTILINE)
    return [row for table in tables for row in table.splitlines()[2:]]


def anchors_of(page: str) -> set[str]:
    """Return the places in a page that a link may point to, as GitHub names them."""
    titles = re.findall(r"^#+ (.*)$", PAGES[page], flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [page for page, named in NAMED.items() if named])
def test_each_test_that_a_page_names_is_there(page: str) -> None:
    written = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name in NAMED[page] if f"def {name}(" not in written} == set()


@pytest.mark.parametrize(
    ("page", "count"), [("security", 20), ("reliability", 100), ("differences", 40)]
)
def test_pages_that_promise_name_their_tests(page: str, count: int) -> None:
    assert len(NAMED[f"docs/{page}.md"]) >= count


def test_each_difference_has_a_test() -> None:
    rows = rows_of("docs/differences.md")
    assert len(rows) > 40
    assert [row for row in rows if "`test_" not in row] == []


PROMISE = re.compile(r"^@pytest\.mark\.promise\n(?:^[@ )\]].*\n)*^def (test_\w+)", re.MULTILINE)
QUICK = "tests/unit", "tests/property", "tests/contract"
SLOW_ROWS = [line.split()[0] for line in (ROOT / "tests" / "slow.txt").read_text().splitlines()]


def quick_tests() -> set[str]:
    """Return the names of the tests that `make test` runs."""
    found: set[str] = set()
    for folder in QUICK:
        for path in (ROOT / folder).rglob("test_*.py"):
            found.update(re.findall(r"^def (test_\w+)", path.read_text(), flags=re.MULTILINE))
    for path in (ROOT / "tests" / "integration").rglob("test_*.py"):
        found.update(PROMISE.findall(path.read_text()))
    return found


@pytest.mark.parametrize("page", ["reliability", "differences"])
def test_make_test_plays_each_promise_that_does_not_want_a_batch_system(page: str) -> None:
    """What one batch system alone can show is for `make test-all`, and so are the rows that
    `tests/slow.txt` explains.
    """
    quick, slow = quick_tests(), {name.rpartition("::")[2] for name in SLOW_ROWS}
    local = PAGES[f"docs/{page}.md"].partition("## Faults of a ")[0]
    rows = re.findall(r"^\|.*`test_.*$", local, flags=re.MULTILINE)
    assert len(rows) > 20
    assert [row for row in rows if not (quick | slow) & set(re.findall(r"`(test_\w+)`", row))] == []


@pytest.mark.parametrize("page", PAGES)
def test_each_place_that_a_page_points_to_is_there(page: str) -> None:
    lost = []
    for target in re.findall(r"\]\((?!\w+:)([^)]*)\)", PAGES[page]):
        path, _, anchor = target.partition("#")
        place = (ROOT / page).parent / path if path else ROOT / page
        known = str(place.resolve().relative_to(ROOT))
        if not place.exists() or (anchor and anchor not in anchors_of(known)):
            lost.append(target)
    assert lost == []


@pytest.mark.parametrize("page", SESSIONS)
def test_sessions_of_the_interpreter_are_as_shown(page: str) -> None:
    failed, tried = doctest.testfile(str(ROOT / page), module_relative=False)
    assert (failed, tried > 0) == (0, True)


def lines_for_a_prompt(code: str) -> list[str]:
    """Return the lines of a block that are left when it is pasted at a prompt, where a statement
    with an indented block ends with an empty line.
    """
    compiler, left = codeop.CommandCompiler(), list[str]()
    for line in [*code.splitlines(), ""]:
        left.append(line)
        if compiler("\n".join(left), "<stdin>", "single") is not None:
            left = []
    return left


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{name}.md" for name in ("tutorial", "cookbook", "coming-from"))]
)
def test_blocks_of_the_first_pages_may_be_pasted_at_a_prompt(page: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    assert blocks
    assert [one for one in blocks if lines_for_a_prompt(one)] == []


@pytest.mark.parametrize("page", PAGES)
def test_prose_and_code_of_a_page_are_not_too_wide(page: str) -> None:
    """Tables, what programs print, and what the benchmarks write are as wide as they are."""
    written = re.sub(r"<!-- figures.*<!-- end of the figures -->", "", PAGES[page], flags=re.DOTALL)
    wide = [line for line in written.splitlines() if len(line) > WIDTH]
    assert [line for line in wide if not line.startswith(("|", "    "))] == []


def test_scripts_are_not_too_wide() -> None:
    """Python is ruff's to check."""
    assert len(SCRIPTS) > 20
    wide = {
        str(path.relative_to(ROOT))
        for path in SCRIPTS
        if any(len(line) > WIDTH for line in path.read_text().splitlines())
    }
    assert wide == set()


BLOCKS = {
    page: re.findall(r"^```python\n(?!>>>)(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for page, text in PAGES.items()
    if page == "README.md" or page.startswith("docs/")
}
PASTED = {
    **{f"README.md, block {place}": code for place, code in enumerate(BLOCKS.pop("README.md"), 1)},
    **{page: "\n".join(blocks) for page, blocks in BLOCKS.items() if blocks},
}
"""Each block of README, and the code of each other page as a whole."""


@pytest.mark.parametrize("place", PASTED)
def test_code_of_a_page_defines_the_names_that_it_uses(place: str) -> None:
    nodes = list(ast.walk(ast.parse(PASTED[place])))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {name for node in nodes if (name := getattr(node, "name", None)) and type(name) is str}
    aliases = [node for node in nodes if isinstance(node, ast.alias)]
    made |= {(one.asname or one.name).partition(".")[0] for one in aliases}
    used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    assert used - made - set(dir(builtins)) == set()


@pytest.mark.parametrize("place", PASTED)
def test_code_of_a_page_names_the_packages_that_it_needs(place: str) -> None:
    named: set[str] = set()
    for node in ast.walk(ast.parse(PASTED[place])):
        if isinstance(node, ast.Import):
            named |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            named.add(str(node.module).partition(".")[0])
    packages = {"sklearn": "scikit-learn"}
    wanted = {packages.get(one, one) for one in named - {"gridengine"} - sys.stdlib_module_names}
    assert {one for one in wanted if f"# pip install {one}" not in PASTED[place]} == set()


PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"


def titles() -> list[str]:
    return re.findall(r"^## (\w+)$", PAGE.read_text(), flags=re.MULTILINE)


def tree(kind: type[Exception]) -> list[str]:
    return [
        name
        for child in kind.__subclasses__()
        if child.__module__ == errors.__name__
        for name in (child.__name__, *tree(child))
    ]


def test_each_error_has_its_title() -> None:
    assert errors.Cancelled  # which is made at its first use
    assert sorted(titles()) == sorted(tree(errors.GridEngineError))


def test_each_title_has_its_explanation() -> None:
    sections = re.split(r"^## \w+$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    assert all("**It means**" in section for section in sections)
