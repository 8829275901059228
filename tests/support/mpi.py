"""A program whose ranks speak to each other by a real MPI."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys

import pytest

ADDS = """
from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
if world.rank == 0:
    print(total, world.size)
"""
"""Prints the sum of the numbers of all ranks, from 1, and how many they are."""
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Variables with which Open MPI starts ranks for root."""


@functools.cache
def _why_none() -> str:
    if shutil.which("mpirun") is None:
        return "there is no mpirun (Debian: openmpi-bin)"
    return "" if _python() else "no Python here has mpi4py (Debian: python3-mpi4py)"


@functools.cache
def _python() -> str:
    """Return a Python that has mpi4py, empty if there is none."""
    for python in (sys.executable, "/usr/bin/python3"):
        command = [python, "-c", "import mpi4py"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return python
    return ""


def adding_ranks() -> list[str]:
    """Return the words of a program that prints "6 3" as three ranks; skip the test without an MPI
    to run it.
    """
    reason = _why_none()
    if reason and os.environ.get("GRIDENGINE_REQUIRE_MPI") == "1":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    return [_python(), "-c", ADDS]
