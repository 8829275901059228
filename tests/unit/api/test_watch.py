"""The newest status, for a function that may be slower than what comes."""

from __future__ import annotations

from gridengine.api.watch import NewestStatus
from gridengine.status.rows import Status
from gridengine.status.watch_events import WatchEvent


def status(number: int) -> Status:
    return Status(elapsed_seconds=number, done=number, events=[WatchEvent(str(number))])


def test_an_untaken_status_leaves_its_events_to_the_next() -> None:
    newest = NewestStatus()
    for number in range(3):
        newest.put(status(number))
    newest.put(None)
    found = newest.get()
    assert found is not None
    assert (found.done, [one.kind for one in found.events]) == (2, ["0", "1", "2"])
    assert newest.get() is None


def test_a_status_from_before_the_end_is_there_after_it() -> None:
    newest, one = NewestStatus(), status(1)
    newest.put(one)
    newest.put(None)
    assert [newest.get(), newest.get(), newest.get()] == [one, None, None]
