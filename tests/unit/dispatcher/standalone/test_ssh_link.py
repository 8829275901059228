"""A link: the command of ssh, and what is made of the far end's answer and of its absence."""

from __future__ import annotations

import io
import shlex
import subprocess
from typing import Any

import msgspec
import pytest

from gridengine._version import __version__
from gridengine.dispatcher.standalone import ssh_link
from gridengine.dispatcher.standalone.dispatcher_folder import FarMachine
from gridengine.dispatcher.standalone.ssh_link import MARK, FarEndAnswer, SshLink, ssh_command
from gridengine.errors import ClusterError, ConfigurationError, GridEngineError, VersionMismatch
from gridengine.serialize.byte_code import PYTHON
from tests.support.far_facts import FACTS

FAR = FarMachine("me@login", "~/env/bin/python")
ANSWER = FarEndAnswer(__version__, PYTHON, facts=FACTS)


class FakeSsh:
    """An ssh that prints and ends."""

    def __init__(self, output: bytes, status: int) -> None:
        self.stdin, self.stdout = io.BytesIO(), io.BytesIO(output)
        self.status = status

    def wait(self, timeout: float | None = None) -> int:
        return self.status

    @classmethod
    def runs(cls, monkeypatch: pytest.MonkeyPatch, output: bytes, status: int = 0) -> FakeSsh:
        made = cls(output, status)
        monkeypatch.setattr(subprocess, "Popen", lambda *args, **options: made)
        return made


def line(answer: FarEndAnswer) -> bytes:
    return MARK + msgspec.json.encode(answer) + b"\n"


def options(*words: str, forward: str = "", asks: bool = True) -> tuple[list[str], str]:
    """Return the options of a link's command, and the words for the far machine's shell."""
    command = ssh_command(FAR, "sweeps", words, forward, asks=asks)
    assert (command[0], command[-3], command[-2]) == ("ssh", "--", "me@login")
    return command[1:-3], command[-1]


def test_a_link_is_the_user_s_own_ssh_that_notices_a_dead_connection() -> None:
    given, _ = options()
    assert {"-oServerAliveInterval=15", "-oExitOnForwardFailure=yes"} <= set(given)
    assert not [one for one in given if one in ("-F", "-i", "-S") or "ControlPath" in one]
    assert "-L" not in given


def test_ssh_asks_for_nothing_without_a_terminal() -> None:
    assert "-oBatchMode=yes" in options(asks=False)[0]
    assert "-oBatchMode=yes" not in options(asks=True)[0]


def test_ssh_forwards_a_socket_and_no_port() -> None:
    given, _ = options(forward="/run/me/sweeps.tunnel:127.0.0.1:4711")
    assert given[-2:] == ["-L", "/run/me/sweeps.tunnel:127.0.0.1:4711"]


def test_the_far_machine_s_shell_reads_the_python_and_takes_each_argument_as_it_is() -> None:
    _, command = options("sweeps", "--native", "-l 'a b' $HOME; ls")
    assert command.startswith("~/env/bin/python -m gridengine.cli.far_end ")
    assert shlex.split(command)[3:] == [
        *(__version__, PYTHON, "sweeps", "sweeps", "--native"),
        "-l 'a b' $HOME; ls",
    ]


def test_the_answer_may_stand_between_lines_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSsh.runs(monkeypatch, b"Welcome!\n\n" + line(ANSWER))
    assert SshLink(FAR, "sweeps").facts == FACTS


@pytest.mark.parametrize(
    ("answer", "status", "kind", "words"),
    [
        (None, 255, ClusterError, "ssh me@login has failed.*try: .*ssh me@login true"),
        (None, -9, ClusterError, "ssh me@login has failed"),
        (None, 127, ConfigurationError, "me@login cannot run ~/env/bin/python.*--remote-python"),
        (None, 1, ConfigurationError, f"cannot run gridengine {__version__}.*pip install"),
        (FarEndAnswer("0.0.1", PYTHON), 1, VersionMismatch, "has gridengine 0.0.1 on Python"),
        (FarEndAnswer(__version__, "2.7"), 1, VersionMismatch, "on Python 2.7, and here is"),
        (
            FarEndAnswer(__version__, PYTHON, error="it does not run"),
            *(1, ConfigurationError, "at me@login: it does not run.*start sweeps --ssh me@login"),
        ),
        (
            FarEndAnswer(__version__, PYTHON, error="it is shared", hint="start it by hand"),
            *(1, ConfigurationError, "at me@login: it is shared.*try: start it by hand"),
        ),
        (FarEndAnswer(__version__, PYTHON), 1, ConfigurationError, "did not start.*connect sweeps"),
    ],
)
def test_a_fault_of_the_link_is_told_with_the_command_to_type(
    monkeypatch: pytest.MonkeyPatch,
    answer: FarEndAnswer | None,
    status: int,
    kind: type[GridEngineError],
    words: str,
) -> None:
    made = FakeSsh.runs(monkeypatch, b"Welcome!\n" + (line(answer) if answer else b""), status)
    with pytest.raises(kind, match=f"(?s){words}"):
        SshLink(FAR, "sweeps", ("sweeps",))
    assert made.stdin.closed


def test_a_missing_ssh_is_told_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def popen(*args: Any, **options: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(ssh_link.subprocess, "Popen", popen)
    with pytest.raises(ConfigurationError, match=r"no command ssh here(?s:.*)OpenSSH's client"):
        SshLink(FAR, "sweeps")
