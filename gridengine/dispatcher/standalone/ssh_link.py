"""One `ssh` of the user's, which runs a program at the dispatcher's machine, the far end, and
forwards a socket of this machine to the dispatcher.

    ssh -L SOCKET:127.0.0.1:PORT HOST 'PYTHON -m gridengine.cli.far_end ...'

    clients --SOCKET--> ssh ==== sshd --TCP--> dispatcher
    here <--stdout-- answer: version, keys, where the dispatcher listens -- far end
    here --stdin, open as long as this end lives--------------------------> far end

The socket is a Unix socket in a folder of mode 0700, so no other user of this machine can connect,
and no port is opened. What goes through it is encrypted twice, by CURVE and by ssh. The keys come
by the far end's standard output, and stand in no argument.

`ssh` runs as the user has it: with their configuration, agent, jump hosts, and a connection that a
`ControlMaster` of theirs shares. `ControlMaster=no` only keeps others from sharing this one, which
would end with it.

Rejected:

- A library, such as paramiko. It reads a part of the configuration, and knows no hardware tokens.
- Learning the dispatcher's port first, and forwarding through a `ControlMaster` of our own. It
  asks for a password once instead of twice, but ignores the master that the user has, for which a
  second factor was typed already.
- A relay over standard input and output in the place of `-L`. It would need a protocol of its own.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

from gridengine._version import __version__
from gridengine.dispatcher.standalone.dispatcher_folder import FarMachine, StartOptions
from gridengine.errors import ClusterError, ConfigurationError, GridEngineError, VersionMismatch
from gridengine.journal.lock_file import Holder
from gridengine.serialize.byte_code import PYTHON
from gridengine.wire.connection_file import ClientConnection

MODULE = "gridengine.cli.far_end"
MARK = b"gridengine-far-end: "
"""Begins the line of the answer. The far machine's shell may print lines of its own before it."""
ENDED, DIED, MOVED = 103, 104, 105
"""The exit statuses of the far end when the dispatcher has ended in order, was killed, or runs in
another process or at another port now.
"""
SSH_FAILED, CANNOT_RUN = 255, (126, 127)
"""The exit statuses of ssh for its own errors (ssh(1)), and of shells for a missing command."""
CLOSE_SECONDS, GREETING_SECONDS = 2.0, 20.0
OPTIONS = (
    ("ServerAliveInterval", "15"),
    ("ServerAliveCountMax", "3"),
    ("ExitOnForwardFailure", "yes"),
    ("ControlMaster", "no"),
    ("RemoteCommand", "none"),
    ("StreamLocalBindMask", "0177"),
)


class Facts(msgspec.Struct, frozen=True):
    """The far end's description of the dispatcher. `target` is the address, as `host:port`, that
    reaches the dispatcher from the far end's machine.
    """

    target: str
    run_id: str
    holder: Holder
    options: StartOptions
    client: ClientConnection
    watcher: ClientConnection


class FarEndAnswer(msgspec.Struct, frozen=True):
    """The far end's answer. Without `facts`, `error` says why, and `hint` what to try, if not a
    start; when `error` is empty too, the far end has written the reason to its standard error.
    """

    version: str
    python: str
    error: str = ""
    hint: str = ""
    facts: Facts | None = None


def ssh_command(
    far: FarMachine, name: str, words: tuple[str, ...], forward: str, *, asks: bool
) -> list[str]:
    """Return the command of a link.

    words: how the far end starts the dispatcher; empty if it runs already.
    forward: the argument of `-L`, if any.
    asks: whether `ssh` may ask the user for a password, at a terminal.
    """
    options = [f"-o{option}={value}" for option, value in OPTIONS]
    options += [] if asks else ["-oBatchMode=yes"]
    options += ["-L", forward] if forward else []
    said = shlex.join([__version__, PYTHON, name, *words])
    return ["ssh", "-T", *options, "--", far.ssh, f"{far.python} -m {MODULE} {said}"]


class SshLink:
    """A running `ssh` with its far end. Close it.

    Raises:
        ClusterError: ssh has failed, and may succeed later.
        ConfigurationError: there is no ssh, or the far machine lacks what is needed.
        VersionMismatch: it has another version of gridengine, or of Python.
    """

    def __init__(
        self, far: FarMachine, name: str, words: tuple[str, ...] = (), *, forward: str = ""
    ) -> None:
        self._far = far
        command = ssh_command(far, name, words, forward, asks=sys.stdin.isatty())
        try:
            # Standard error is the user's own: ssh's words, and its questions, are seen there.
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except FileNotFoundError:
            raise ConfigurationError(
                "there is no command ssh here", hint="install OpenSSH's client"
            ) from None
        try:
            self.facts = self._facts(self._answer(), name, started=bool(words))
        except BaseException:
            self.close()
            raise

    def _answer(self) -> FarEndAnswer:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                return msgspec.json.decode(line.removeprefix(MARK), type=FarEndAnswer)
        raise self._no_answer(self._process.wait())

    def _no_answer(self, status: int) -> GridEngineError:
        """Return the error for an ssh that has ended without an answer, which wrote the reason to
        standard error.
        """
        host, python = self._far.ssh, self._far.python
        if status == SSH_FAILED or status < 0:
            hint = f"see that this works: ssh {host} true"
            return ClusterError(f"ssh {host} has failed; it says why above", hint=hint)
        other = "name the Python there that has gridengine: --remote-python '~/env/bin/python'"
        if status in CANNOT_RUN:
            return ConfigurationError(f"{host} cannot run {python}", hint=other)
        install = self._far.command("pip", "install", f"gridengine=={__version__}")
        return ConfigurationError(
            f"{python} at {host} cannot run gridengine {__version__}; it says why above",
            hint=f"{other}; or install it: {install}",
        )

    def _facts(self, answer: FarEndAnswer, name: str, *, started: bool) -> Facts:
        host, mine = self._far.ssh, (__version__, PYTHON)
        if (answer.version, answer.python) != mine:
            raise VersionMismatch(
                f"{host} has gridengine {answer.version} on Python {answer.python}, and here is "
                f"gridengine {__version__} on Python {PYTHON}",
                hint="install the same at both ends; or name another Python there: --remote-python",
            )
        if answer.facts is not None:
            return answer.facts
        if answer.error:
            start = f"start it: gridengine dispatcher start {name} --ssh {host}"
            raise ConfigurationError(f"at {host}: {answer.error}", hint=answer.hint or start)
        assert started
        raise ConfigurationError(
            f"{host} did not start the dispatcher {name!r}; it says why above",
            hint=f"if it runs there already: gridengine dispatcher connect {name} --ssh {host}",
        )

    def wait(self) -> int:
        """Wait until the link ends; return the far end's exit status, or `SSH_FAILED`, or that of
        a killed ssh.
        """
        return self._process.wait()

    def close(self) -> None:
        """End ssh and the far end. May be called twice."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_SECONDS)
            return
        self._process.terminate()  # the connection is dead, and ssh waits for the other end
        self._process.wait()


def check_forwarded(path: Path, target: str, host: str) -> None:
    """Check that the dispatcher answers at a forwarded socket. ssh accepts connections there also
    when the other end refuses to forward them.

    Raises:
        ConfigurationError: the connection is closed again.
    """
    with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
        sock.settimeout(GREETING_SECONDS)
        sock.connect(str(path))
        if sock.recv(1):  # ZeroMQ greets first (RFC 23)
            return
    raise ConfigurationError(
        f"{host} forwards no connections to {target}; ssh says why above",
        hint="its sshd must allow that (sshd_config: AllowTcpForwarding local, PermitOpen)",
    )
