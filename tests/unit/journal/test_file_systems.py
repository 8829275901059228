"""Which file systems other machines may have mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.journal import writer
from gridengine.journal.writer import is_on_network

TABLE = """\
/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/scratch\\040disk xfs rw 0 0
tank /data fuse.sshfs rw 0 0
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    table = tmp_path / "mounts"
    table.write_text(TABLE)
    monkeypatch.setattr(writer, "MOUNTS", table)
    return table


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/var/a.sqlite", False),
        ("/home/me/a.sqlite", True),
        ("/home/scratch disk/a.sqlite", False),
        ("/data/a.sqlite", True),
    ],
)
def test_the_innermost_mount_counts(mounts: Path, path: str, shared: bool) -> None:
    assert is_on_network(Path(path)) is shared


def test_what_is_not_known_counts_as_shared(mounts: Path) -> None:
    mounts.unlink()
    assert is_on_network(Path("/var/a"))


@pytest.mark.parametrize(("kind", "mode"), [("ext4", "wal"), ("nfs", "delete")])
def test_a_networks_file_system_gets_no_log_in_shared_memory(
    mounts: Path, tmp_path: Path, kind: str, mode: str
) -> None:
    mounts.write_text(f"x / {kind} rw 0 0\n")
    connection = writer.open_connection(str(tmp_path / "a.sqlite"))
    assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)
    connection.close()
