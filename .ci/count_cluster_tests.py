"""Fail unless every test of these marks was run, and passed or failed as it must:
count_cluster_tests.py REPORTS MARK...

REPORTS is the folder of the JUnit reports.

What should have run is asked of pytest itself, so that a test that was skipped, deselected or lost
with its process is missed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path


def collected(mark: str) -> set[tuple[str, str]]:
    """Return (class name, name), as a JUnit report has them, of every test that is marked so."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "--quiet",
        "-m",
        mark,
        "--no-header",
    ]
    listing = subprocess.run(
        [*command, "-o", "addopts=", "--import-mode=importlib"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode not in (0, 5):
        sys.exit(f"pytest cannot collect the tests:\n{listing.stdout}{listing.stderr}")
    return {junit_key(line) for line in node_ids(listing.stdout)}


def node_ids(listing: str) -> list[str]:
    return [line for line in listing.splitlines() if re.match(r"\S+\.py::", line)]


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


def missed(mark: str, found: dict[tuple[str, str], set[str]]) -> bool:
    """Tell what became of the tests marked so; return whether one was not run, or did not pass."""
    wanted = collected(mark)
    missing = {
        key: sorted(found.get(key, {"not run"})) for key in wanted if found.get(key) != {"passed"}
    }
    print(f"tests marked {mark}: {len(wanted)} collected, {len(wanted) - len(missing)} passed")
    for (place, name), verdicts in sorted(missing.items()):
        print(f"  {place} {name}: {', '.join(verdicts)}")
    return bool(missing) or not wanted


def main(reports: str, marks: list[str]) -> None:
    found = outcomes(Path(reports))
    if bad := [mark for mark in marks if missed(mark, found)]:
        sys.exit(f"not every test passed that is marked {' or '.join(bad)}, or there is none")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
