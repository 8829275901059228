"""A stand-alone dispatcher on a login node, used from a laptop through ssh: a real sshd, and a
plain user.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.clusters import plain_user
from tests.support.ssh_server import HOST, LoginNode, why_none
from tests.support.waiting import wait_until

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
OTHER_VERSION = """#!/bin/sh
exec {python} -c "
import sys, runpy, gridengine._version as version
version.__version__ = '0.0.1'
del sys.argv[1:3]
runpy.run_module('gridengine.cli.far_end', run_name='__main__')
" "$@"
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


def test_a_dispatcher_that_is_restarted_there_stays_connected(node: LoginNode) -> None:
    with tunnel(node, *started(node)) as process:
        node.shell.done("dispatcher", "restart", "sweeps")
        until_told(process, "is open again")
        assert node.laptop.python(MAP) == "328350\n"


def test_another_version_is_told_before_anything_is_started(node: LoginNode) -> None:
    other = node.folder / "python"
    other.write_text(OTHER_VERSION.format(python=node.python))
    other.chmod(0o755)
    status, told = node.laptop.run(
        "dispatcher", "start", "sweeps", "--ssh", HOST, "--remote-python", str(other), *WORKERS
    )
    assert status == 1
    assert f"{HOST} has gridengine 0.0.1 on Python" in told
    assert "install the same at both ends" in told
    assert not node.shell.dispatchers.exists()
    assert not (node.laptop.dispatchers / "sweeps").exists()


def test_refused_forwarding_is_told_and_the_dispatcher_stays(make_node: MakeNode) -> None:
    node = make_node(AllowTcpForwarding="no")
    status, told = node.laptop.run("dispatcher", *started(node))
    assert status == 1
    assert "administratively prohibited" in told  # ssh's own words
    assert f"{HOST} forwards no connections to 127.0.0.1:" in told
    assert node.shell.status("sweeps")["state"] == "running"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--remote-python", "/no/python"), "login cannot run /no/python"),
        (("--remote-python", "{python} -S -E"), "cannot run gridengine"),
        (("--remote-python", "{python}", "--max-workers", "many"), "'many' is not a valid integer"),
        (("--remote-python", "{python}", "--queue", "all.q"), "did not start the dispatcher"),
    ],
)
def test_a_missing_program_on_the_far_machine_is_told(
    node: LoginNode, words: tuple[str, ...], told: str
) -> None:
    given = [word.format(python=node.python) for word in words]
    status, said = node.laptop.run("dispatcher", "start", "sweeps", "--ssh", HOST, *given)
    assert status == 1
    assert told in " ".join(said.split())
    assert node.links() == []


def test_a_user_whom_the_machine_refuses_reads_the_words_of_ssh(node: LoginNode) -> None:
    (node.folder / "key.pub").unlink()
    status, told = node.laptop.run("dispatcher", *started(node))
    assert status == 1
    assert "Permission denied (publickey)" in told
    assert f"see that this works: ssh {HOST} true" in " ".join(told.split())
