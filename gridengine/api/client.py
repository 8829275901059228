"""`Client`: the connection of a script or notebook to a stand-alone dispatcher."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from gridengine.api.executor import Executor
from gridengine.api.map import map as map_calls
from gridengine.api.map import starmap
from gridengine.api.named_runs import NamedRun, run_of, runs_of
from gridengine.arguments import flag, text
from gridengine.calls.remote import RemoteDispatcher
from gridengine.client.connect import dispatcher_of
from gridengine.client.outliving_calls import flush_handed, leave_runs
from gridengine.errors import ConfigurationError, GridEngineError, trimmed
from gridengine.schedulers.workerless import RemoteScheduler

T = TypeVar("T")
SHOW_SECONDS = 2.0
"""How long a notebook waits for the facts that it shows about a client."""


class Client(RemoteScheduler):
    """Runs calls on the workers of a stand-alone dispatcher; usable wherever a scheduler is.

    Unfinished calls are ended when the client is disconnected, when its `with` block is left, and
    when the program ends; the dispatcher and its workers go on. Calls of runs with a name
    (`name="sweep"`) also go on when the process is killed, or leaves by `disconnect(detach=True)`.

    Args:
        dispatcher: its name, or whatever else names it (see `docs/watching.md`): a process id, an
            address, its folder; or a copy of its connection file for clients.
        weight: the client's share of turns: a client with weight 2 gets two turns for each turn of
            a client with weight 1.
        max_calls, max_bytes: how many unfinished calls, and how many bytes of them, the client may
            have at the dispatcher; submitting more raises an error (default: no limit).

    Raises:
        VersionMismatch: the dispatcher runs another version of the package, or another Python.
        ConfigurationError: there is no such dispatcher, or it does not answer, or it refuses.
    """

    @trimmed
    def __init__(
        self,
        dispatcher: str | os.PathLike[str],
        *,
        weight: float = 1.0,
        max_calls: int | None = None,
        max_bytes: int | None = None,
    ) -> None:
        named = isinstance(dispatcher, os.PathLike)
        from gridengine.watching.dispatcher_lookup import client_file  # few scripts are clients

        self._name = text("dispatcher", os.fspath(dispatcher) if named else dispatcher)
        super().__init__(
            client_file(self._name), weight=weight, max_calls=max_calls, max_bytes=max_bytes
        )
        self._connect()

    def __repr__(self) -> str:
        return f"Client({self._name!r})"

    def _facts(self) -> Iterable[tuple[str, object]]:
        if self._closed:
            return [("state", "disconnected")]
        try:
            said = self._connect().control("describe", seconds=SHOW_SECONDS)
        except (GridEngineError, TimeoutError) as error:
            return [("state", error)]
        kinds = "done", "failed", "running", "waiting"
        return [
            ("runs", f"process {said['pid']} on {said['host']}"),
            ("calls", ", ".join(f"{said[kind]:,} {kind}" for kind in kinds)),
            ("workers", said["workers"]),
            ("clients", len(said["clients"])),
        ]

    def _connect(self) -> RemoteDispatcher:
        return cast(RemoteDispatcher, dispatcher_of(self))

    @functools.cached_property
    def _executor(self) -> Executor:
        return Executor(scheduler=self)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `fn(*args, **kwargs)` on a worker; return its future, as `Executor.submit` does."""
        return self._executor.submit(fn, *args, **kwargs)

    def submit_graph(self, *args: Any, **kwargs: Any) -> Any:
        """Make the calls of a graph, as `Executor.submit_graph` does."""
        return self._executor.submit_graph(*args, **kwargs)

    def map(self, f: Callable[..., T], *iterables: Iterable[Any], **options: Any) -> list[T]:
        """Return `[f(x) for x in iterable]`, as `gridengine.map` does, with its options."""
        return map_calls(f, *iterables, scheduler=self, **options)

    def starmap(
        self, f: Callable[..., T], iterable: Iterable[Iterable[Any]], **options: Any
    ) -> list[T]:
        """Return `[f(*args) for args in iterable]`, as `gridengine.starmap` does."""
        return starmap(f, iterable, scheduler=self, **options)

    def get(self, graph: Any, keys: Any, **options: Any) -> Any:
        """Return the values of these keys of a graph, as `gridengine.dask_get` does: a value for
        one key, a tuple for a list.
        """
        from gridengine.api.dask_scheduler import dask_get  # few need it

        return dask_get(graph, keys, scheduler=self, **options)

    def describe(self) -> dict[str, Any]:
        """Return the dispatcher's description of itself: where it runs, its version, its workers
        and calls, and each of its clients. `status()` says what it does at this moment.
        """
        return cast(dict[str, Any], self._connect().control("describe"))

    @trimmed
    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all calls submitted so far are durable: in the dispatcher's journal and in the
        files of runs with a name. Return whether they are; False when `timeout` seconds have
        passed. Durable calls are made even if this process and the dispatcher are killed and the
        dispatcher is started again; calls of runs are then made only once.
        """
        end = None if timeout is None else time.monotonic() + timeout
        done = self._flush_calls(end)
        return flush_handed(self, None if end is None else end - time.monotonic()) and done

    def _flush_calls(self, end: float | None) -> bool:
        done = True
        for place in (self, *self.of_runs):
            for one in place.submitters:
                one.hand_over_all()
            left = None if end is None else max(end - time.monotonic(), 0.0)
            done = cast(RemoteDispatcher, dispatcher_of(place)).flush(left) and done
        return done

    @trimmed
    def disconnect(self, *, detach: bool = False) -> None:
        """End this client's unfinished calls, and leave. May be called twice.

        detach: let calls of runs with a name go on. The dispatcher stores their outcomes for as
            long as its setting `retention` says. In this process their futures are cancelled. This
            method returns once the dispatcher has the calls on disk.

        Raises:
            ConfigurationError: the calls cannot be written; nothing was disconnected.
        """
        if flag("detach", detach) and not self._closed:
            if not self._flush_calls(None):
                raise ConfigurationError(
                    "the dispatcher cannot write its journal: calls of this client could be lost"
                )
            if not flush_handed(self):
                raise ConfigurationError(
                    "the files of its runs cannot be written: calls of this client could be lost"
                )
            leave_runs(self)
        self.close()

    def close(self) -> None:
        """Disconnect, as `disconnect` does."""
        for place in self.of_runs:
            place.close()
        super().close()

    def runs(self) -> list[NamedRun]:
        """Return the runs with a name, the latest first, as `gridengine.runs` does, including the
        outcomes that this dispatcher has by now.
        """
        return runs_of(self)

    @trimmed
    def run_named(self, name: str, *, journal: str | os.PathLike[str] | None = None) -> NamedRun:
        """Return a run, as `gridengine.run_named` does, including the outcomes that this dispatcher
        has by now.

        Raises:
            JournalError: there is no such run, or its file cannot be read or written.
        """
        return run_of(self, name, journal)
