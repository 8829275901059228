"""Find out whether SQLite's write-ahead log works on a file system."""

from __future__ import annotations

import re
from pathlib import Path

NETWORKS = re.compile(
    "(?:nfs|cifs|smb|lustre|gpfs|beegfs|ceph|9p|afs|panfs|gluster|orangefs|pvfs|fuse)"
)
"""The prefixes of the types of file systems that several machines may have mounted. A write-ahead
log needs memory that all its users share (https://www.sqlite.org/wal.html).
"""
MOUNTS = Path("/proc/self/mounts")


def is_on_network(path: Path) -> bool:
    """Return whether other machines may have the file system of this file mounted; True when
    unknown.
    """
    try:
        mounts = MOUNTS.read_text(errors="surrogateescape").splitlines()
        place = path.resolve()
    except OSError:
        return True
    kinds = {}
    for line in mounts:  # the last one mounted at a place counts
        _, at, kind, *_ = line.split(" ")
        kinds[Path(at.replace("\\040", " "))] = kind
    found = next((kinds[one] for one in (place, *place.parents) if one in kinds), "nfs")
    return NETWORKS.match(found) is not None
