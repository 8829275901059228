"""What a fresh process has of signals, whatever started it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gridengine.worker.process_tree import restore_dispositions, unblock


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    numbers = (signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGPIPE)
    before = {number: signal.getsignal(number) for number in numbers}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_what_was_ignored_has_its_default_again_and_the_rest_stays() -> None:
    def handler(number: int, frame: object) -> None: ...

    for number in (signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, handler)
    restore_dispositions()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGUSR1) is handler
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN  # as Python has it


def test_what_came_while_it_was_blocked_comes_when_it_no_longer_is() -> None:
    came: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    signal.raise_signal(signal.SIGUSR1)
    assert not came
    unblock()
    assert came == [signal.SIGUSR1]
