"""Functions are called for descriptors that are ready."""

from __future__ import annotations

import os

from gridengine.system.polling import Poller


def test_a_registered_reader_is_called_while_there_is_something_to_read(
    pipe: tuple[int, int],
) -> None:
    poller, called = Poller(), []
    poller.register(pipe[0], lambda: called.append(os.read(pipe[0], 1)))
    poller.poll()
    os.write(pipe[1], b"ab")
    poller.poll()
    poller.poll()
    poller.poll()
    assert called == [b"a", b"b"]
    poller.close()


def test_a_reader_just_unregistered_is_not_called(pipe: tuple[int, int]) -> None:
    poller, called = Poller(), []
    other = os.dup(pipe[0])

    def call(this: int, that: int) -> None:
        called.append(this)
        poller.unregister(that)
        poller.unregister(that)

    poller.register(pipe[0], lambda: call(pipe[0], other))
    poller.register(other, lambda: call(other, pipe[0]))
    os.write(pipe[1], b"a")
    poller.poll()
    assert len(called) == 1
    poller.close()
    os.close(other)


def test_room_to_write_is_looked_for_only_while_it_is_wanted(pipe: tuple[int, int]) -> None:
    poller, called = Poller(), []
    poller.register(pipe[1], lambda: called.append("room"))
    poller.poll()
    poller.poll_writable(pipe[1], True)
    poller.poll()
    poller.poll_writable(pipe[1], False)
    poller.poll()
    assert called == ["room"]
    poller.close()
