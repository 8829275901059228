"""What runners print is read line by line, and passed on."""

from __future__ import annotations

import math
import os

import pytest

from gridengine.worker.output import OutputReader
from gridengine.worker.output_limits import OutputExcerpt


class Taker:
    """Takes what it is given."""

    full = False

    def __init__(self, *, alone: bool = False) -> None:
        self.taken = b""
        self.alone = alone

    def write(self, data: bytes) -> None:
        self.taken += data


def test_lines_of_two_runners_are_not_mixed(pipe: tuple[int, int]) -> None:
    sink, others = Taker(), os.pipe()
    one, other = OutputReader(pipe[0], sink), OutputReader(others[0], sink)
    for write, reader in [(pipe[1], one), (others[1], other)] * 3:
        os.write(write, b" end\nbeginning")
        reader.drain()
    assert sink.taken == b" end\n" * 2 + b"beginning end\n" * 4
    for fd in others:
        os.close(fd)


def test_a_line_without_end_is_passed_on_a_little_later(pipe: tuple[int, int]) -> None:
    sink = Taker()
    reader = OutputReader(pipe[0], sink)
    assert reader.pass_late_line(50.0) == math.inf
    os.write(pipe[1], b"50 %")
    reader.drain()
    assert (sink.taken, reader.has_line) == (b"", True)
    assert reader.pass_late_line(50.0) == pytest.approx(0.1)
    assert reader.pass_late_line(50.2) == math.inf
    assert (sink.taken, reader.has_line) == (b"50 %", False)


def test_a_very_long_line_does_not_wait_for_its_end(pipe: tuple[int, int]) -> None:
    sink = Taker()
    reader = OutputReader(pipe[0], sink)
    for _ in range(3):
        os.write(pipe[1], bytes(60_000))
        reader.drain()
    assert len(sink.taken) == 120_000


def test_the_last_line_needs_no_end(pipe: tuple[int, int]) -> None:
    sink = Taker()
    reader = OutputReader(pipe[0], sink)
    os.write(pipe[1], b"bye")
    reader.drain()
    os.close(pipe[1])
    reader.drain()
    assert (sink.taken, reader.ended) == (b"bye", True)


def test_a_reader_keeps_only_what_is_written_while_it_is_asked_to() -> None:
    reading, writing = os.pipe()
    reader = OutputReader(reading, Taker())
    os.write(writing, b"before")
    reader.drain()
    reader.excerpt = OutputExcerpt(100)
    os.write(writing, b"during")
    reader.drain()
    assert reader.excerpt.content() == b"during"
    os.close(writing)
    reader.drain()
    assert reader.ended
    reader.close()


@pytest.mark.parametrize("alone", [False, True])
def test_who_takes_it_too_may_take_it_alone(pipe: tuple[int, int], alone: bool) -> None:
    sink, caller = Taker(), Taker(alone=alone)
    reader = OutputReader(pipe[0], sink)
    reader.also = caller
    os.write(pipe[1], b"hello\n")
    reader.drain()
    assert (sink.taken, caller.taken) == (b"" if alone else b"hello\n", b"hello\n")
