"""What runners print is written as fast as its reader takes it, and nobody waits for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gridengine.output import stream_writer
from gridengine.output.stream_writer import (
    LogLimit,
    OutputExcerpt,
    StandardStreams,
    StreamWriter,
    writing,
)


def writer_to(fd: int) -> StreamWriter:
    return StreamWriter(fd, "standard output", lambda: None)


def read(fd: int, size: int) -> bytes:
    taken = b""
    while len(taken) < size:
        taken += os.read(fd, 1 << 20)
    return taken


def test_output_arrives_at_a_slow_reader(pipe: tuple[int, int]) -> None:
    writer = writer_to(pipe[1])
    text = b"".join(b"%06d\n" % number for number in range(100_000))
    writer.write(text)
    assert writer.full
    assert read(pipe[0], len(text)) == text
    writer.close()
    assert not writer.full
    assert writer.passed == writer.accepted == len(text)


def test_a_writer_that_waits_for_room_is_woken(pipe: tuple[int, int]) -> None:
    woken = threading.Event()
    writer = StreamWriter(pipe[1], "standard output", woken.set)
    writer.write(bytes(1_000_000))
    writer.awaited = True
    assert writer.full
    read(pipe[0], 1_000_000)
    assert woken.wait(30)
    assert not writer.full
    writer.close()


def test_output_that_nobody_reads_is_dropped_at_the_end_and_counted(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stream_writer, "PATIENCE_SECONDS", 0.05)
    writer = writer_to(pipe[1])
    writer.write(bytes(100_000))
    assert writer.wait(65_536, 30)  # so much a pipe takes
    writer.close()
    said = (
        "34464 bytes that runners printed were not written to standard output: its reader took "
        "nothing for 0.05 s"
    )
    assert [record.getMessage() for record in caplog.records] == [said]
    assert len(read(pipe[0], 65536)) == 65536
    writer.close()
    assert len(caplog.records) == 1


def test_a_write_under_way_is_not_dropped(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written, counted = threading.Event(), threading.Event()

    def write(fd: int, data: memoryview, write: Callable[..., int] = os.write) -> int:
        count = write(fd, data)
        written.set()
        assert counted.wait(30)
        return count

    monkeypatch.setattr(writing(), "write", write)
    writer = writer_to(pipe[1])
    writer.write(b"working\n")
    assert written.wait(30)
    threading.Timer(0.1, counted.set).start()
    writer.drop("interrupted")
    assert caplog.records == []
    assert writer.passed == writer.accepted


@pytest.mark.parametrize(
    ("path", "why"),
    [("/dev/full", "No space left on device"), ("/dev/null", "Bad file descriptor")],
)
def test_unwritable_output_is_told_with_its_size(
    path: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    fd = os.open(path, os.O_WRONLY if path == "/dev/full" else os.O_RDONLY)
    writer = writer_to(fd)
    writer.write(b"x" * 10_000)
    writer.write(b"y" * 10_000)
    writer.close()
    os.close(fd)
    assert [record.getMessage() for record in caplog.records] == [
        f"the output of runners cannot be written to standard output: {why}",
        f"20000 bytes that runners printed were not written to standard output: {why}",
    ]


def test_a_closed_reader_is_no_error_of_the_writer(
    pipe: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    os.close(pipe[0])
    writer = writer_to(pipe[1])
    writer.write(b"x")
    writer.close()
    assert (
        "1 bytes that runners printed were not written to standard output: Broken pipe"
        in caplog.text
    )


def test_a_descriptor_that_somebody_made_nonblocking_is_waited_for(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    writer = writer_to(pipe[1])
    writer.write(b"x" * 300_000)
    assert read(pipe[0], 300_000) == b"x" * 300_000
    writer.close()


def test_output_after_the_end_is_passed_on(pipe: tuple[int, int]) -> None:
    writer = writer_to(pipe[1])
    for text in (b"one\n", b"two\n"):
        writer.write(text)
        writer.close()
        assert os.read(pipe[0], 100) == text


def test_pieces_are_of_whole_lines() -> None:
    text = (
        b"".join(b"x" * length + b"\n" for length in (10, 4000, 300, 9000, 0, 4095, 1)) + b"the end"
    )
    pieces = [bytes(piece) for piece in stream_writer._pieces(text)]
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= 4096
    assert [piece[-1:] for piece in pieces[:-1]].count(b"\n") == len(
        pieces
    ) - 3  # the line of 9000 is cut twice


def test_kept_output_of_both_streams_is_in_order(pipe: tuple[int, int]) -> None:
    streams = StandardStreams(lambda: None, (pipe[1], None), OutputExcerpt(100))
    streams.stdout.write(b"one\n")
    streams.stderr.write(b"oh\n")
    streams.stdout.write(b"two\n")
    streams.close()
    assert os.read(pipe[0], 100) == b"one\ntwo\n"
    assert streams.excerpt is not None
    assert streams.excerpt.content() == b"one\noh\ntwo\n"


@pytest.mark.linux
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


def test_a_stream_without_a_file_is_left_alone() -> None:
    read, write = os.pipe()
    LogLimit(write, 1).check()
    os.close(write)
    LogLimit(write, 1).check()
    os.close(read)


@pytest.mark.linux
def test_long_lines_keep_their_end_and_count_the_rest_once(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_short_output_is_kept_whole(step: int) -> None:
    text = bytes(range(100))
    kept = OutputExcerpt(100)
    for start in range(0, 100, step):
        kept.add(text[start : start + step])
    assert kept.content() == text


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_long_output_keeps_its_beginning_and_end(step: int) -> None:
    text = bytes(i % 251 for i in range(30_000))
    kept = OutputExcerpt(100)
    for start in range(0, len(text), step):
        kept.add(text[start : start + step])
    assert kept.content() == text[:50] + b"\n[... 29900 bytes left out ...]\n" + text[-50:]


def test_memory_for_a_flood_is_bounded() -> None:
    kept = OutputExcerpt(100)
    for _ in range(1000):
        kept.add(b"x" * 65536)
        assert len(kept._tail) < 200_000
