"""Faults at random from a seed, while others work: who is struck, how, and a book of it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import psutil
from call_log import JOB, TASK, first_of

from gridengine.schedulers.local import FORK_SERVER


class Proxy:
    """TCP connections through us, which can be cut, or be down for a while: what is under way is
    lost.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._down = False
        self.port = 0
        """Where it leads."""

    def open(self, port: int) -> int:
        """Lead to this port of this machine, and return the port that leads there."""
        self.port = port
        return self.open_to(lambda: port)

    def open_to(self, find: Callable[[], int]) -> int:
        """Lead to a port that each new connection asks for, and return the port that leads there.
        An OSError of `find` says that there is none now.
        """
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, args=(listener, find), daemon=True).start()
        return int(listener.getsockname()[1])

    def _accept(self, listener: socket.socket, find: Callable[[], int]) -> None:
        while True:
            near, _ = listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", find()))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._ends += [near, far]
                if self._down:
                    self._cut()
                    continue
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_carry, args=(source, target), daemon=True).start()

    def _cut(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self, *, down: bool = False) -> None:
        """Cut all connections; with `down` no new one lasts until `up`."""
        with self._lock:
            self._down = down
            self._cut()

    def up(self) -> None:
        """Let connections last again."""
        self._down = False


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := source.recv(65536):
            target.sendall(content)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class Worker:
    """The processes of a worker: the agent (None where it is in our own process), its fork server,
    and their runners.

    `job` and `task` are the batch system's numbers; `delete` is its command that deletes the
    former.
    """

    agent: psutil.Process | None
    fork_server: psutil.Process
    runners: list[psutil.Process]
    job: str = ""
    task: str = ""
    delete: str = ""

    @property
    def processes(self) -> list[psutil.Process]:
        return [one for one in (self.agent, self.fork_server, *self.runners) if one is not None]


def workers(connection: str, pid: int | None = None) -> list[Worker]:
    """Return the workers that were started with this connection file; with none, those of this
    process, or of another.
    """
    return _over_tcp(connection) if connection else _local(psutil.Process(pid))


def _local(dispatcher: psutil.Process) -> list[Worker]:
    found = []
    for fork_server in dispatcher.children():
        with contextlib.suppress(psutil.Error):
            if FORK_SERVER in fork_server.cmdline():
                found.append(Worker(None, fork_server, fork_server.children()))
    return found


def _over_tcp(connection: str) -> list[Worker]:
    """All processes of such a worker have the same command line, being forks."""
    parents: dict[int, int] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[-1:] == [connection] and not (
                process.status() == psutil.STATUS_ZOMBIE or process.name() == "srun"
            ):
                parents[process.pid] = process.ppid()
    found = []
    for fork_server, agent in parents.items():
        if agent in parents and parents[agent] not in parents:
            runners = [pid for pid, parent in parents.items() if parent == fork_server]
            with contextlib.suppress(psutil.Error):
                environment = psutil.Process(agent).environ()
                processes = (
                    psutil.Process(agent),
                    psutil.Process(fork_server),
                    [psutil.Process(pid) for pid in runners],
                )
                found.append(
                    Worker(
                        *processes,
                        first_of(JOB, environment),
                        first_of(TASK, environment),
                        "qdel" if "JOB_ID" in environment else "scancel",
                    )
                )
    return found


class Injector:
    """A thread that does a fault every `pace` seconds in the mean, until it is stopped.

    Attributes:
        done: how many faults there were of each kind.
        struck: the ids of the runners and fork servers that were killed, and the numbers of the
            jobs that were deleted ("job", "job.task"), with the (monotonic) time of that: calls
            that they had may run again, and no others.
    """

    def __init__(
        self,
        workers: Callable[[], list[Worker]],
        proxy: Proxy | None,
        *,
        seed: int,
        pace: float,
        weights: Mapping[str, float],
    ) -> None:
        self._workers = workers
        self._proxy = proxy
        self._random = random.Random(seed)
        self._pace = pace
        self._weights = weights
        self._stop = threading.Event()
        self._later: list[threading.Timer] = []
        self._thread = threading.Thread(target=self._work)
        self.done: Counter[str] = Counter()
        self.struck: dict[str, float] = {}
        self.error: BaseException | None = None

    def __enter__(self) -> Injector:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()
        for timer in self._later:
            timer.join()

    def _work(self) -> None:
        try:
            while not self._stop.wait(self._random.expovariate(1 / self._pace)):
                (kind,) = self._random.choices(list(self._weights), list(self._weights.values()))
                # Those that have connected: how often starts may fail in a row is another rule.
                found = [worker for worker in self._workers() if worker.runners]
                if found:
                    with contextlib.suppress(psutil.NoSuchProcess):  # who is gone by himself
                        self.done[kind] += self._do(kind, self._random.choice(found), found)
        except BaseException as error:
            self.error = error

    def _do(self, kind: str, worker: Worker, others: list[Worker]) -> bool:
        return FAULTS[kind](self, worker, others)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, act)
        timer.start()
        self._later.append(timer)

    def _note_struck(self, whom: str) -> None:
        self.struck.setdefault(whom, time.monotonic())

    def _kill_runner(self, worker: Worker, others: list[Worker]) -> bool:
        victim = self._random.choice(worker.runners)
        self._note_struck(str(victim.pid))
        victim.send_signal(self._random.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM]))
        return True

    def _kill_agent(self, worker: Worker, others: list[Worker]) -> bool:
        assert worker.agent is not None
        self._note_struck(str(worker.fork_server.pid))
        worker.agent.kill()
        return True

    def _kill_fork_server(self, worker: Worker, others: list[Worker]) -> bool:
        self._note_struck(str(worker.fork_server.pid))
        worker.fork_server.kill()
        return True

    def _stop(self, worker: Worker, others: list[Worker]) -> bool:
        """The agent, or the fork server where that is in our own process, stops for less than the
        lease: nothing of its may run again.
        """
        victim = worker.agent or worker.fork_server
        victim.suspend()
        self._after(self._random.uniform(0.2, 3.0), lambda: _resume([victim]))
        return True

    def _freeze(self, worker: Worker, others: list[Worker]) -> bool:
        """The whole worker stops for so long that its calls run elsewhere; when it goes on it has
        nothing to say any more.
        """
        self._note_struck(str(worker.fork_server.pid))
        processes = worker.processes
        for process in processes:
            process.suspend()
        self._after(LONGER_THAN_A_LEASE, lambda: _resume(processes))
        return True

    def _cut(self, worker: Worker, others: list[Worker]) -> bool:
        assert self._proxy is not None
        self._proxy.cut()
        return True

    def _black_out(self, worker: Worker, others: list[Worker]) -> bool:
        assert self._proxy is not None
        self._proxy.cut(down=True)
        self._after(self._random.uniform(0.5, 4.0), self._proxy.up)
        return True

    def _delete_task(self, worker: Worker, others: list[Worker]) -> bool:
        self._note_struck(f"{worker.job}.{worker.task}")
        if worker.delete == "qdel":
            _command("qdel", worker.job, "-t", worker.task)
        else:  # not each job is an array there
            _command("scancel", "_".join(filter(None, [worker.job, worker.task])))
        return True

    def _delete_array(self, worker: Worker, others: list[Worker]) -> bool:
        self._note_struck(worker.job)
        _command(worker.delete, worker.job)
        return True

    def _kill_drmaa(self, worker: Worker, others: list[Worker]) -> bool:
        for child in psutil.Process().children():
            if "gridengine.schedulers.grid_engine.drmaa_process" in child.cmdline():
                child.kill()
                return True
        return False


LONGER_THAN_A_LEASE = 4.0 + float(os.environ.get("GRIDENGINE_LEASE_SECONDS", "60"))
"""Seconds."""

FAULTS: dict[str, Callable[[Injector, Worker, list[Worker]], bool]] = {
    "runner killed": Injector._kill_runner,
    "agent killed": Injector._kill_agent,
    "fork server killed": Injector._kill_fork_server,
    "stopped for a while": Injector._stop,
    "frozen for longer than the lease": Injector._freeze,
    "connections cut": Injector._cut,
    "network down": Injector._black_out,
    "task deleted": Injector._delete_task,
    "array deleted": Injector._delete_array,
    "DRMAA killed": Injector._kill_drmaa,
}


def _resume(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def _command(*arguments: str) -> None:
    # That a job is gone by now is no error.
    subprocess.run(arguments, env=dict(os.environ), capture_output=True, timeout=300, check=False)


@contextlib.contextmanager
def injected(injector: Injector) -> Iterator[Injector]:
    """Inject while the block runs; a fault of the injector itself is raised."""
    with injector:
        yield injector
    if injector.error is not None:
        raise injector.error
