"""The log of a cluster worker keeps its beginning and its end."""

from __future__ import annotations

import os
from pathlib import Path

from gridengine.worker.output_limits import LogLimit


def test_a_log_that_grows_on_and_on_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    other = os.dup(descriptor)  # of a child, say
    limit = LogLimit(descriptor, 10_000)
    for number in range(5000):
        os.write(descriptor if number % 2 else other, b"line %d\n" % number)
        if number % 100 == 0:
            limit.check()
    limit.check()
    lines = path.read_text().splitlines()
    assert path.stat().st_size <= 10_000
    assert lines[:3] == ["line 0", "line 1", "line 2"]
    assert lines[-2:] == ["line 4998", "line 4999"]
    [gap] = [line for line in lines if "bytes left out" in line]
    assert all(line.startswith("line ") for line in lines if line != gap)
    os.close(descriptor)
    os.close(other)


def test_a_log_within_its_bounds_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    with path.open("wb", buffering=0) as file:
        file.write(b"x" * 100)
        LogLimit(file.fileno(), 100).check()
        assert path.read_bytes() == b"x" * 100


def test_what_is_no_file_is_left_alone() -> None:
    read, write = os.pipe()
    LogLimit(write, 1).check()
    os.close(write)
    LogLimit(write, 1).check()
    os.close(read)


def test_of_long_lines_the_end_is_kept_and_what_is_left_out_is_counted_once(
    tmp_path: Path,
) -> None:
    path = tmp_path / "worker.log"
    with path.open("wb", buffering=0) as file:
        limit = LogLimit(file.fileno(), 1000)
        file.write(b"start\n")
        written = 6
        for number in range(50):
            line = b"\r%3d%%" % number * 100 + b"\n"  # as a progress bar writes it
            written += file.write(line)
            limit.check()
    content = path.read_bytes()
    assert content.startswith(b"start\n[... ")
    assert content.endswith(b"\r 49%\n")
    [gap] = [line for line in content.split(b"\n") if b"bytes left out" in line]
    assert int(gap.split()[1]) + len(content) - len(gap) - 1 == written
