"""A `Client`, whose dispatchers are played."""

from __future__ import annotations

import pytest

import gridengine
from gridengine.errors import ConfigurationError
from gridengine.schedulers.workerless import RemoteScheduler


class Dispatcher:
    """Has a journal on a disk that may be full."""

    place: RemoteScheduler

    def __init__(self) -> None:
        self.full = self.closed = False
        self.waited: list[float | None] = []

    def flush(self, timeout: float | None) -> bool:
        self.waited.append(timeout)
        return not self.full

    def close(self, *, wait: bool = True) -> None:
        self.closed = True


def client(*full: bool) -> tuple[gridengine.Client, list[Dispatcher]]:
    """Return a client and its runs' dispatchers, each of which may have a full disk."""
    one = object.__new__(gridengine.Client)
    RemoteScheduler.__init__(one, "/nowhere")
    dispatchers = [Dispatcher() for _ in full]
    for number, dispatcher in enumerate(dispatchers):
        dispatcher.full = full[number]
        dispatcher.place = one.leaving_as(f"run {number}") if number else one  # it stays
        dispatcher.place._share(lambda dispatcher=dispatcher: dispatcher)
    return one, dispatchers


@pytest.mark.parametrize("full", [None, 0, 1, 2])
def test_calls_are_durable_once_those_of_the_client_and_of_all_its_runs_are(
    full: int | None,
) -> None:
    one, dispatchers = client(*(number == full for number in range(3)))
    assert one.flush() == (full is None)
    assert [each.waited for each in dispatchers] == [[None]] * 3
    assert one.flush(0) == (full is None)
    assert [each.waited for each in dispatchers] == [[None, 0.0]] * 3


def test_a_client_whose_calls_cannot_be_written_is_not_detached() -> None:
    one, dispatchers = client(False, True)
    with pytest.raises(ConfigurationError, match="cannot write its journal"):
        one.disconnect(detach=True)
    assert not one._closed
    assert not any(each.closed for each in dispatchers)
