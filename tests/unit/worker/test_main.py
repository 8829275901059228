"""When a worker leaves, and what it leaves behind."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from gridengine.call_context import BEGAN, LOG
from gridengine.errors import ProtocolError
from gridengine.wire.connection_file import Connection
from gridengine.wire.exchange_folder import ALIVE, is_listening
from gridengine.wire.messages import (
    TERMINATED,
    Assign,
    Goodbye,
    Leaving,
    Message,
    Refuse,
    Rejoin,
    Stop,
    Welcome,
)
from gridengine.worker.main import REFUSED, WorkerProcess, _hello, end_job, holding, main
from tests.support.manual_clock import ManualClock

LEASE = 60.0
BEAT = 2.0


class Client:
    socket = None

    def __init__(self) -> None:
        self.received_at = 1000.0
        self.patience: list[float] = []

    def close(self, patience_seconds: float = 0.0) -> None:
        self.patience.append(patience_seconds)


class Agent:
    def __init__(self) -> None:
        self.broken = ""
        self.handled: list[Message] = []

    def handle(self, message: Message, buffers: Any) -> None:
        if not isinstance(message, Assign):
            raise ProtocolError("no")
        self.handled.append(message)


def connection() -> Connection:
    return Connection(
        run_id="run",
        addresses=("tcp://127.0.0.1:1",),
        slots=1,
        version="0",
        python="3",
        beat_seconds=BEAT,
        lease_seconds=LEASE,
        start_seconds=30.0,
        grace_seconds=5.0,
        output_bytes=1000,
        server_key="k" * 40,
        worker_public="p" * 40,
        worker_secret="s" * 40,
    )


def make() -> tuple[WorkerProcess, Client, Agent]:
    client, agent = Client(), Agent()
    return WorkerProcess(connection(), client, agent), client, agent  # type: ignore[arg-type]


def listen(worker: WorkerProcess, start: float, stop: float) -> None:
    """Have a worker look as often as it would."""
    now = start
    while now < stop:
        now += BEAT
        worker.check_connection(now)


def test_a_worker_stays_while_its_dispatcher_sends() -> None:
    worker, client, _ = make()
    listen(worker, 1000, 1030)
    client.received_at = 1030
    listen(worker, 1030, 1085)
    assert worker.reason == ""


def test_a_worker_that_receives_nothing_for_its_lease_leaves() -> None:
    worker, _, _ = make()
    listen(worker, 1000, 1058)
    assert worker.reason == ""
    listen(worker, 1058, 1064)
    assert "60 seconds" in worker.reason
    assert worker.status == 1


class SilentClient(Client):
    """Hears nothing of the dispatcher."""

    pending = False

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.fd = fd
        self.sent: list[Message] = []

    def send(self, message: Message, buffers: Any = ()) -> None:
        self.sent.append(message)

    def tick(self, now: float) -> float:
        return BEAT


class IdleAgent(Agent):
    """Has nothing to do."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.fd = fd

    def fileno(self) -> int:
        return self.fd

    def tick(self, now: float) -> float:
        return 3600.0

    def finish_background(self) -> None: ...

    def close(self) -> list[int]:
        return [7]


def test_a_worker_whose_lease_runs_out_while_it_waits_says_goodbye() -> None:
    clock = ManualClock(1000.0)
    with ExitStack() as stack:
        ends = [stack.enter_context(end) for _ in range(3) for end in socket.socketpair()]
        client, agent = SilentClient(ends[0].fileno()), IdleAgent(ends[2].fileno())
        worker = WorkerProcess(connection(), client, agent, clock=clock)  # type: ignore[arg-type]
        statuses: list[int] = []
        thread = Thread(target=lambda: statuses.append(worker.serve(ends[4], ends[5])))
        thread.start()
        while thread.is_alive():
            clock.advance(BEAT)
        thread.join()
    reason = "no word from the dispatcher for 60 seconds"
    assert (statuses, client.sent[1:]) == ([1], [Goodbye(reason, [7])])
    assert clock.monotonic() >= 1000.0 + LEASE


def test_a_worker_that_was_stopped_listens_before_it_judges() -> None:
    worker, _, _ = make()
    listen(worker, 1000, 1010)
    worker.check_connection(5000)
    assert worker.reason == ""
    listen(worker, 5000, 5020)
    assert "60 seconds" in worker.reason


def test_a_worker_that_leaves_waits_as_long_as_its_lease_for_a_dispatcher_that_is_not_gone() -> (
    None
):
    worker, client, _ = make()
    worker.disconnect()
    listen(worker, 1000, 1064)
    worker.disconnect()
    assert client.patience == [LEASE, 0.0]


def test_a_refused_worker_says_why_and_leaves_with_a_status_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    worker, _, _ = make()
    worker.handle(Refuse("another version"))
    assert worker.status == REFUSED
    assert "another version" in capsys.readouterr().err


def test_a_worker_told_to_stop_leaves_in_good_order() -> None:
    worker, _, _ = make()
    worker.handle(Welcome())
    assert worker.reason == ""
    worker.handle(Stop())
    assert (worker.reason, worker.status) == ("told to stop", 0)


def test_the_first_reason_to_leave_is_the_one_that_counts_and_no_work_is_taken_after_it() -> None:
    worker, _, agent = make()
    worker.handle(Assign([]))
    worker.handle(Stop())
    worker.handle(Assign([]))
    worker.handle(Refuse("late"))
    assert (worker.reason, worker.status, len(agent.handled)) == ("told to stop", 0, 1)


def test_an_agent_that_can_run_nothing_is_a_reason_to_leave() -> None:
    worker, _, agent = make()
    agent.broken = "no processes left"
    worker.check_connection(1001)
    assert (worker.reason, worker.status) == ("no processes left", 1)


@pytest.mark.linux
@pytest.mark.parametrize("by_script", [True, False])
def test_only_the_log_that_a_launch_script_gave_it_is_cut(
    by_script: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BEGAN, "1.5" if by_script else "")
    short = msgspec.structs.replace(connection(), log_bytes=1000)
    worker = WorkerProcess(short, Client(), Agent())  # type: ignore[arg-type]
    os.write(1, b"a line\n" * 1000)
    worker.check_connection(1000)
    assert (len(capfd.readouterr().out) < 1000) == by_script


def test_a_job_whose_log_is_elsewhere_names_the_log_that_it_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(LOG, "logs/worker.1.0.log")
    assert _hello(connection()).log == "logs/worker.1.0.log"


@pytest.mark.parametrize(
    ("resources", "slots"),
    [("[]", 4), ('[["Cores", [3]], ["Memory", [2.0]]]', 3), ('[["Token", ["t"]]]', 1)],
)
def test_a_worker_with_given_resources_has_a_slot_for_each_core(resources: str, slots: int) -> None:
    found = holding(msgspec.structs.replace(connection(), slots=4), resources)
    assert found.slots == slots
    assert msgspec.json.encode(found.resources) == msgspec.json.format(
        resources.encode(), indent=-1
    )


def test_a_worker_without_an_argument_says_how_to_use_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 2
    assert "CONNECTION_FILE" in capsys.readouterr().err


def test_a_worker_ends_its_own_job_by_the_command_that_its_script_says(tmp_path: Path) -> None:
    end_job(f"touch '{tmp_path}/a b'")
    end_job("")
    assert [path.name for path in tmp_path.iterdir()] == ["a b"]


def test_whether_the_dispatcher_is_there_is_known_by_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_listening(f"tcp://127.0.0.1:{port}")
    assert not is_listening(f"tcp://127.0.0.1:{port}")
    assert not is_listening(f"tcp://[::1]:{port}")


def test_whether_the_dispatcher_is_there_is_known_by_its_mark_where_it_exchanges_files(
    tmp_path: Path,
) -> None:
    address = tmp_path.as_uri()
    assert not is_listening(address)
    (tmp_path / ALIVE).touch()
    assert is_listening(address)


@pytest.mark.parametrize("command", ["/nosuch/scancel 1", "false"])
def test_a_job_that_cannot_be_ended_is_told_of(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    end_job(command)
    assert "this job may stay until its time is over" in capsys.readouterr().err


@pytest.mark.parametrize(("wanted", "status"), [(True, 0), (False, REFUSED)])
def test_a_worker_that_its_dispatcher_does_not_know_comes_back_if_it_may(
    *, wanted: bool, status: int
) -> None:
    worker, client, _ = make()
    client.rejoin = lambda message: wanted  # type: ignore[attr-defined]
    worker.handle(Rejoin(2))
    assert bool(worker.reason) is not wanted
    assert worker.status == status


def test_assigned_runs_are_noted_before_they_begin() -> None:
    noted: list[object] = []

    class Held:
        def assigned(self, message: Assign) -> None:
            noted.append(list(agent.handled))

        def introduce(self, agent: object) -> None: ...

    client, agent = Client(), Agent()
    worker = WorkerProcess(connection(), client, agent, Held())  # type: ignore[arg-type]
    worker.handle(Assign([]))
    assert noted == [[]]
    assert agent.handled == [Assign([])]


# ------------------------------------------------------------------ calls that save their state


class AskingAgent(IdleAgent):
    """Has a call that asks whether it must stop, until it is told to."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.listens = True
        self.told: list[float | None] = []

    def leave_by(self, seconds: float | None, *, now: bool) -> None:
        assert now
        self.told.append(seconds)


def asking() -> tuple[WorkerProcess, SilentClient, AskingAgent]:
    client, agent = SilentClient(-1), AskingAgent()
    return WorkerProcess(connection(), client, agent), client, agent  # type: ignore[arg-type]


def test_a_signal_ends_a_worker_whose_calls_do_not_ask_at_once() -> None:
    worker, _, agent = asking()
    agent.listens = False
    worker._terminate()
    assert (worker.reason, agent.told) == (TERMINATED, [])


def test_a_worker_that_a_signal_ends_waits_for_its_calls_to_stop_and_takes_no_others() -> None:
    worker, client, agent = asking()
    worker._terminate()
    assert 0 < worker._next(1000.0) <= 20.0
    assert (worker.reason, agent.told, client.sent) == ("", [20.0], [Leaving()])
    agent.listens = False
    assert worker._next(1001.0) == 0
    assert worker.reason == TERMINATED
    assert len(client.sent) == 1


def test_a_worker_does_not_wait_for_ever() -> None:
    worker, _, _ = asking()
    worker._terminate()
    assert worker._next(1000.0)
    assert worker._next(1019.0) <= 1.0
    assert worker.reason == ""
    assert worker._next(1020.0) == 0
    assert worker.reason == TERMINATED
