"""What a dispatcher does, as OpenMetrics text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gridengine.dispatcher.reports import MetricsFile, metrics
from gridengine.status.rows import FunctionStatus, LaunchStatus, Status

STATUS = Status(
    done=7,
    failed=2,
    waiting=3,
    statuses={"idle": 1},
    functions=[FunctionStatus('f"\\', 7, 2, 0, 0.5, 1.0, 1000)],
    launches=[LaunchStatus("", waited_seconds=12.5)],
)
OF = 'run="r",name="n"'


def test_the_text_has_what_is_known() -> None:
    lines = metrics(STATUS, "r", "n").splitlines()
    for line in (
        f'gridengine_calls_total{{{OF},outcome="done"}} 7',
        f'gridengine_calls_total{{{OF},outcome="failed"}} 2',
        f'gridengine_open_calls{{{OF},state="waiting"}} 3',
        f'gridengine_workers{{{OF},state="idle"}} 1',
        f"gridengine_queue_wait_seconds{{{OF}}} 12.5",
        f'gridengine_call_seconds_count{{{OF},function="f\\"\\\\"}} 9',
        f'gridengine_call_seconds_sum{{{OF},function="f\\"\\\\"}} 4.5',
        "# TYPE gridengine_calls counter",
    ):
        assert line in lines
    assert lines[-1] == "# EOF"


def test_each_line_is_of_the_form_that_collectors_read() -> None:
    sample = re.compile(r'gridengine_\w+\{(\w+="([^"\\]|\\.)*",?)*\} [0-9.e+-]+')
    for line in metrics(STATUS, "r", "n").splitlines():
        assert line.startswith("# ") or sample.fullmatch(line), line


def test_an_unwritable_file_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = MetricsFile(f"{tmp_path}/nosuch/m.prom", "r", "n")
    file.write(STATUS)
    file.write(STATUS)
    assert [record.message for record in caplog.records] == [
        f"the metrics cannot be written to {tmp_path}/nosuch/m.prom: No such file or directory"
    ]


def test_the_file_is_replaced_as_a_whole_and_at_the_end_for_good(tmp_path: Path) -> None:
    file = MetricsFile(f"{tmp_path}/m.prom", "r", "n")
    file.write(Status())
    file.close(STATUS)
    file.write(Status(done=1))
    [path] = tmp_path.iterdir()
    assert path.name == "m.prom"
    assert f'gridengine_calls_total{{{OF},outcome="done"}} 7' in path.read_text()
