"""Fail unless each test of a real cluster ran and passed: count_cluster_tests.py REPORT ARGUMENT...

REPORT is the JUnit report of a run. The ARGUMENTs are those that pytest was run with. pytest lists
with them the tests that should have run: so a test that was skipped, or that was lost when its
process crashed, is found to be missing.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

import pytest

MARKS = ["grid_engine", "slurm", "hosts", "conformance"]
GROUP = re.compile("@(clusters|grid_engine|slurm|hosts)$")
"""How pytest-xdist ends the names of tests that run in one process (see tests/conftest.py)."""
IMPORTS = ["--import-mode=importlib"]


class Collected:
    """The (class name, name) of every test of some marks, as a JUnit report has them, by mark."""

    def __init__(self, marks: list[str]) -> None:
        self.by_mark: dict[str, set[tuple[str, str]]] = {mark: set() for mark in marks}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for mark in set(self.by_mark).intersection(each.name for each in item.iter_markers()):
                self.by_mark[mark].add(junit_key(item.nodeid))


def collected(marks: list[str], arguments: list[str]) -> dict[str, set[tuple[str, str]]]:
    """Return the tests that should have run."""
    found = Collected(marks)
    listing = io.StringIO()
    with contextlib.redirect_stdout(listing):
        status = pytest.main(["--collect-only", "-o", "addopts=", *IMPORTS, *arguments], [found])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(f"pytest cannot collect the tests:\n{listing.getvalue()}")
    return found.by_mark


def junit_key(node_id: str) -> tuple[str, str]:
    """Return a test's class name and name in a JUnit report."""
    address, bracket, parameters = node_id.partition("[")
    path, *names = address.split("::")
    parts = [path.removesuffix(".py").replace("/", "."), *names]
    return ".".join(parts[:-1]), parts[-1] + bracket + parameters


def outcomes(report: Path) -> dict[tuple[str, str], set[str]]:
    """Return the outcomes of each test: `passed`, or `skipped`, `failure`, `error`."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    try:
        cases = [*ElementTree.parse(report).iter("testcase")]
    except (OSError, ElementTree.ParseError) as error:
        sys.exit(f"no report of the tests: {error}")
    for case in cases:
        # A test that must fail and did is reported as skipped.
        verdicts = {child.tag for child in case if child.get("type") != "pytest.xfail"} & {
            "skipped",
            "failure",
            "error",
        }
        name = GROUP.sub("", case.get("name", ""))
        found[case.get("classname", ""), name] |= verdicts or {"passed"}
    return found


def missed(mark: str, wanted: set[tuple[str, str]], found: dict[tuple[str, str], set[str]]) -> bool:
    """Print the tests of a mark that were not run or did not pass; return whether there are any."""
    missing = {
        key: sorted(found.get(key, {"not run"})) for key in wanted if found.get(key) != {"passed"}
    }
    print(f"tests marked {mark}: {len(wanted)} collected, {len(wanted) - len(missing)} passed")
    for (place, name), verdicts in sorted(missing.items()):
        print(f"  {place} {name}: {', '.join(verdicts)}")
    return bool(missing)


def main(report: str, arguments: list[str]) -> None:
    found = outcomes(Path(report))
    wanted = collected(MARKS, arguments)
    if bad := [mark for mark in MARKS if missed(mark, wanted[mark], found)]:
        sys.exit(f"not every test passed that is marked {' or '.join(bad)}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
