"""Output is kept within bounds and passed on without waiting."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Iterator

import pytest

from gridengine.worker import output
from gridengine.worker.output import Kept, Outlet, Tap


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_what_fits_is_kept_whole(step: int) -> None:
    text = bytes(range(100))
    kept = Kept(100)
    for start in range(0, 100, step):
        kept.add(text[start : start + step])
    assert kept.content() == text


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_of_what_does_not_fit_the_beginning_and_the_end_are_kept(step: int) -> None:
    text = bytes(i % 251 for i in range(300_000))
    kept = Kept(100)
    for start in range(0, len(text), step):
        kept.add(text[start : start + step])
    assert kept.content() == text[:50] + b"\n[... 299900 bytes left out ...]\n" + text[-50:]


def test_memory_for_a_flood_is_bounded() -> None:
    kept = Kept(100)
    for _ in range(1000):
        kept.add(b"x" * 65536)
        assert len(kept._tail) < 200_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def outlet_to(fd: int) -> Outlet:
    return Outlet(fd, "standard output", lambda: None)


def read(fd: int, size: int) -> bytes:
    taken = b""
    while len(taken) < size:
        taken += os.read(fd, 1 << 20)
    return taken


def test_all_arrives_at_a_reader_who_takes_his_time(pipe: tuple[int, int]) -> None:
    outlet = outlet_to(pipe[1])
    text = b"".join(b"%06d\n" % number for number in range(100_000))
    outlet.write(text)
    assert outlet.full
    assert read(pipe[0], len(text)) == text
    outlet.close()
    assert not outlet.full
    assert outlet.passed == outlet.accepted == len(text)


def test_who_waits_for_room_is_woken(pipe: tuple[int, int]) -> None:
    woken = threading.Event()
    outlet = Outlet(pipe[1], "standard output", woken.set)
    outlet.write(bytes(1_000_000))
    outlet.awaited = True
    assert outlet.full
    read(pipe[0], 1_000_000)
    assert woken.wait(30)
    assert not outlet.full
    outlet.close()


def test_what_a_reader_never_takes_is_dropped_at_the_end_and_counted(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(output, "PATIENCE_SECONDS", 0.05)
    outlet = outlet_to(pipe[1])
    outlet.write(bytes(100_000))
    outlet.close()
    said = (
        "34464 bytes that runners printed were not written to standard output: its reader took "
        "nothing for 0.05 s"
    )
    assert [record.getMessage() for record in caplog.records] == [said]
    assert len(read(pipe[0], 65536)) == 65536
    outlet.close()
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("path", "why"),
    [("/dev/full", "No space left on device"), ("/dev/null", "Bad file descriptor")],
)
def test_what_cannot_be_written_is_said_with_its_size(
    path: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    fd = os.open(path, os.O_WRONLY if path == "/dev/full" else os.O_RDONLY)
    outlet = outlet_to(fd)
    outlet.write(b"x" * 10_000)
    outlet.write(b"y" * 10_000)
    outlet.close()
    os.close(fd)
    assert [record.getMessage() for record in caplog.records] == [
        f"what runners print cannot be written to standard output: {why}",
        f"20000 bytes that runners printed were not written to standard output: {why}",
    ]


def test_a_reader_who_is_gone_is_no_error_of_the_writer(
    pipe: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    os.close(pipe[0])
    outlet = outlet_to(pipe[1])
    outlet.write(b"x")
    outlet.close()
    assert (
        "1 bytes that runners printed were not written to standard output: Broken pipe"
        in caplog.text
    )


def test_a_descriptor_that_somebody_made_nonblocking_is_waited_for(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    outlet = outlet_to(pipe[1])
    outlet.write(b"x" * 300_000)
    assert read(pipe[0], 300_000) == b"x" * 300_000
    outlet.close()


def test_what_is_written_after_the_end_is_passed_on_too(pipe: tuple[int, int]) -> None:
    outlet = outlet_to(pipe[1])
    for text in (b"one\n", b"two\n"):
        outlet.write(text)
        outlet.close()
        assert os.read(pipe[0], 100) == text


def test_pieces_are_of_whole_lines() -> None:
    text = (
        b"".join(b"x" * length + b"\n" for length in (10, 4000, 300, 9000, 0, 4095, 1)) + b"the end"
    )
    steps = [bytes(step) for step in output._steps(text)]
    assert b"".join(steps) == text
    assert max(map(len, steps)) <= 4096
    assert [step[-1:] for step in steps[:-1]].count(b"\n") == len(
        steps
    ) - 3  # the line of 9000 is cut twice


class Taker:
    """Takes what it is given."""

    full = False

    def __init__(self) -> None:
        self.taken = b""

    def write(self, data: bytes) -> None:
        self.taken += data


def test_lines_of_two_runners_are_not_mixed(pipe: tuple[int, int]) -> None:
    sink, others = Taker(), os.pipe()
    one, other = Tap(pipe[0], sink), Tap(others[0], sink)
    for write, tap in [(pipe[1], one), (others[1], other)] * 3:
        os.write(write, b" end\nbeginning")
        tap.drain()
    assert sink.taken == b" end\n" * 2 + b"beginning end\n" * 4
    for fd in others:
        os.close(fd)


def test_a_line_without_end_is_passed_on_a_little_later(pipe: tuple[int, int]) -> None:
    sink = Taker()
    tap = Tap(pipe[0], sink)
    assert tap.press(1e12) == math.inf
    os.write(pipe[1], b"50 %")
    tap.drain()
    assert (sink.taken, tap.holds) == (b"", True)
    assert 0 < tap.press(time.monotonic()) <= 0.1
    assert tap.press(1e12) == math.inf
    assert (sink.taken, tap.holds) == (b"50 %", False)


def test_a_very_long_line_does_not_wait_for_its_end(pipe: tuple[int, int]) -> None:
    sink = Taker()
    tap = Tap(pipe[0], sink)
    for _ in range(3):
        os.write(pipe[1], bytes(60_000))
        tap.drain()
    assert len(sink.taken) == 120_000


def test_the_last_line_needs_no_end(pipe: tuple[int, int]) -> None:
    sink = Taker()
    tap = Tap(pipe[0], sink)
    os.write(pipe[1], b"bye")
    tap.drain()
    os.close(pipe[1])
    tap.drain()
    assert (sink.taken, tap.ended) == (b"bye", True)


def test_a_tap_keeps_only_what_is_written_while_it_is_asked_to() -> None:
    reading, writing = os.pipe()
    tap = Tap(reading, Taker())
    os.write(writing, b"before")
    tap.drain()
    tap.kept = Kept(100)
    os.write(writing, b"during")
    tap.drain()
    assert tap.kept.content() == b"during"
    os.close(writing)
    tap.drain()
    assert tap.ended
    tap.close()
