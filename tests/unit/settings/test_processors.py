"""Quotas of control groups, in folders laid out as the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.settings.processors import quota_of


def laid_out(folder: Path, **files: str) -> Path:
    """Return a file system of control groups with these files."""
    for name, text in files.items():
        path = folder / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "groups"


V1 = "cpu/docker/cpu.cfs_quota_us", "cpu/docker/cpu.cfs_period_us"
TOP = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("membership", "files", "processors"),
    [
        ("0::/\n", {}, None),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "1000 100000\n"}, 1),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3),
        ("0::/a/b\n", {"a/b/cpu.max": "100000 100000", "a/cpu.max": "300000 100000"}, 1),
        ("3:cpu,cpuacct:/docker\n", dict(zip(V1, ("400000", "100000"), strict=True)), 4),
        ("3:cpu,cpuacct:/docker\n", dict(zip(V1, ("-1", "100000"), strict=True)), None),
        ("3:cpu,cpuacct:/of/the/host\n", dict(zip(TOP, ("50000", "100000"), strict=True)), 1),
        ("4:memory:/docker\n", dict(zip(V1, ("400000", "100000"), strict=True)), None),
        ("4:cpuset:/\n0::/\n", {"cpu.max": "200000 100000"}, 2),
    ],
)
def test_the_smallest_quota_counts(
    tmp_path: Path, membership: str, files: dict[str, str], processors: int | None
) -> None:
    assert quota_of(laid_out(tmp_path, **files), membership.splitlines()) == processors


def test_a_kernel_without_control_groups_has_no_quota(tmp_path: Path) -> None:
    assert quota_of(tmp_path, []) is None
