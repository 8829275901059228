"""A stand-alone dispatcher on a login node, used from a laptop through ssh: a real sshd, and a
plain user.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.clusters import plain_user, user_environment
from tests.support.dispatchers import Shell
from tests.support.waiting import kill_all, wait_until

SSHD = "/usr/sbin/sshd"
HOST = "login"
REMEDY = "as root on Debian: apt-get install --no-install-recommends openssh-server openssh-client"


def why_none() -> str:
    """Return why there is no sshd to test with; empty if there is one."""
    missing = [one for one in (SSHD, "ssh", "ssh-keygen") if shutil.which(one) is None]
    return f"{', '.join(missing)} is not installed; {REMEDY}" if missing else ""


class LoginNode:
    """An sshd in a folder, on a port of 127.0.0.1.

    Args:
        folder: belongs to the user.
        user: who runs sshd and logs in.
        python: the interpreter with the package.
        options: of sshd_config, in place of the ones here.
    """

    def __init__(self, folder: Path, user: pwd.struct_passwd, python: str, **options: str) -> None:
        self.folder, self.user, self.python = folder, user, python
        self.environment = user_environment(user, python)
        self.identity: Mapping[str, Any] = {}
        if os.getuid() != user.pw_uid:
            self.identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        for name in ("host", "key"):
            self._run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
        self.shell = self._shell("node")
        self.laptop = self._shell("laptop", PATH=f"{folder}/bin:{self.environment['PATH']}")
        self._write(options)
        self.sshd = subprocess.Popen(
            [SSHD, "-D", "-f", str(folder / "sshd_config"), "-E", str(folder / "sshd.log")],
            env=self.environment,
            **self.identity,
        )
        wait_until(self._is_listening, 30)

    def _shell(self, name: str, **more: str) -> Shell:
        folder = self.folder / name
        self._run("mkdir", str(folder))
        environment = {**self.environment, **more}
        return Shell(folder, python=self.python, environment=environment, identity=self.identity)

    def _write(self, options: Mapping[str, str]) -> None:
        """Write the configuration of both ends. `ssh` in the laptop's PATH is a script, since ssh
        finds a user's own configuration in the home that the system knows.
        """
        folder, there = self.folder, self.shell.environment
        known = {name: there[name] for name in there if name.startswith(("GRIDENGINE", "PYTHON"))}
        server = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": folder / "host",
            "AuthorizedKeysFile": folder / "key.pub",
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "AllowTcpForwarding": "local",  # a tunnel needs no more
            "AllowStreamLocalForwarding": "no",
            "SetEnv": " ".join(f"{name}={value}" for name, value in known.items()),
            **options,
        }
        key = (folder / "host.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}")
        client = {
            "Host": HOST,
            "HostName": "127.0.0.1",
            "Port": self.port,
            "User": self.user.pw_name,
            "IdentityFile": folder / "key",
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": folder / "known_hosts",
        }
        for name, lines in (("sshd_config", server), ("ssh_config", client)):
            (folder / name).write_text("".join(f"{one} {at}\n" for one, at in lines.items()))
        script = folder / "bin" / "ssh"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
        script.chmod(0o755)

    def _run(self, *words: str) -> None:
        subprocess.run(words, check=True, **self.identity)

    def _is_listening(self) -> bool:
        assert self.sshd.poll() is None, (self.folder / "sshd.log").read_text()
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def links(self) -> list[psutil.Process]:
        """Return the ssh processes that come here from the laptop."""
        config = str(self.folder / "ssh_config")
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if config in words and "ssh" in Path(words[0]).name:
                found.append(process)
        return found

    def close(self) -> None:
        """End all of it."""
        sshd = psutil.Process(self.sshd.pid)
        kill_all(lambda: [*self.links(), *sshd.children(recursive=True)])
        self.sshd.kill()
        self.sshd.wait()
        for shell in (self.laptop, self.shell):
            shell.kill_all()


REQUIRED = "GRIDENGINE_REQUIRE_SSHD"
PYTHON = "GRIDENGINE_TEST_PYTHON"
WORKERS = ("--scheduler", "processes", "--max-workers", "2")
MAP = """
import gridengine
client = gridengine.Client("sweeps")
print(sum(gridengine.map(lambda x: x * x, range(100), scheduler=client)))
"""
SLOW_MAP = """
import gridengine, pathlib, sys, time
def call(number):
    if number == 3:
        pathlib.Path(begun).touch()
    while number > 3 and not pathlib.Path(go_on).exists():
        time.sleep(0.01)
    return number * number
begun, go_on = sys.argv[1:]
client = gridengine.Client("sweeps")
print(gridengine.map(call, range(40), scheduler=client, chunksize=1) == [x * x for x in range(40)])
"""
MakeNode = Callable[..., LoginNode]


@pytest.fixture
def make_node() -> Iterator[MakeNode]:
    """Make login nodes for the plain user; those of root need a Python that such a user may run."""
    reason = why_none()
    if os.getuid() == 0 and not os.environ.get(PYTHON):
        reason = f"root's own Python cannot be run by a plain user; {PYTHON} names one that can"
    if reason and os.environ.get(REQUIRED) == "1":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    user = plain_user() if os.getuid() == 0 else pwd.getpwuid(os.getuid())
    python = os.environ.get(PYTHON, sys.executable)
    with contextlib.ExitStack() as stack:

        def make(**options: str) -> LoginNode:
            folder = Path(tempfile.mkdtemp(prefix="gridengine-ssh."))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            os.chown(folder, user.pw_uid, user.pw_gid)
            made = LoginNode(folder, user, python, **options)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def node(make_node: MakeNode) -> LoginNode:
    return make_node()


@contextlib.contextmanager
def tunnel(node: LoginNode, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command that keeps a tunnel open, once the tunnel is open."""
    process = node.laptop.begin("dispatcher", *words, stdin=subprocess.DEVNULL)
    try:
        until_told(process, "stays open with this command")
        yield process
    finally:
        process.kill()
        process.wait()


def until_told(process: subprocess.Popen[str], words: str) -> str:
    """Return what a process writes, up to the line with these words."""
    assert process.stdout is not None
    told = ""
    for line in process.stdout:
        told += line
        if words in line:
            return told
    raise AssertionError(told)


def started(node: LoginNode) -> tuple[str, ...]:
    return ("start", "sweeps", "--ssh", HOST, "--remote-python", node.python, *WORKERS)


def test_a_dispatcher_that_is_started_through_ssh_is_used_and_ended_as_a_local_one(
    node: LoginNode,
) -> None:
    laptop = node.laptop
    with tunnel(node, *started(node)) as process:
        told = laptop.status("sweeps")
        assert (told["state"], told["ssh"], told["scheduler"]) == ("running", HOST, "processes")
        assert laptop.python(MAP) == "328350\n"
        assert "sweeps" in laptop.done("dispatcher", "list")
        assert '"name": "sweeps"' in laptop.done("top", "sweeps", "--once", "--json")
        assert "dispatcher sweeps has ended" in laptop.done("dispatcher", "stop", "sweeps")
        assert "dispatcher sweeps has ended" in process.communicate(timeout=60)[0]
        assert process.returncode == 0
    assert node.shell.status("sweeps")["state"] == "ended"
    assert laptop.status("sweeps")["state"] == "disconnected"
    assert node.links() == []


def test_the_keys_and_the_socket_are_closed_to_others_and_no_port_is_opened(
    node: LoginNode,
) -> None:
    with tunnel(node, *started(node)) as process:
        folder = node.laptop.dispatchers / "sweeps"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.json")}
        assert set(modes.values()) == {0o600}, modes
        [path] = (node.laptop.folder / "watch").glob("*.tunnel")
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        [link] = node.links()
        assert not [one for one in link.net_connections("tcp") if one.status == "LISTEN"]
        secret = (folder / "client.json").read_text().split('"client_secret": "')[1][:40]
        assert secret not in " ".join([*link.cmdline(), *link.environ().values()])
        process.send_signal(signal.SIGINT)
        process.wait()
        assert not path.exists()
        assert not (folder / "client.json").exists()


def test_ctrl_c_closes_the_tunnel_alone_and_connect_comes_back(node: LoginNode) -> None:
    with tunnel(node, *started(node)) as process:
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[0]
        assert process.returncode == 130
        assert "come back: gridengine dispatcher connect sweeps" in told
    status, told = node.laptop.run("dispatcher", "stop", "sweeps")
    assert status == 1
    assert "open it: gridengine dispatcher connect sweeps" in " ".join(told.split())
    assert node.shell.status("sweeps")["state"] == "running"
    with tunnel(node, "connect", "sweeps"):
        assert node.laptop.python(MAP) == "328350\n"


def test_a_map_goes_on_when_the_link_was_broken(node: LoginNode) -> None:
    begun, go_on = node.folder / "laptop" / "begun", node.folder / "laptop" / "go_on"
    with tunnel(node, *started(node)) as process:
        script = subprocess.Popen(
            [node.python, "-c", SLOW_MAP, str(begun), str(go_on)],
            env=node.laptop.environment,
            stdout=subprocess.PIPE,
            text=True,
            **node.identity,
        )
        wait_until(begun.exists)
        [link] = node.links()
        link.kill()
        go_on.touch()
        assert "is broken" in until_told(process, "is open again")
        assert script.communicate(timeout=120)[0] == "True\n"
        assert node.laptop.status("sweeps")["done"] == 40


def test_refused_forwarding_is_told_and_the_dispatcher_stays(make_node: MakeNode) -> None:
    node = make_node(AllowTcpForwarding="no")
    status, told = node.laptop.run("dispatcher", *started(node))
    assert status == 1
    assert "administratively prohibited" in told  # ssh's own words
    assert f"{HOST} forwards no connections to 127.0.0.1:" in told
    assert node.shell.status("sweeps")["state"] == "running"
