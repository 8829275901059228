"""A tunnel: its files here, the links that it opens, and what it does when one ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gridengine.dispatcher.standalone import tunnel
from gridengine.dispatcher.standalone.dispatcher_folder import (
    DispatcherFolder,
    DispatcherState,
    FarMachine,
    StartOptions,
)
from gridengine.dispatcher.standalone.ssh_link import DIED, ENDED, MOVED, SSH_FAILED, Facts
from gridengine.dispatcher.standalone.tunnel import Tunnel, socket_path
from gridengine.errors import ClusterError, ConfigurationError, GridEngineError
from gridengine.wire.connection_file import ClientConnection, load_private
from tests.support.far_facts import FACTS

FAR = FarMachine("me@login")
FAILED = ClusterError("ssh me@login has failed")
THERE = replace(FACTS, target="10.0.0.7:4711")


class Links:
    """Takes the place of `Link`. Each link has the next facts, or fails, and ends with the next
    status.
    """

    def __init__(self, *facts: Facts | GridEngineError, ends: tuple[int, ...] = ()) -> None:
        self._facts, self._ends = iter(facts), iter(ends)
        self.opened: list[tuple[tuple[str, ...], str]] = []

    def __call__(
        self, far: FarMachine, name: str, words: tuple[str, ...] = (), *, forward: str = ""
    ) -> Links:
        self.opened.append((words, forward.partition(":")[2]))
        facts = next(self._facts)
        if isinstance(facts, GridEngineError):
            raise facts
        self.facts = facts
        return self

    def wait(self) -> int:
        return next(self._ends)

    def close(self) -> None:
        """It has ended."""


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> DispatcherFolder:
    configure(run_directory=tmp_path / "runs", watch_directory=tmp_path / "watch")
    monkeypatch.setattr(tunnel, "check_forwarded", lambda *_: None)
    monkeypatch.setattr(tunnel, "FIRST_PAUSE_SECONDS", 0.0)
    return DispatcherFolder.of("sweeps")


def linked(
    monkeypatch: pytest.MonkeyPatch, *facts: Facts | GridEngineError, ends: tuple[int, ...] = ()
) -> Links:
    links = Links(*facts, ends=ends)
    monkeypatch.setattr(tunnel, "SshLink", links)
    return links


def test_a_dispatcher_is_started_once_and_then_forwarded(
    folder: DispatcherFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = linked(monkeypatch, FACTS, FACTS)
    with Tunnel(folder, FAR) as opened:
        assert opened.open(("sweeps", "--scheduler", "slurm")) == FACTS
        assert folder.state() is DispatcherState.RUNNING
        file = load_private(folder.client_file, ClientConnection)
        [address] = file.addresses
        assert address.startswith("ipc:///")
        assert file.client_secret == FACTS.client.client_secret
        assert (folder.holder(), folder.options()) == (FACTS.holder, FACTS.options)
        assert (folder.run_id(), folder.server_key()) == (FACTS.run_id, FACTS.client.server_key)
    assert links.opened == [(("sweeps", "--scheduler", "slurm"), ""), ((), FACTS.target)]
    assert folder.state() is DispatcherState.DISCONNECTED
    assert not folder.client_file.exists()


def test_a_name_that_stands_for_several_machines_is_forwarded_to_the_dispatcher_s(
    folder: DispatcherFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = linked(monkeypatch, FACTS, THERE, THERE)
    with Tunnel(folder, FAR) as opened:
        opened.open()
    assert [target for _, target in links.opened] == ["", FACTS.target, THERE.target]
    linked(monkeypatch, FACTS, THERE, FACTS)
    with Tunnel(folder, FAR) as opened, pytest.raises(ClusterError, match="--ssh login1"):
        opened.open()


def test_a_broken_link_is_opened_again_until_the_dispatcher_ends(
    folder: DispatcherFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = (FACTS, FACTS, FAILED, FACTS, FACTS)
    links = linked(monkeypatch, *facts, ends=(SSH_FAILED, MOVED, ENDED))
    told: list[str] = []
    with Tunnel(folder, FAR) as opened:
        opened.open()
        assert opened.keep(told.append) == "dispatcher sweeps has ended"
    assert [target for _, target in links.opened][1:] == [FACTS.target] * 4
    assert "the link to me@login is broken" in told[0]
    assert "it is tried again in" in told[1]
    assert "was started again" in told[3]


def test_a_killed_dispatcher_is_told_with_how_its_calls_go_on(
    folder: DispatcherFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked(monkeypatch, FACTS, FACTS, ends=(DIED,))
    with Tunnel(folder, FAR) as opened:
        opened.open()
        words = opened.keep(print)
    assert "was killed; `gridengine dispatcher start sweeps --ssh me@login` goes on" in words


def test_a_link_that_stays_broken_is_given_up_when_clients_give_up(
    folder: DispatcherFolder, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> None:
    configure(client_lease=1e-9)
    linked(monkeypatch, FACTS, FACTS, FAILED, ends=(SSH_FAILED,))
    with Tunnel(folder, FAR) as opened:
        opened.open()
        with pytest.raises(ClusterError, match="has failed"):
            opened.keep(print)


def test_a_tunnel_that_was_never_open_leaves_nothing(
    folder: DispatcherFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked(monkeypatch, ConfigurationError("login cannot run python3"))
    with pytest.raises(ConfigurationError, match="cannot run"), Tunnel(folder, FAR) as opened:
        opened.open()
    assert not folder.path.exists()


def test_sockets_of_a_tunnel_that_was_killed_are_removed_and_no_others(
    folder: DispatcherFolder, tmp_path: Path
) -> None:
    (tmp_path / "watch").mkdir(mode=0o700)
    left, other = (tmp_path / "watch" / f"sweeps-{end}.tunnel" for end in ("1a2b3c", "b-1a2b3c"))
    left.touch()
    other.touch()
    with Tunnel(folder, FAR):
        assert (left.exists(), other.exists()) == (False, True)


def test_one_process_keeps_a_tunnel_open(folder: DispatcherFolder) -> None:
    with (
        Tunnel(folder, FAR),
        pytest.raises(ConfigurationError, match="another process keeps the tunnel to 'sweeps'"),
    ):
        Tunnel(folder, FAR)


def test_the_name_of_a_dispatcher_of_this_machine_is_refused(folder: DispatcherFolder) -> None:
    folder.make()
    folder.options_file.write_bytes(msgspec.json.encode(StartOptions("processes")))
    with pytest.raises(ConfigurationError, match="of this machine is called 'sweeps'"):
        Tunnel(folder, FAR)
    assert not folder.tunnel_file.exists()


@pytest.mark.parametrize("name", ["x" * 100, "a:b"])
def test_a_path_that_can_be_no_socket_is_told(
    tmp_path: Path, configure: Callable[..., None], name: str
) -> None:
    configure(watch_directory=tmp_path / name)
    with pytest.raises(ConfigurationError, match="GRIDENGINE_WATCH_DIRECTORY to a folder with a"):
        socket_path("sweeps")


def test_impossible_commands_through_a_tunnel_are_told_with_a_command(
    folder: DispatcherFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked(monkeypatch, FACTS, FACTS)
    with Tunnel(folder, FAR) as opened:
        opened.open()
        words = "ssh me@login 'python3 -m gridengine dispatcher restart sweeps"
        with pytest.raises(ConfigurationError, match=words):
            folder.check_here("dispatcher", "restart", "sweeps")
    error = folder.not_running()
    assert "no tunnel to the dispatcher 'sweeps' at me@login is open" in error.message
    assert error.hint == "open it: gridengine dispatcher connect sweeps"
