"""Other users of the machine neither read nor change our files, and are shown no key."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import zmq

import gridengine
from gridengine.errors import ConfigurationError
from gridengine.wire import local_connection
from gridengine.wire.connection_file import Connection, make_private_folder
from gridengine.wire.local_connection import LocalClients, connect
from tests.integration.security.conftest import Site, site, square
from tests.integration.security.test_unauthorised_peers import intrude
from tests.support.tcp_scheduler import TcpScheduler

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine

# ---------------------------------------------------------------- another user of this machine

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as another user")
OTHER_USER = 61_234


def as_another_user(act: Callable[[], object]) -> str:
    """Do something in a process of another user and return what came of it, as text."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(OTHER_USER, OTHER_USER, OTHER_USER)
            os.setresuid(OTHER_USER, OTHER_USER, OTHER_USER)
            try:
                outcome = repr(act())
            except OSError as error:
                outcome = type(error).__name__
            os.write(writer, outcome.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        outcome = file.read().decode()
    os.waitpid(pid, 0)
    return outcome


@needs_root
def test_another_user_can_neither_read_nor_change_the_run_directory(target: Site) -> None:
    one = target
    secret = one.folder / "connection.json"
    attempts: list[Callable[[], object]] = [
        lambda: os.scandir(one.folder),
        lambda: os.open(secret, os.O_RDONLY),
        lambda: os.open(secret, os.O_WRONLY),
        lambda: os.open(one.folder / "new", os.O_CREAT | os.O_WRONLY),
        lambda: os.unlink(secret),
        lambda: one.folder.rename(f"{one.folder}.moved"),
        lambda: one.folder.chmod(0o777),
    ]
    assert [as_another_user(attempt) for attempt in attempts] == ["PermissionError"] * len(attempts)


def connect_as_no_honest_client_would(key: str) -> bool:
    with local_connection._socket() as sock:
        sock.connect(local_connection._address(key))
        sock.send(local_connection._digest(b"name", b"who") + bytes(16))
        return local_connection.is_own(sock)


@needs_root
def test_another_user_gets_no_local_connection_even_with_a_client_s_identity() -> None:
    key = zmq.curve_keypair()[0].decode()
    with (
        socket.socket() as other,
        contextlib.closing(LocalClients(key, other.fileno())) as clients,
        select.epoll() as watched,
    ):
        assert as_another_user(lambda: connect(key, b"who", watched)) == "None"
        assert as_another_user(lambda: connect_as_no_honest_client_would(key)) == "False"
        clients.greeted(b"who")
        assert clients.get(b"who") is None


@needs_root
@pytest.mark.parametrize("kind", [TcpScheduler, gridengine.ProcessScheduler])
def test_another_user_can_neither_signal_nor_look_into_a_worker(
    kind: type[gridengine.ProcessScheduler],
) -> None:
    with kind(1) as scheduler:
        others = set(psutil.Process().children(recursive=True))
        gridengine.map(square, [1], scheduler=scheduler)
        found = set(psutil.Process().children(recursive=True)) - others
        assert len(found) >= 2
        try_as_another_user([one.pid for one in found])


def try_as_another_user(pids: Sequence[int]) -> None:
    for pid in pids:
        for attempt in (
            lambda: os.kill(pid, signal.SIGTERM),  # noqa: B023
            lambda: os.open(f"/proc/{pid}/environ", os.O_RDONLY),  # noqa: B023
            lambda: os.open(f"/proc/{pid}/mem", os.O_RDONLY),  # noqa: B023
            lambda: Path(f"/proc/{pid}/fd/3").readlink(),  # noqa: B023
        ):
            assert as_another_user(attempt) == "PermissionError"


# ---------------------------------------------------------------- where the keys are


def environment_of_a_call(_: int) -> dict[str, str]:
    return dict(os.environ)


def secrets_of(connection: Connection) -> list[bytes]:
    keys = [connection.server_key, connection.worker_public, connection.worker_secret]
    assert all(len(key) == 40 for key in keys)
    return [key.encode() for key in keys]


def test_no_key_stands_on_a_command_line_or_in_an_environment(target: Site) -> None:
    checked = 0
    for process in psutil.process_iter():
        for file in ("cmdline", "environ", "comm"):
            try:
                content = Path(f"/proc/{process.pid}/{file}").read_bytes()
            except OSError:  # it has ended, or is another user's
                continue
            checked += process == target.agent
            assert not any(key in content for key in secrets_of(target.connection))
    assert checked == 3


def test_no_key_is_in_the_environment_that_a_call_sees(target: Site) -> None:
    [environment] = gridengine.map(environment_of_a_call, [0], scheduler=target.scheduler)
    text = json.dumps(environment).encode()
    assert not any(key in text for key in secrets_of(target.connection))


IN_A_CLUSTER_JOB = """
import glob, json, os, subprocess
import gridengine

def look(_):
    commands = [["qstat", "-j", os.environ["JOB_ID"]], ["ps", "axeww"]]
    return [subprocess.check_output(command, text=True) for command in commands]

with gridengine.GridEngineScheduler(max_workers=1) as scheduler:
    [texts] = gridengine.map(look, [0], scheduler=scheduler)
    [path] = glob.glob(os.environ["GRIDENGINE_RUN_DIRECTORY"] + "/*/connection.json")
    with open(path) as file:
        print(json.dumps([json.load(file), texts]))
"""


@pytest.mark.grid_engine
def test_neither_grid_engine_nor_ps_shows_a_key_of_a_cluster_job(
    grid_engine: GridEngine,
) -> None:
    runs = grid_engine.folder / "runs-of-attackers"
    done = grid_engine.run(IN_A_CLUSTER_JOB, environment={"GRIDENGINE_RUN_DIRECTORY": str(runs)})
    connection, (told, processes) = json.loads(done.stdout)
    assert "job_number" in told
    assert "gridengine.worker" in processes
    assert "JOB_ID=" in processes  # ps shows environments too
    for name in ("server_key", "worker_public", "worker_secret"):
        assert len(connection[name]) == 40
        assert connection[name] not in told + processes
    assert not list(runs.glob("*/connection.json"))


def test_no_key_is_logged_or_left_in_the_run_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="gridengine")
    with site(TcpScheduler(1), tmp_path / "runs", tmp_path / "mark") as one:
        intrude(one, server_key=one.connection.server_key, keys=zmq.curve_keypair())
        one.check()
        secret, folder = one.connection.worker_secret, one.folder
    assert caplog.records
    assert secret not in caplog.text
    assert not folder.exists()


def test_a_run_directory_that_anybody_may_replace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ConfigurationError, match=r"everybody may replace files in .*/open"):
        make_private_folder(tmp_path / "open" / "runs")
