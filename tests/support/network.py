"""A network of the tests' own, whose link, speed and addresses they change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import gridengine
from tests.support.processes import completed

PACKAGE_PARENT = Path(gridengine.__file__).parents[1]
NETWORK_TOOLS = os.getuid() == 0 and shutil.which("ip") is not None
needs_network = pytest.mark.skipif(
    not NETWORK_TOOLS, reason="needs root and the `ip` command, to make a network namespace"
)


class Network:
    """A network namespace, joined to this one by a cable of its own."""

    def __init__(self) -> None:
        self.name = f"gt{os.getpid()}"
        self.ours, self.theirs = f"{self.name}a", f"{self.name}b"
        third, fourth = self._third, self._fourth = divmod(
            os.getpid() % 2**14 * 4, 256
        )  # another's network must not have the same addresses
        self.address, self.other = (f"10.213.{third}.{fourth + end}" for end in (1, 2))
        self._ip(f"link add {self.ours} type veth peer name {self.theirs}")
        self._ip(f"netns add {self.name}")
        self._ip(f"link set {self.theirs} netns {self.name}")
        self._ip(f"addr add {self.address}/30 dev {self.ours}")
        self._ip(f"link set {self.ours} up")
        self._ip(f"-n {self.name} addr add {self.other}/30 dev {self.theirs}")
        self._ip(f"-n {self.name} link set {self.theirs} up")

    def _ip(self, arguments: str) -> None:
        done = completed(["ip", *arguments.split()])
        if done.returncode:
            pytest.skip(
                f"no network namespace can be made here: ip {arguments}: {done.stderr.strip()}"
            )

    def link(self, state: str) -> None:
        self._ip(f"link set {self.ours} {state}")

    def move(self) -> None:
        """Have the other end lose its address, and get one of another network."""
        ours, theirs = (f"10.214.{self._third}.{self._fourth + end}" for end in (1, 2))
        self._ip(f"addr add {ours}/30 dev {self.ours}")
        self._ip(f"-n {self.name} addr del {self.other}/30 dev {self.theirs}")
        self._ip(f"-n {self.name} addr add {theirs}/30 dev {self.theirs}")
        self._ip(f"-n {self.name} route add default via {ours}")

    def connections(self) -> int:
        """Return how many TCP connections of the other end's are established."""
        tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        lines = completed(["ip", "netns", "exec", self.name, "cat", *tables]).stdout.splitlines()
        return sum(line.split()[3] == "01" for line in lines)

    def slow_down(self, rate: str) -> None:
        if shutil.which("tc") is None:
            pytest.skip("needs the `tc` command")
        limit = (
            f"tc -n {self.name} qdisc add dev {self.theirs} root tbf rate {rate} burst 64kb "
            "latency 50ms"
        )
        done = completed(limit.split())
        if done.returncode:
            pytest.skip(f"this kernel cannot slow a line down: {done.stderr.strip()}")

    def start(self, script: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                self.name,
                sys.executable,
                "-c",
                textwrap.dedent(script),
                *arguments,
            ],
            env={**os.environ, "PYTHONPATH": str(PACKAGE_PARENT)},
        )

    def close(self) -> None:
        subprocess.run(["ip", "netns", "del", self.name], check=False)
        subprocess.run(["ip", "link", "del", self.ours], check=False, capture_output=True)
