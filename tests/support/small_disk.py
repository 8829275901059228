"""A disk of a few megabytes, to be filled."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, *, size: str = "4m", owner: int = 0) -> Iterator[Path]:
    """Have a file system of that size at a folder that is made for it; skip where it cannot be had:
    only root may mount one.
    """
    if os.getuid():
        pytest.skip("only root may mount a file system")
    folder.mkdir()
    options = f"size={size},mode=700,uid={owner}"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)],
        check=False,
        capture_output=True,
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted: {done.stderr.decode()}")
    try:
        yield folder
    finally:
        # Who still has a file open there keeps nobody.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


@contextlib.contextmanager
def without_more_files(folder: Path) -> Iterator[None]:
    """Have such a disk take no file more than it has while the block runs."""
    found = os.statvfs(folder)
    _allow_files(folder, found.f_files - found.f_ffree)
    try:
        yield
    finally:
        _allow_files(folder, found.f_files)


def _allow_files(folder: Path, count: int) -> None:
    subprocess.run(["mount", "-o", f"remount,nr_inodes={count}", str(folder)], check=True)


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Fill the file system of a folder while the block runs."""
    filling = folder / "filling"
    with contextlib.suppress(OSError), filling.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))
    try:
        yield
    finally:
        filling.unlink()
