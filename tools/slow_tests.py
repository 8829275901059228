"""Hold `tests/slow.txt` to the tests: python tools/slow_tests.py [REPORT]

A line of it is a test of `make test` that takes over two seconds, and the reason. Each line must
name a test that is there and say why. Where REPORT, the JUnit report of a `make test`, is there,
each test that took over two seconds in it must have a line: it is made quicker, left to `make
test-all`, or explained.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parents[1]
LISTED = ROOT / "tests" / "slow.txt"
SECONDS = 2.0
RUN_TEST = "runTest"
"""What unittest calls the test of a state machine of hypothesis's."""


def main(report: str = "") -> None:
    lines = [line for line in LISTED.read_text().splitlines() if line and line[0] != "#"]
    reasons = {test: why.strip() for test, _, why in (line.partition(" ") for line in lines)}
    faults = [f"{test}: there is no such test" for test in reasons if not is_there(test)]
    faults += [f"{test}: say why it takes long" for test, why in reasons.items() if not why]
    if report and Path(report).exists():
        faults += [
            f"{test}: took {seconds:.1f} s in {report}, and has no line"
            for test, seconds in slow_in(Path(report)).items()
            if test not in reasons
        ]
    if faults:
        sys.exit("\n".join([f"{LISTED.relative_to(ROOT)}:", *faults]))


def is_there(test: str) -> bool:
    """Return whether a file has this test: `path::name`, or `path::Class::name`."""
    path, *names = test.split("::")
    file = ROOT / path
    return file.is_file() and all(
        name == RUN_TEST or re.search(rf"\b{re.escape(name)}\b", file.read_text()) for name in names
    )


def slow_in(report: Path) -> dict[str, float]:
    """Return the tests that took too long, and the seconds of the slowest of their cases."""
    found: dict[str, float] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        seconds = float(case.get("time", 0))
        if seconds > SECONDS:
            name = case.get("name", "").partition("[")[0]
            test = f"{place_of(case.get('classname', ''))}::{name}"
            found[test] = max(seconds, found.get(test, 0))
    return found


def place_of(class_name: str) -> str:
    """Return the file of a JUnit report's class name, with the class in it if there is one."""
    parts = class_name.split(".")
    for length in range(len(parts), 0, -1):
        file = "/".join(parts[:length]) + ".py"
        if (ROOT / file).is_file():
            return "::".join([file, *parts[length:]])
    return class_name


if __name__ == "__main__":
    main(*sys.argv[1:])
