"""What runners print is read line by line, and passed on."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field

import pytest

from gridengine.output.jobs_output import JobsOutput
from gridengine.output.stream_writer import OutputExcerpt, StreamWriter
from gridengine.wire.messages import Output, OutputTaken
from gridengine.worker.runner_output import WINDOW_BYTES, OutputReader, Relay, RunOutput


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


def test_a_reader_keeps_only_output_that_is_written_while_it_is_asked_to() -> None:
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
def test_a_second_taker_may_take_output_alone(pipe: tuple[int, int], alone: bool) -> None:
    sink, caller = Taker(), Taker(alone=alone)
    reader = OutputReader(pipe[0], sink)
    reader.also = caller
    os.write(pipe[1], b"hello\n")
    reader.drain()
    assert (sink.taken, caller.taken) == (b"" if alone else b"hello\n", b"hello\n")


NOT_OPEN = 2**20
"""No process here has as many descriptors."""


@dataclass
class Stream:
    """Takes what it is told to take."""

    written: bytes = b""
    passed: int = 0
    awaited: bool = False

    @property
    def accepted(self) -> int:
        return len(self.written)

    def write(self, data: bytes) -> None:
        self.written += data


@dataclass
class Streams:
    stdout: Stream = field(default_factory=Stream)
    stderr: Stream = field(default_factory=Stream)

    def __iter__(self) -> object:
        return iter((self.stdout, self.stderr))


def test_output_of_a_run_is_sent_within_its_window() -> None:
    sent: list[object] = []
    relay = Relay(lambda message, buffers: sent.append((message, buffers)))
    stdout = RunOutput(relay, 7, 1)
    stdout.write(b"")
    assert sent == []
    stdout.write(b"hello")
    assert sent == [(Output(7, 1), [b"hello"])]
    assert not stdout.full
    RunOutput(relay, 7, 2).write(bytes(WINDOW_BYTES))
    assert stdout.full
    assert not RunOutput(relay, 8, 1).full  # its caller may be another, who reads
    relay.taken(7, 5)
    assert stdout.full
    relay.taken(7, WINDOW_BYTES)
    assert not stdout.full


def test_a_new_dispatcher_is_sent_new_output_alone() -> None:
    relay = Relay(lambda *_: None)
    for run in (7, 8):
        RunOutput(relay, run, 1).write(bytes(WINDOW_BYTES))
    relay.begin_again({8: WINDOW_BYTES})
    assert [RunOutput(relay, run, 1).full for run in (7, 8)] == [False, True]


def test_each_worker_is_told_how_much_of_which_run_was_taken() -> None:
    streams = Streams()
    output = JobsOutput(streams)  # type: ignore[arg-type]
    assert list(output.taken()) == []
    assert not streams.stdout.awaited
    output.take(b"a", Output(1, 1), b"one\n")
    output.take(b"b", Output(2, 1), b"two, and more\n")
    output.take(b"a", Output(1, 2), b"oh\n")
    assert (streams.stdout.written, streams.stderr.written) == (b"one\ntwo, and more\n", b"oh\n")
    assert list(output.taken()) == []
    assert streams.stdout.awaited
    streams.stdout.passed, streams.stderr.passed = 5, 3
    assert list(output.taken()) == [(b"a", OutputTaken(4, 1)), (b"a", OutputTaken(3, 1))]
    streams.stdout.passed = 18
    assert list(output.taken()) == [(b"b", OutputTaken(14, 2))]


def test_unwritable_output_is_taken() -> None:
    outlet = StreamWriter(NOT_OPEN, "standard output", lambda: None)
    output = JobsOutput([outlet, outlet])  # type: ignore[arg-type]
    output.take(b"a", Output(1, 1), b"one\n")
    outlet.close()
    assert list(output.taken()) == [(b"a", OutputTaken(4, 1))]
