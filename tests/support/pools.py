"""Batch systems that one test module brings up and takes down, and the plain user who uses them."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.clusters import plain_user
from tests.support.places import ROOT
from tests.support.processes import completed

SOFTWARE = Path("/var/lib/gridengine-test")


@dataclass(frozen=True, slots=True)
class Pool:
    """A batch system of `schedulers/NAME`, used by `user` in `folder`, below the user's home."""

    name: str
    user: pwd.struct_passwd
    folder: Path

    @property
    def commands(self) -> Path:
        """The folder of its commands."""
        return SOFTWARE / self.name / "bin"

    def call(self, script: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run `up` or `down` as this process's own user, who is root."""
        return completed([ROOT / "schedulers" / self.name / script, *options], timeout=500)

    def bring(self, script: str, *options: str) -> str:
        """Run `up --yes` or `down --yes`, and return what it says."""
        done = self.call(script, *options, "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command as the user, and return what it prints to both outputs."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={
                "HOME": self.user.pw_dir,
                "USER": self.user.pw_name,
                "LANG": "C.UTF-8",
                "PATH": f"{self.commands}:/usr/bin:/bin",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
            user=self.user.pw_uid,
            group=self.user.pw_gid,
            extra_groups=[],
        )
        assert done.returncode == 0 or not check, done.stdout
        return done.stdout

    def script(self, name: str, text: str) -> Path:
        """Write a shell script that everybody may run, and return its path."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path


def processes(name: str) -> set[int]:
    """Return the living processes of this batch system's programs."""
    below = f"{SOFTWARE / name}/usr/"
    return {
        process.pid
        for process in psutil.process_iter(["exe", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and (process.info["exe"] or "").startswith(below)
    }


def check_foreign_configuration_is_left_alone(pool: Pool, configuration: Path) -> None:
    """Check that `up` refuses where the configuration is another's, and changes none of it."""
    configuration.write_text("# of this site\n")
    refused = pool.call("up", "--yes")
    left = configuration.read_text()
    configuration.unlink()
    assert refused.returncode == 1
    assert "leaving it alone" in refused.stderr
    assert left == "# of this site\n"


def pool_of(name: str, mark: Path) -> Iterator[Pool]:
    """Give a batch system that is up, and leave it as it was found: up, if its mark is there."""
    if os.getuid() or shutil.which("apt-get") is None:
        pytest.skip(f"schedulers/{name}/up needs root and Debian's packages")
    user = plain_user()
    folder = Path(tempfile.mkdtemp(prefix="gridengine-pool.", dir=user.pw_dir))
    os.chown(folder, user.pw_uid, user.pw_gid)
    pool = Pool(name, user, folder)
    was_up = mark.exists()
    pool.bring("up")
    yield pool
    pool.bring("up" if was_up else "down")
    shutil.rmtree(folder)
