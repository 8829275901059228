"""Output of jobs is on its way to their caller, no more at a time than is taken there."""

from __future__ import annotations

from dataclasses import dataclass, field

from gridengine.wire.messages import Output, OutputTaken
from gridengine.worker.output_relay import WINDOW_BYTES, JobsOutput, Relay, RunOutput
from gridengine.worker.stream_writer import StreamWriter

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


def test_of_a_run_no_more_than_the_window_is_sent_until_it_is_taken() -> None:
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


def test_a_new_dispatcher_has_only_what_is_sent_to_it() -> None:
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


def test_what_cannot_be_written_is_taken_all_the_same() -> None:
    outlet = StreamWriter(NOT_OPEN, "standard output", lambda: None)
    output = JobsOutput([outlet, outlet])  # type: ignore[arg-type]
    output.take(b"a", Output(1, 1), b"one\n")
    outlet.close()
    assert list(output.taken()) == [(b"a", OutputTaken(4, 1))]
