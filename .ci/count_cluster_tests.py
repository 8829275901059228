"""Fail unless every test of these marks was run, and passed or failed as it must:
count_cluster_tests.py REPORTS MARK...

REPORTS is the folder of the JUnit reports.

What should have run is asked of pytest itself, so that a test that was skipped, deselected or lost
with its process is missed.
"""

from __future__ import annotations

import contextlib
import io
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

import pytest


class Collected:
    """The (class name, name) of every test of some marks, as a JUnit report has them, by mark."""

    def __init__(self, marks: list[str]) -> None:
        self.by_mark: dict[str, set[tuple[str, str]]] = {mark: set() for mark in marks}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for mark in set(self.by_mark).intersection(each.name for each in item.iter_markers()):
                self.by_mark[mark].add(junit_key(item.nodeid))


def collected(marks: list[str]) -> dict[str, set[tuple[str, str]]]:
    """Return what should have run."""
    found = Collected(marks)
    arguments = ["--collect-only", "-m", " or ".join(marks), "-o", "addopts="]
    listing = io.StringIO()
    with contextlib.redirect_stdout(listing):
        status = pytest.main([*arguments, "--import-mode=importlib"], plugins=[found])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(f"pytest cannot collect the tests:\n{listing.getvalue()}")
    return found.by_mark


def junit_key(node_id: str) -> tuple[str, str]:
    """Return a test's class name and name in a JUnit report."""
    address, bracket, parameters = node_id.partition("[")
    path, *names = address.split("::")
    parts = [path.removesuffix(".py").replace("/", "."), *names]
    return ".".join(parts[:-1]), parts[-1] + bracket + parameters


def outcomes(reports: Path) -> dict[tuple[str, str], set[str]]:
    """Return what the reports say of each test: `passed`, or `skipped`, `failure`, `error`."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    try:
        cases = [
            case
            for report in reports.glob("*.xml")
            for case in ElementTree.parse(report).iter("testcase")
        ]
    except (OSError, ElementTree.ParseError) as error:
        sys.exit(f"no report of the tests: {error}")
    for case in cases:
        # What must fail and did is reported as skipped.
        verdicts = {child.tag for child in case if child.get("type") != "pytest.xfail"} & {
            "skipped",
            "failure",
            "error",
        }
        found[case.get("classname", ""), case.get("name", "")] |= verdicts or {"passed"}
    return found


def missed(mark: str, wanted: set[tuple[str, str]], found: dict[tuple[str, str], set[str]]) -> bool:
    """Tell what became of the tests marked so; return whether one was not run, or did not pass."""
    missing = {
        key: sorted(found.get(key, {"not run"})) for key in wanted if found.get(key) != {"passed"}
    }
    print(f"tests marked {mark}: {len(wanted)} collected, {len(wanted) - len(missing)} passed")
    for (place, name), verdicts in sorted(missing.items()):
        print(f"  {place} {name}: {', '.join(verdicts)}")
    return bool(missing) or not wanted


def main(reports: str, marks: list[str]) -> None:
    found = outcomes(Path(reports))
    wanted = collected(marks)
    if bad := [mark for mark in marks if missed(mark, wanted[mark], found)]:
        sys.exit(f"not every test passed that is marked {' or '.join(bad)}, or there is none")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
