"""Dispatchers that are watched, whose answers are what a test says: without a socket, or on one."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gridengine.dispatcher.run_reports import write_report
from gridengine.dispatcher.watch_messages import (
    FOLLOW,
    STATUS,
    Identity,
    WatchAnswer,
    WatchRequest,
)
from gridengine.errors import ClusterError
from gridengine.status.rows import Status
from gridengine.wire.connection_file import Connection

WHO = Identity(
    *("sweep.py", "20261123-093000-node7-4242-0a1b2c", 4242, "login1", "/sweep.py", "/", 0.0),
    *("SlurmScheduler", "1.2", "3.11"),
)


class FakeWatched:
    """Answers, and notes what it was asked with which words."""

    def __init__(self, answer: Callable[[str], WatchAnswer] | None = None) -> None:
        self.answer = answer or (lambda ask: WatchAnswer(WHO, Status()))
        self.asked: list[tuple[str, Sequence[str]]] = []

    def ask(
        self, ask: str = STATUS, *, most: int = 100, words: Sequence[str] = (), first: int = 0
    ) -> WatchAnswer:
        self.asked.append((ask, words))
        return self.answer(ask)


def silent(ask: str) -> WatchAnswer:
    """Give no answer."""
    raise ClusterError("it does not answer")


def save_connection(
    folder: Path,
    *addresses: str,
    name: str = "connection.json",
    scheduler: str = "",
    slots: int = 1,
) -> None:
    """Write the file by which workers find a dispatcher at these addresses."""
    words = dict.fromkeys(("run_id", "version", "python", "server_key"), "x")
    numbers = {f"{one}_seconds": 1.0 for one in ("beat", "lease", "start", "grace")}
    keys = {"worker_public": "x", "worker_secret": "x"}
    facts = {"addresses": addresses, "slots": slots, "output_bytes": 0, "scheduler": scheduler}
    Connection(**words, **keys, **numbers, **facts).save(folder / name)


class Machine:
    """The dispatchers of a machine, on sockets in this folder, and the reports of ended runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # this user's alone
        self._servers: list[socketserver.BaseServer] = []

    def add(self, watched: FakeWatched, pid: int = WHO.pid) -> FakeWatched:
        """Have one listen. While it raises an error it refuses; StopIteration is its end."""

        class Answering(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                # Whoever asked may leave before the answer.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.answer()

            def answer(self) -> None:
                for line in self.rfile:
                    request = msgspec.json.decode(line, type=WatchRequest)
                    again = True
                    while again:
                        try:
                            answer = watched.ask(request.ask, words=request.words)
                        except ClusterError as error:
                            answer = WatchAnswer(WHO, error=str(error))
                        except StopIteration:
                            return
                        self.wfile.write(msgspec.json.encode(answer) + b"\n")
                        again = request.ask == FOLLOW

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        path = self.folder / f"{pid}-{len(self._servers)}.sock"
        server = Server(str(path), Answering)
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return watched

    def says(self, *answers: WatchAnswer) -> None:
        """Have these dispatchers listen, and no others."""
        self.close()
        for answer in answers:
            self.add(FakeWatched(lambda ask, answer=answer: answer), answer.identity.pid)

    def ended(self, *reports: WatchAnswer) -> None:
        """Have these runs leave reports."""
        for one in reports:
            write_report(one.identity.run_id, msgspec.json.encode(one), 100)

    def killed(self, pid: int, run_id: str) -> Path:
        """Have a process leave what tells of it when it is killed, and return that file."""
        path = self.folder / f"{pid}-0a1b2c.json"
        path.write_bytes(msgspec.json.encode(replace(WHO, pid=pid, run_id=run_id)))
        return path

    def close(self) -> None:
        """End all dispatchers."""
        for one in self._servers:
            one.shutdown()
            one.server_close()
        self._servers.clear()
        for path in self.folder.glob("*.sock"):
            path.unlink()
