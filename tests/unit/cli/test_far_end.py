"""The far end of a tunnel: what it answers, and when it leaves."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gridengine._version import __version__
from gridengine.cli import far_end
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, FarMachine
from gridengine.dispatcher.standalone.ssh_link import DIED, ENDED, MARK, MOVED, FarEndAnswer
from gridengine.journal.lock_file import Holder
from gridengine.serialize.byte_code import PYTHON
from gridengine.wire.connection_file import replace_private, to_json
from tests.support.far_facts import CLIENT, FACTS

HERE = Holder.here()
HOST = ("127.0.0.1", 0)


@pytest.fixture
def folder(tmp_path: Path, configure: Callable[..., None]) -> DispatcherFolder:
    configure(run_directory=tmp_path)
    return DispatcherFolder.of("sweeps")


@pytest.fixture
def running(folder: DispatcherFolder) -> Iterator[DispatcherFolder]:
    """The folder of a dispatcher that runs here."""
    folder.make()
    replace_private(folder.options_file, to_json(FACTS.options))
    for name in ("client.json", "watcher.json"):
        replace_private(folder.path / name, to_json(CLIENT))
    lock = folder.take_lock()
    lock.write(HERE)
    yield folder
    lock.close()


def answer(capsysbinary: pytest.CaptureFixture[bytes]) -> FarEndAnswer:
    line = capsysbinary.readouterr().out.strip()
    return msgspec.json.decode(line.removeprefix(MARK), type=FarEndAnswer)


def ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have standard input be closed, and each look be long after the one before."""
    monkeypatch.setattr(far_end.select, "select", lambda *_: ([0], [], []))


def test_the_far_end_tells_where_the_dispatcher_is_and_leaves_with_the_near_end(
    running: DispatcherFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    ends(monkeypatch)
    assert far_end.main([__version__, PYTHON, "sweeps"]) == 0
    found = answer(capsysbinary).facts
    assert found is not None
    assert (found.target, found.holder, found.client) == ("127.0.0.1:4711", HERE, CLIENT)


def test_a_dispatcher_on_another_machine_is_forwarded_by_the_address_that_answers(
    running: DispatcherFolder,
) -> None:
    with socket.create_server(HOST) as one, socket.create_server(HOST) as other:
        ports = [each.getsockname()[1] for each in (one, other)]
        addresses = tuple(f"tcp://127.0.0.1:{port}" for port in ports)
        replace_private(running.client_file, to_json(replace(CLIENT, addresses=addresses)))
        assert far_end.target_of(running, FACTS.holder) == f"127.0.0.1:{ports[0]}"
        one.close()
        assert far_end.target_of(running, FACTS.holder) == f"127.0.0.1:{ports[1]}"


@pytest.mark.parametrize("mine", [("0.0.1", PYTHON), (__version__, "2.7")])
def test_another_version_starts_nothing(
    mine: tuple[str, str], folder: DispatcherFolder, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert far_end.main([*mine, "sweeps", "sweeps", "--scheduler", "processes"]) == 1
    assert answer(capsysbinary) == FarEndAnswer(__version__, PYTHON)
    assert not folder.path.exists()


def test_a_folder_that_both_machines_have_needs_no_tunnel(
    folder: DispatcherFolder, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    folder.make()
    replace_private(folder.tunnel_file, to_json(FarMachine("me@login")))
    assert far_end.main([__version__, PYTHON, "sweeps", "sweeps"]) == 1
    assert "is on a file system that both machines have" in answer(capsysbinary).error


def test_a_dispatcher_that_does_not_run_is_told(
    folder: DispatcherFolder, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert far_end.main([__version__, PYTHON, "sweeps"]) == 1
    assert answer(capsysbinary).error == "the dispatcher 'sweeps' does not run"


def test_a_start_that_is_refused_is_told_on_standard_error(
    folder: DispatcherFolder, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    words = ["sweeps", "--scheduler", "processes", "--queue", "all.q"]
    assert far_end.main([__version__, PYTHON, "sweeps", *words]) == 1
    said = capsysbinary.readouterr()
    assert msgspec.json.decode(said.out.strip().removeprefix(MARK), type=FarEndAnswer).error == ""
    assert b"--queue is for" in said.err


def test_the_far_end_says_why_it_leaves(
    folder: DispatcherFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far_end.select, "select", lambda *_: ([], [], []))
    monkeypatch.setattr(far_end, "AGAIN_SECONDS", 0.0)
    folder.make()
    replace_private(folder.client_file, to_json(CLIENT))
    known = replace(FACTS, holder=HERE, client=CLIENT)
    with contextlib.closing(folder.take_lock()) as lock:
        lock.write(HERE)
        assert far_end.attend(folder, replace(known, holder=FACTS.holder)) == MOVED
    assert far_end.attend(folder, known) == DIED
    folder.lock.write_bytes(b"")
    assert far_end.attend(folder, known) == ENDED
