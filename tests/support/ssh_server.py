"""A login node: a real sshd on this machine that lets one plain user in by a key, and the laptop
from which they come.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.support.clusters import user_environment
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
