"""A laptop without the cluster's home, which comes in through a real sshd, sleeps and wakes."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support.hosts import LOGIN, SlurmOfHosts, as_root, cable_out, enter
from tests.support.processes import completed
from tests.support.scenario import PRELUDE
from tests.support.waiting import wait_until

pytestmark = pytest.mark.hosts

LAPTOP = "node2"
"""A node that gets a home of its own; all workers are on the other."""
PORT = "2022"
SERVER = f"""Port {PORT}
ListenAddress 10.77.0.1
HostKey /etc/ssh/host
AuthorizedKeysFile /etc/ssh/laptop.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
"""


class Laptop:
    """The laptop, and the sshd of `login`, which runs as the user."""

    def __init__(self, slurm: SlurmOfHosts) -> None:
        user, home = slurm.user.pw_name, slurm.user.pw_dir
        self.slurm, self.home = slurm, home
        as_root(LAPTOP, "mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/home")
        as_root(LAPTOP, "install", "-d", "-o", user, home, f"{home}/.ssh")
        key = self.run("sh", "-c", "ssh-keygen -q -t ed25519 -N '' -f key && cat key.pub")
        as_root(LOGIN, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/etc/ssh/host")
        as_root(LOGIN, "chown", user, "/etc/ssh/host")
        for name, text in (("laptop.pub", key), ("sshd_of_tests", SERVER)):
            as_root(LOGIN, "install", "-m", "644", "/dev/stdin", f"/etc/ssh/{name}", input=text)
        known = as_root(LOGIN, "cat", "/etc/ssh/host.pub")
        config = f"Host {LOGIN}\n Port {PORT}\n IdentityFile {home}/key\n ServerAliveInterval 5\n"
        self._write(".ssh/known_hosts", f"[{LOGIN}]:{PORT},[10.77.0.1]:{PORT} {known}")
        self._write(".ssh/config", config)
        words = [
            *slurm.words_on(LOGIN, "/"),
            "/usr/sbin/sshd",
            "-D",
            "-f",
            "/etc/ssh/sshd_of_tests",
        ]
        self.sshd = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        wait_until(lambda: self.run("ssh", LOGIN, "echo", "in") == "in\n")

    def _write(self, name: str, text: str) -> None:
        owner = ("-o", self.slurm.user.pw_name, "-m", "644")
        as_root(LAPTOP, "install", *owner, "/dev/stdin", f"{self.home}/{name}", input=text)

    def command(self, *words: str) -> list[str]:
        """Return the words of a command that runs there, with files in the laptop's own home."""
        variables = [f"HOME={self.home}", f"GRIDENGINE_WATCH_DIRECTORY={self.home}/watch"]
        return [*self.slurm.words_on(LAPTOP, self.home), *variables, *words]

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start a command there; what it writes, errors included, is to be read."""
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(self.command(*words), stdin=subprocess.DEVNULL, text=True, **output)

    def run(self, *words: str) -> str:
        """Run a command there, and return what it writes."""
        return self.begin(*words).communicate(timeout=100)[0]

    @contextlib.contextmanager
    def tunnel(self) -> Iterator[subprocess.Popen[str]]:
        """Start a dispatcher on `login` whose workers are on node1; give the command that keeps
        the tunnel, once it is open.
        """
        python = self.slurm.python
        words = ["--ssh", LOGIN, "--remote-python", python, "--scheduler", "slurm"]
        words += ["--max-workers", "2", "--native=--nodelist=node1"]
        process = self.begin(python, "-m", "gridengine", "dispatcher", "start", "sweeps", *words)
        assert process.stdout is not None
        told = ""
        while "stays open with this command" not in told:
            line = process.stdout.readline()
            assert line, told
            told += line
        yield process
        process.wait(60)

    def signal(self, name: str) -> None:
        """Send all of the user's processes there a signal."""
        as_root(LAPTOP, "pkill", f"-{name}", "-u", self.slurm.user.pw_name)

    def close(self) -> None:
        for host in (LAPTOP, LOGIN):
            completed([*enter(host), "pkill", "-KILL", "-u", self.slurm.user.pw_name])
        self.sshd.wait()
        as_root(LAPTOP, "umount", "--lazy", "/home")
        as_root(LOGIN, "sh", "-c", "rm /etc/ssh/host /etc/ssh/host.pub")


@pytest.fixture
def laptop(slurm: SlurmOfHosts) -> Iterator[Laptop]:
    made = Laptop(slurm)
    yield made
    made.close()


MAP = """
with gridengine.Client("sweeps") as client:
    tell(results=gridengine.map(hold, range(4), [FOLDER_THERE] * 4, scheduler=client, chunksize=1))
"""


@pytest.mark.parametrize("seconds", [20, pytest.param(200, marks=pytest.mark.long)])
def test_a_map_of_a_laptop_outlives_its_sleep(laptop: Laptop, seconds: int) -> None:
    slurm, shared = laptop.slurm, laptop.slurm.folder
    with laptop.tunnel() as tunnel:
        text = f"{PRELUDE}\nFOLDER_THERE = {str(shared)!r}\n{MAP}"
        script = laptop.begin(slurm.python, "-c", text)
        wait_until(lambda: len([*shared.glob("began *")]) == 2)
        with cable_out(LAPTOP):
            laptop.signal("STOP")
            (shared / "go").touch()
            time.sleep(seconds)
            laptop.signal("CONT")
            for command in (tunnel, script):
                command.send_signal(signal.SIGCONT)  # nsenter stops with what it runs
        assert '{"results": [0, 1, 2, 3]}\n' in script.communicate(timeout=200)[0]
        assert len([*shared.glob("began *")]) == 4
        stop = laptop.begin(slurm.python, "-m", "gridengine", "dispatcher", "stop", "sweeps")
        assert "dispatcher sweeps has ended" in stop.communicate(timeout=100)[0]
        assert "dispatcher sweeps has ended" in tunnel.communicate(timeout=100)[0]
    slurm.nothing_is_left("node1")
