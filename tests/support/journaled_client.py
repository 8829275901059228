"""A dispatcher's journal with one client, process after process."""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from gridengine.dispatcher.serving.journaled_client import ClientRecord
from gridengine.dispatcher.serving.shared_journal import Journal
from gridengine.journal.dispatcher_file import DispatcherFile
from gridengine.serialize.payload import Buffer
from gridengine.wire.messages import (
    VERSION,
    ClientHello,
    Finished,
    FinishedItem,
    FunctionItem,
    Message,
    Submit,
    TaskItem,
)

HELLO = ClientHello(VERSION, "1", VERSION, "3.11", "host", 1)
PEER = b"p" * 16


class Sent:
    """A client's end: what it was sent while it was connected."""

    def __init__(self) -> None:
        self.connected = True
        self.messages: list[Message] = []
        self.buffers: list[Sequence[Buffer]] = []
        """Those of outcomes."""

    def __call__(self, message: Message, buffers: Sequence[Buffer] = ()) -> bool:
        if self.connected:
            self.messages.append(message)
            if isinstance(message, Finished):
                self.buffers.append(buffers)
        return self.connected

    def outcomes(self) -> list[Finished]:
        return [one for one in self.messages if isinstance(one, Finished)]


class Process:
    """A dispatcher's journal with one client, which is closed with those made of copies of it. With
    `patient` nothing is written before `sync`, however long the test takes.
    """

    def __init__(self, path: Path, hello: ClientHello = HELLO, *, patient: bool = False) -> None:
        self.file = DispatcherFile(path)
        if patient:
            self.file._writer._delay_seconds = 3600
        self.copies: list[Process] = []
        self.woken = threading.Event()
        self.file.wake = self.woken.set
        self.journal = Journal(self.file)
        self.sent = Sent()
        self.settled: dict[int, list[tuple[int, int]]] = {}
        self.replayed: list[tuple[Message, Sequence[Buffer]]] = []
        found = list(self.journal.clients())
        if found:
            [(number, peer, hello, seen)] = found
            assert peer == PEER
            self.record = ClientRecord(self.journal, number, hello, self.sent, seen)
            self.replayed = list(self.record.replay(self.settled))
        else:
            self.journal.add(7, PEER, hello)
            self.record = ClientRecord(self.journal, 7, hello, self.sent)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        for one in self.copies:
            one.__exit__()
        self.file.close()

    def sync(self) -> None:
        """Wait until all is on disk, also what was deferred, and settle that."""
        done: list[bool] = []
        self.file.write_due(math.inf)
        self.file.write("DELETE FROM ended WHERE 0", [], lambda: done.append(True))
        self.file._writer.flush()
        self.journal.settle()
        assert done

    def commit(self) -> None:
        """Wait until all is on disk but for what is written later, and settle that."""
        done = threading.Event()
        self.file.write("DELETE FROM ended WHERE 0", [], done.set)
        while not done.is_set():
            self.woken.wait(60)
            self.woken.clear()
            self.journal.settle()

    def rows(self, table: str) -> int:
        self.sync()
        found: int = self.file.read(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found

    def tasks(self) -> list[int]:
        return [
            task.id
            for message, _ in self.replayed
            if isinstance(message, Submit)
            for task in message.tasks
        ]


def hand_in(
    process: Process, *ids: int, count: int = 1, defines: bool = True, **options: object
) -> None:
    function = FunctionItem("f", [], b"/") if defines else None
    tasks = [TaskItem(id, count, **options) for id in ids]  # type: ignore[arg-type]
    buffers = [b"function"] * defines + [b"%d" % id for id in ids]
    process.record.take(Submit(0, 0, b"digest", tasks, function), buffers)


def finish(process: Process, id: int, start: int = 0, stop: int = 1, *, last: bool = True) -> None:
    process.record.finish([FinishedItem(id, start, stop, 1, last=last)], [b"result"])


def again(process: Process, tmp_path: Path) -> Process:
    """Return another process with a copy of the file as it is on disk just now."""
    folder = tmp_path / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in process.file.path.parent.glob("journal.sqlite*"):
        if not path.name.endswith("-shm"):
            shutil.copy(path, folder / path.name)
    process.copies.append(Process(folder / "journal.sqlite"))
    return process.copies[-1]
