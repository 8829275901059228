"""Watch stand-alone dispatchers on other machines, by the watcher's key in their folder. With this
key one can look, and change nothing.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Sequence

import msgspec

from gridengine.calls.remote import RemoteDispatcher
from gridengine.dispatcher.run_directory import CLIENT, WATCHER
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.dispatcher.watch_messages import ACTS, FOLLOW, STATUS, WatchAnswer, WatchRequest
from gridengine.errors import ClusterError
from gridengine.serialize.payload import Buffer
from gridengine.watching.connections import (
    ANSWER_SECONDS,
    Watched,
    is_watched_elsewhere,
    standalone_folders,
)


class RemoteWatched(Watched):
    """A connection over the network to one dispatcher. Use it in a `with`, or close it.

    Raises:
        ClusterError: the dispatcher does not answer, or gives no proper answer.
    """

    def __init__(self, folder: DispatcherFolder) -> None:
        self.path = folder.path
        self._title = f"the dispatcher {folder.name}"
        self._remote = self._connect(WATCHER)
        self._followed = 0
        self._told = queue.SimpleQueue[Buffer | None]()

    def ask(
        self, ask: str = STATUS, *, most: int = 100, words: Sequence[str] = (), first: int = 0
    ) -> WatchAnswer:
        """Return the answer, as `Watched.ask` does. Requests that change something use the clients'
        key.
        """
        request = msgspec.json.encode(WatchRequest(ask, most, words, first, run=self.run)).decode()
        if ask not in ACTS:
            return self._control(self._remote, "watch", request)
        with contextlib.closing(self._connect(CLIENT)) as remote:
            return self._control(remote, "act", request)

    def follow(self, *, most: int = 100, words: Sequence[str] = (), interval: float = 1.0) -> None:
        self._remote.unfollow(self._followed)
        request = msgspec.json.encode(WatchRequest(FOLLOW, most, words, interval=interval)).decode()
        self._seconds = ANSWER_SECONDS + interval
        with self._faults():
            self._followed = self._remote.follow_lines(self._told.put, request)

    def next_answer(self) -> WatchAnswer:
        try:
            line = self._told.get(timeout=self._seconds)
        except queue.Empty:
            raise self._fault("it does not answer") from None
        if line is None:
            raise self._ended()
        return self._read(line)

    def _connect(self, file: str) -> RemoteDispatcher:
        with self._faults():
            remote = RemoteDispatcher(self.path / file, python="", patience=ANSWER_SECONDS)
        return remote

    def _control(self, remote: RemoteDispatcher, action: str, request: str) -> WatchAnswer:
        with self._faults():
            answer = remote.control(action, {"request": request}, seconds=ANSWER_SECONDS)
        return self._read(msgspec.json.encode(answer))

    def close(self) -> None:
        self._remote.close()


def answers(here: set[int]) -> tuple[list[WatchAnswer], list[str]]:
    """Return the answers of all running stand-alone dispatchers, except these processes of this
    machine; and the errors of those that gave none.
    """
    found, silent = [], []
    for folder in filter(is_watched_elsewhere, standalone_folders()):
        holder = folder.holder()
        if holder is not None and holder.is_here and holder.pid in here:
            continue
        try:
            with RemoteWatched(folder) as watched:
                found.append(watched.ask(most=0))
        except ClusterError as error:
            silent.append(str(error.message))
    return found, silent
