"""Limits of control groups, in folders laid out as the kernel's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gridengine import system
from gridengine.system import control_groups, usable_memory, usable_processors

PROCESSORS = 64


@pytest.fixture(autouse=True)
def many_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "processors", lambda: range(PROCESSORS))


def laid_out(
    monkeypatch: pytest.MonkeyPatch, folder: Path, membership: str, files: dict[str, str]
) -> str:
    """Return a file system of control groups with these files, for a process in these groups."""
    monkeypatch.setattr(system, "_memberships", membership.splitlines)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


V1 = "cpu/docker/cpu.cfs_quota_us", "cpu/docker/cpu.cfs_period_us"
TOP = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("membership", "files", "processors"),
    [
        ("0::/\n", {}, PROCESSORS),
        ("0::/\n", {"cpu.max": "max 100000\n"}, PROCESSORS),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "1000 100000\n"}, 1),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3),
        ("0::/a/b\n", {"a/b/cpu.max": "100000 100000", "a/cpu.max": "300000 100000"}, 1),
        ("3:cpu,cpuacct:/docker\n", dict(zip(V1, ("400000", "100000"), strict=True)), 4),
        ("3:cpu,cpuacct:/docker\n", dict(zip(V1, ("-1", "100000"), strict=True)), PROCESSORS),
        ("3:cpu,cpuacct:/of/the/host\n", dict(zip(TOP, ("50000", "100000"), strict=True)), 1),
        ("4:memory:/docker\n", dict(zip(V1, ("400000", "100000"), strict=True)), PROCESSORS),
        ("4:cpuset:/\n0::/\n", {"cpu.max": "200000 100000"}, 2),
    ],
)
def test_the_smallest_quota_counts(
    tmp_path: Path,
    membership: str,
    files: dict[str, str],
    processors: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert usable_processors(laid_out(monkeypatch, tmp_path, membership, files)) == processors


@pytest.mark.parametrize(
    ("membership", "files", "bytes"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "4096\n"}, 4096),
        ("0::/a/b\n", {"a/b/memory.max": "8192\n", "a/memory.max": "max\n"}, 8192),
        ("0::/of/the/host\n", {"memory.max": "4096\n"}, 4096),
        ("4:memory:/a/b\n", {"memory/a/memory.limit_in_bytes": "4096\n"}, 4096),
        ("3:cpu:/a\n", {"memory/a/memory.limit_in_bytes": "4096\n"}, None),
        ("", {"memory.max": "4096\n"}, None),
    ],
)
def test_a_limit_of_memory_holds_for_the_groups_below(
    tmp_path: Path,
    membership: str,
    files: dict[str, str],
    bytes: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    top = laid_out(monkeypatch, tmp_path, membership, files)
    of_machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert usable_memory(top) == (bytes or of_machine)


def test_the_groups_of_a_controller_are_yielded_from_the_innermost_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listing = "9:cpu:/\n4:memory:/sge/4711.1\n0::/job\n"
    monkeypatch.setattr(system, "_memberships", listing.splitlines)
    folders = ["memory/sge/4711.1", "memory/sge", "memory", "job"]
    assert [*control_groups("memory", "/g")] == [*(f"/g/{one}" for one in folders), "/g"]
