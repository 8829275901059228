"""Several clients of a stand-alone dispatcher, with a share of the calls each, while clients, the
dispatcher, its workers and the connections of all are killed, stopped and cut off; prints, as JSON,
what was injected and what came of it.

    GRIDENGINE_LEASE_SECONDS=25 GRIDENGINE_BEAT_SECONDS=0.5 PYTHONPATH=tests/support
    python tests/chaos/dispatchers.py here|agents|grid_engine|slurm --calls 2000 --seed 1

A dispatcher that was killed is started again after a while; so is a client, which begins its share
anew. The places are those of `chaos.py`; all is in a folder of its own, which is removed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from call_log import judge, read
from chaos import LEAVE_SECONDS, durations
from faults import Injector, Proxy, Worker, injected, workers
from msgspec.structs import replace
from places import AGENTS, HERE, TASKS
from singles import ONCE

from gridengine.calls.remote import RemoteDispatcher
from gridengine.dispatcher.run_directory import CLIENT, DISPATCHERS, SERVER, WORKER, StoredIdentity
from gridengine.errors import GridEngineError
from gridengine.settings.values import settings
from gridengine.wire.connection_file import ClientConnection, load_private, replace_private, to_json

MODULES = Path(__file__).parent
NAME = "chaos"
CLIENTS = 4
"""How many clients there are at a time."""
KINDS = "maps", "singles", "named", "graphs", "nested"
END_SECONDS = 60.0
LOST_SECONDS = 1500.0
"""What has not ended by then never will."""
CLIENTS_AND_DISPATCHER = {
    "dispatcher killed": 2,
    "dispatcher drained": 2,
    "dispatcher stopped for a while": 2,
    "client killed": 1,
    "client stopped for a while": 2,
    "clients cut off": 4,
    "clients' network down": 1,
}
ENDINGS = frozenset({"agent killed", "task deleted", "array deleted"})
"""The faults by which a worker ends."""
WEIGHTS: Mapping[str, Mapping[str, float]] = {
    "here": {**HERE, **CLIENTS_AND_DISPATCHER},
    "agents": {**AGENTS, **CLIENTS_AND_DISPATCHER},
    "grid_engine": {**TASKS, **CLIENTS_AND_DISPATCHER},
    "slurm": {**TASKS, **CLIENTS_AND_DISPATCHER},
}


class Dispatcher:
    """It, and the ways to it: two proxies, for workers and for clients."""

    def __init__(self, place: str, runs: Path) -> None:
        self.place = place
        self.folder = runs / DISPATCHERS / NAME
        self.workers_proxy, self.clients_proxy = Proxy(), Proxy()
        self._port = self.workers_proxy.open_to(lambda: self._kept().workers.port)
        self._clients_port = self.clients_proxy.open_to(lambda: self._kept().clients.port)
        self.client_file = runs / CLIENT
        self.starts = 0
        self.drains = False
        self._start_at = 0.0
        self.keep()

    def _kept(self) -> StoredIdentity:
        try:
            return load_private(self.folder / SERVER, StoredIdentity)
        except Exception as error:
            raise OSError from error

    @property
    def log(self) -> Path:
        """What it says."""
        return self.folder.parent / "dispatcher.log"

    def keep(self) -> None:
        """Start it, if it does not run and that is due.

        Raises:
            AssertionError: it has ended by itself.
        """
        status = self.process.poll() if self.starts else -signal.SIGKILL
        if self.drains and status == 0:
            status = -signal.SIGKILL
        if status != -signal.SIGKILL:
            assert status is None, f"it ended by itself: {status}\n{self.log.read_text()[-2000:]}"
        elif time.monotonic() >= self._start_at:
            self.starts += 1
            self.drains = False  # one that was killed meanwhile has forgotten it
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("ab") as log:
                self.process = _started(log, "dispatcher_process.py", NAME, self.place, self._port)

    def write_client_file(self) -> bool:
        """Write down how clients connect, through the proxy, if it is known."""
        if not self.client_file.exists() and (self.folder / CLIENT).exists():
            found = load_private(self.folder / CLIENT, ClientConnection)
            address = f"tcp://127.0.0.1:{self._clients_port}"
            replace_private(self.client_file, to_json(replace(found, addresses=(address,))))
        return self.client_file.exists()

    def drain(self) -> bool:
        """Have it end once its calls have, to be started again; return whether it has heard so."""
        try:
            remote = RemoteDispatcher(self.folder / CLIENT, python="")
        except (GridEngineError, OSError):
            return False
        try:
            remote.control("stop", {"now": False, "again": True})
        except GridEngineError:
            return False
        finally:
            remote.close(detach=True)
        self.drains = True
        return True

    def kill(self, pause: float) -> None:
        """Kill it, and have it started again after so many seconds."""
        self._start_at = time.monotonic() + pause
        self.process.kill()

    def workers(self) -> list[Worker]:
        """Return its workers."""
        if self.place != "here":
            return workers(str(self.folder / WORKER))
        try:
            return workers("", self.process.pid)
        except psutil.NoSuchProcess:
            return []

    def end(self) -> None:
        """End it, for good, by force if need be."""
        try:
            self.process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # it writes down what its threads do
            self.process.wait()
            raise


def _started(log: Any, module: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", str(MODULES / module), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
    )


@dataclass
class Share:
    """The calls of one client, and what came of them. `kind` is one of `KINDS`."""

    kind: str
    number: int
    calls: list[tuple[int, float]]
    folder: Path
    tries: int = 0
    process: subprocess.Popen[bytes] | None = None
    struck: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)

    def start(self, file: Path) -> None:
        """Start the client, or start it again."""
        self.tries += 1
        self.struck = False
        stem = self.folder / f"{self.kind}-{self.number}"
        path = stem if self.kind == "named" else f"{stem}-{self.tries}"
        given = Path(f"{stem}.json")
        given.write_text(json.dumps([(*call, f"{path}.calls") for call in self.calls]))
        with Path(f"{stem}.err").open("ab") as errors:
            arguments = file, self.kind, given, self.number, stem.name
            self.process = _started(errors, "client_process.py", *arguments)

    def errors(self) -> str:
        """Return what the client has said."""
        return (self.folder / f"{self.kind}-{self.number}.err").read_text()[-6000:]


class Clients:
    """The clients: some at a time, until all shares are done."""

    def __init__(self, calls: int, seed: int, folder: Path) -> None:
        self._waiting = deque[Share]()
        self.running: list[Share] = []
        self.done: list[Share] = []
        times, size = durations(calls, seed), max(calls // (2 * CLIENTS), 1)
        for number, first in enumerate(range(0, calls, size)):
            share = [*enumerate(times)][first : first + size]
            self._waiting.append(Share(KINDS[number % len(KINDS)], number, share, folder))

    def keep(self, file: Path) -> bool:
        """Start clients that are due, take in what has come of others; return whether any is
        left.
        """
        for one in list(self.running):
            assert one.process is not None
            if one.process.poll() is None:
                continue
            self.running.remove(one)
            output, _ = one.process.communicate()
            if one.struck and one.process.returncode == -signal.SIGKILL:
                self._waiting.append(one)
                continue
            assert one.process.returncode == 0, f"a client failed: {one.errors()}"
            one.result = json.loads(output)
            self.done.append(one)
        while self._waiting and len(self.running) < CLIENTS:
            self.running.append(self._waiting.popleft())
            self.running[-1].start(file)
        return bool(self.running)

    def end(self) -> None:
        """Kill those that are left; they write down what their threads do."""
        for one in self.running:
            assert one.process is not None
            one.process.send_signal(signal.SIGABRT)
            one.process.send_signal(signal.SIGCONT)
            one.process.wait()


class DispatcherInjector(Injector):
    """Injects faults into the dispatcher and its clients too."""

    dispatcher: Dispatcher
    clients: Clients
    folder: Path

    def _do(self, kind: str, worker: Worker, others: list[Worker]) -> bool:
        if kind in MORE:
            return MORE[kind](self, others)
        if kind in ENDINGS and not self._has_worked(worker):
            return False
        return super()._do(kind, worker, others)

    def _has_worked(self, worker: Worker) -> bool:
        """Return whether a worker has made calls, and so has once connected: others have runners
        too while the dispatcher is away, and how often starts may fail in a row is another rule.
        """
        wanted = f" {worker.fork_server.pid} "
        return any(wanted in path.read_text() for path in self.folder.glob("*.calls*"))

    def _kill_dispatcher(self, others: list[Worker]) -> bool:
        if self.dispatcher.process.poll() is not None:
            return False
        if self.dispatcher.place == "here":  # its workers end with it
            for worker in self.dispatcher.workers():
                self._note_struck(str(worker.fork_server.pid))
        self.dispatcher.kill(self._random.uniform(0, 3))
        return True

    def _drain_dispatcher(self, others: list[Worker]) -> bool:
        return not self.dispatcher.drains and self.dispatcher.drain()

    def _stop_dispatcher(self, others: list[Worker]) -> bool:
        return self._suspend(self.dispatcher.process)

    def _client(self) -> Share | None:
        running = [one for one in list(self.clients.running) if one.process is not None]
        return self._random.choice(running) if running else None

    def _kill_client(self, others: list[Worker]) -> bool:
        if (one := self._client()) is None or (process := one.process) is None or one.tries > 2:
            return False
        one.struck = True
        process.kill()  # and no other, which may be about to take its place
        return True

    def _stop_client(self, others: list[Worker]) -> bool:
        one = self._client()
        return one is not None and one.process is not None and self._suspend(one.process)

    def _suspend(self, process: subprocess.Popen[bytes]) -> bool:
        victim = psutil.Process(process.pid)
        victim.suspend()

        def resume() -> None:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.resume()

        self._after(self._random.uniform(0.2, 3.0), resume)
        return True

    def _cut_clients(self, others: list[Worker]) -> bool:
        self.dispatcher.clients_proxy.cut()
        return True

    def _black_out_clients(self, others: list[Worker]) -> bool:
        self.dispatcher.clients_proxy.cut(down=True)
        self._after(self._random.uniform(0.5, 4.0), self.dispatcher.clients_proxy.up)
        return True


MORE: dict[str, Callable[[DispatcherInjector, list[Worker]], bool]] = {
    "dispatcher killed": DispatcherInjector._kill_dispatcher,
    "dispatcher drained": DispatcherInjector._drain_dispatcher,
    "dispatcher stopped for a while": DispatcherInjector._stop_dispatcher,
    "client killed": DispatcherInjector._kill_client,
    "client stopped for a while": DispatcherInjector._stop_client,
    "clients cut off": DispatcherInjector._cut_clients,
    "clients' network down": DispatcherInjector._black_out_clients,
}


def begun_twice(folder: Path, clients: Clients, struck: dict[str, float]) -> Counter[str]:
    """Return what the calls' logs say: among it how many ran again though they may run only once,
    and how many for no fault. Those of maps with a name may where their client was killed; nested
    ones where the worker of the call was struck that has made them.
    """
    counts = Counter[str]()
    killed = {one.number for one in clients.done if one.kind == "named" and one.tries > 1}
    for path in folder.glob("*.calls*"):
        written = read(path)
        judged = Counter(judge(written, struck))
        if path.name.endswith(ONCE):
            counts["once, begun twice"] += int(judged["retried"])
        if path.name in {f"named-{number}.calls" for number in killed}:
            counts["made again by a client that was killed"] += int(judged["retried"])
        elif path.name.startswith("nested-"):
            counts["nested and made again"] += int(judged["retried"])
        else:
            counts["run again for no fault"] += int(judged["run again for no fault"])
        counts["retried"] += int(judged["retried"])
    return counts


@contextlib.contextmanager
def ended(dispatcher: Dispatcher, clients: Clients) -> Iterator[None]:
    """End the clients, and then the dispatcher, whatever happens."""
    try:
        yield
    finally:
        try:
            clients.end()
        finally:
            if dispatcher.process.poll() is not None:  # what has it left behind is for the next
                dispatcher.kill(0.0)
                dispatcher.keep()
            dispatcher.end()


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    dispatcher = Dispatcher(options.where, folder / "runs")
    clients = Clients(options.calls, options.seed, folder)
    chosen = {
        kind: weight
        for kind, weight in WEIGHTS[options.where].items()
        if kind not in options.without
    }
    injector = DispatcherInjector(
        dispatcher.workers,
        dispatcher.workers_proxy,
        seed=options.seed,
        pace=options.pace,
        weights=chosen,
    )
    injector.dispatcher, injector.clients, injector.folder = dispatcher, clients, folder
    seen: set[psutil.Process] = set()
    began, pause = time.monotonic(), threading.Event()
    try:
        with ended(dispatcher, clients), injected(injector):
            left = True
            while left:
                assert time.monotonic() - began < options.seconds, "it does not end"
                pause.wait(0.05)
                dispatcher.keep()
                left = not dispatcher.write_client_file() or clients.keep(dispatcher.client_file)
            seen.update(one for worker in dispatcher.workers() for one in worker.processes)
    except BaseException:
        for one in clients.running:
            print(one.kind, one.number, one.tries, one.errors(), file=sys.stderr)
        print(dispatcher.log.read_text()[-20000:], file=sys.stderr)
        raise
    counts = begun_twice(folder, clients, injector.struck)
    results = [one.result for one in clients.done]

    def all_of(what: str) -> list[Any]:
        return [each for one in results for each in one[what]]

    return {
        "calls": options.calls,
        "seconds": round(time.monotonic() - began, 1),
        "injected": sum(injector.done.values()),
        "kinds": dict(injector.done),
        **counts,
        "clients": sum(one.tries for one in clients.done),
        "dispatchers": dispatcher.starts,
        "cancelled": sum(one["cancelled"] for one in results),
        "failed that may run only once": sum(one["failed"] for one in results),
        "lost": len(all_of("lost")),
        "duplicated": len(all_of("doubled"))
        + counts["run again for no fault"]
        + counts["once, begun twice"],
        "wrong": len(all_of("wrong")),
        "the first of these": all_of("wrong")[:5],
        "processes left": len(psutil.wait_procs(seen, LEAVE_SECONDS)[1]),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("where", choices=sorted(WEIGHTS))
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", type=float, default=0.3, help="mean seconds between two faults")
    parser.add_argument("--seconds", type=float, default=LOST_SECONDS)
    parser.add_argument(
        "--without", action="append", default=[], help="a fault that is not to be done"
    )
    options = parser.parse_args()
    runs = settings().runs  # where all that take part may write
    runs.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir=runs.parent))
    os.environ["GRIDENGINE_RUN_DIRECTORY"] = str(folder / "runs")
    try:
        print(json.dumps(run(options, folder)))
    finally:
        if "GRIDENGINE_CHAOS_KEEP" not in os.environ:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
