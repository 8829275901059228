"""What a `LocalDispatcher` has its process's output pass through."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridengine.api.local_dispatcher import LocalDispatcher, OutputPipe
from gridengine.dispatcher.standalone import background
from gridengine.output.stream_writer import StreamWriter


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Its reading and its writing end."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_writes_of_another_process_have_arrived_when_the_pipe_is_closed(
    pipe: tuple[int, int],
) -> None:
    passed = OutputPipe(StreamWriter(pipe[1], "standard output", lambda: None))
    text = b"".join(b"line %d\n" % number for number in range(1000))
    os.write(passed.fd, text)
    os.close(passed.fd)
    passed.close()
    assert os.read(pipe[0], 2 * len(text)) == text


def test_output_without_a_stream_goes_nowhere() -> None:
    passed = OutputPipe(StreamWriter(None, "standard output", lambda: None))
    os.write(passed.fd, b"hello\n")
    os.close(passed.fd)
    passed.close()


class Process:
    """A dispatcher's process, which ends when it is to."""

    waited = 0

    def wait(self, timeout: float) -> None:
        self.waited += 1


def test_a_fork_of_its_process_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    process, here = Process(), os.getpid()
    monkeypatch.setattr(background, "start", lambda *inherited, **more: process)
    dispatcher = LocalDispatcher(1)
    folder = Path(dispatcher.address).parent
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: here + 1)
        dispatcher.close()
    assert (process.waited, folder.exists()) == (0, True)
    for _ in range(2):
        dispatcher.close()
        assert (process.waited, folder.exists()) == (1, False)
