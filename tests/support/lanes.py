"""The lanes of the tests, and what a run says of its costs.

A lane is one command of the Makefile: `make test` is quick and runs before each change is accepted,
`make test-all` has what is left but for the long runs, `make test-long` those. Folders tell them
apart; the mark `promise` takes one test of a slower folder into the quick lane.

`pytest --lane test` keeps the tests of one lane. Without the option all are kept: who names a file
wants all of it. At the end each run prints its slowest tests and the seconds of each folder; a run
of a lane also prints how many tests it left out, and the command that runs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

LANES = {
    "unit": "test",
    "property": "test",
    "contract": "test",
    "integration": "test-all",
    "conformance": "test-all",
    "chaos": "test-long",
    "hosts": "test-all",
    "pools": "test-long",
}
"""The lane of each folder of `tests`."""
PROMISE = "promise"
LONG = ("htcondor", "oar", "pbs", "flux", "files", "long")
"""The marks of batch systems that take long to bring up, of the transport that is slow, and of
single tests of minutes.
"""
SLOWEST = 20
LEFT_OUT = "left_out"


def folder_of(node_id: str, depth: int = 1) -> str:
    """Return the folder of a test below `tests`, at most so many names deep."""
    return "/".join(node_id.partition("::")[0].split("/")[1:-1][:depth])


def lane_of(item: pytest.Item) -> str:
    """Return the lane that a test stands in."""
    if any(item.get_closest_marker(mark) is not None for mark in LONG):
        return "test-long"
    if item.get_closest_marker(PROMISE) is not None:
        return "test"
    return LANES[folder_of(item.nodeid)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=sorted(set(LANES.values())), help="keep one lane's tests")


def keep_lane(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other lanes, and count them by theirs."""
    lane = config.getoption("--lane")
    if lane is None:
        return
    lanes = {item: lane_of(item) for item in items}
    others = [item for item in items if lanes[item] != lane]
    items[:] = [item for item in items if lanes[item] == lane]
    config.hook.pytest_deselected(items=others)
    note_left_out(config, Counter(lanes[item] for item in others))


def note_left_out(config: pytest.Config, counts: Counter[str]) -> None:
    """Keep the counts for the summary: a process of pytest-xdist sends them to the one that prints.

    Each of those processes collects all tests, so that one's word will do.
    """
    if hasattr(config, "workeroutput"):
        config.workeroutput[LEFT_OUT] = dict(counts)
    config.stash[_left_out] = counts


_left_out = pytest.StashKey[Counter[str]]()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take in what a process of pytest-xdist has counted; it has no output when it crashed."""
    counts = getattr(node, "workeroutput", {}).get(LEFT_OUT)
    if counts is not None:
        note_left_out(node.config, Counter(counts))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    seconds: Counter[str] = Counter()
    for report in reports_of(terminalreporter):
        seconds[report.nodeid] += report.duration
    if len(seconds) > SLOWEST:
        write_costs(terminalreporter, seconds)
    for lane, count in sorted(config.stash.get(_left_out, Counter()).items()):
        terminalreporter.write_line(f"left out: {count:,} tests, which `make {lane}` runs")


def reports_of(terminalreporter: Any) -> Iterator[pytest.TestReport]:
    for reports in terminalreporter.stats.values():
        yield from (one for one in reports if isinstance(one, pytest.TestReport))


def write_costs(terminalreporter: Any, seconds: Counter[str]) -> None:
    """Print the slowest tests, and what each folder took: processes that ran at once added up."""
    terminalreporter.section(f"slowest {SLOWEST} tests")
    for test, taken in seconds.most_common(SLOWEST):
        terminalreporter.write_line(f"{taken:8.2f} s  {test}")
    terminalreporter.section("seconds and tests of each folder")
    folders: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for test, taken in seconds.items():
        folders[folder_of(test, 2)] += taken
        counts[folder_of(test, 2)] += 1
    for folder, taken in folders.most_common():
        terminalreporter.write_line(f"{taken:8.1f} s {counts[folder]:6,}  {folder}")
