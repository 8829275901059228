"""The counts of a dispatcher at one moment, which any thread of its process may read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace


class ClientCounts(Struct, frozen=True):
    """A client's weight and its calls: waiting (also for results), at workers, done, failed, and
    cancelled.
    """

    weight: float
    waiting: int
    running: int
    done: int
    failed: int
    cancelled: int = 0


class Snapshot(Struct, frozen=True):
    """The state of a dispatcher at one moment. Nothing in it changes, so any thread may read it.

    waiting: calls that wait for a worker.
    running: runs that workers have; in the snapshot of one submitter, the submitter's batches.
    batches: the batches of each submitter.
    workers: how many are connected.
    calls_running: calls that workers have.
    done, failed, cancelled: calls that ended with a value, without one, or since somebody ended
        them. retried: attempts that another followed.
    statuses: how many workers are `requested`, `launched` and not connected yet, and, of the
        connected ones, `idle`, `busy`, `silent` and `stopping`.
    slots: how many calls the connected workers run at a time; None where only another process
        knows.
    clients: the calls of each client, by number; 0 is the dispatcher's own process.
    output: says where workers' logs have what calls print; empty where calls print elsewhere.
    """

    waiting: int = 0
    running: int = 0
    workers: int = 0
    batches: Mapping[int, int] = MappingProxyType({})
    calls_running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    statuses: Mapping[str, int] = MappingProxyType({})
    slots: int | None = None
    clients: Mapping[int, ClientCounts] = MappingProxyType({})
    output: str = ""

    def of(self, submitter: int) -> Snapshot:
        """Return the snapshot of one submitter: only its batches count as running."""
        return replace(self, running=self.batches.get(submitter, 0))
