"""The hosts of the Grid Engine job that this process runs in."""

from __future__ import annotations

from pathlib import Path

from gridengine.errors import ConfigurationError


def rank_hosts(file: Path, ranks: int, cores: int) -> list[tuple[str, int]]:
    """Return the hosts of a parallel environment, each with as many of the ranks as its slots have
    cores for (sge_pe(5), $pe_hostfile).

    Raises:
        ConfigurationError: they have cores for fewer ranks.
    """
    lines = [line.split() for line in file.read_text().splitlines()]
    left, hosts = ranks, list[tuple[str, int]]()
    for name, slots, *_ in lines:
        count = min(left, int(slots) // cores)
        left -= count
        if count:
            hosts.append((name, count))
    if left:
        shares = ", ".join(f"{slots} on {name}" for name, slots, *_ in lines)
        raise ConfigurationError(
            f"{ranks} ranks of {cores} cores each do not fit: Grid Engine gives {shares}",
            hint="use a parallel environment whose allocation_rule is a multiple of the cores of "
            "a rank, or $pe_slots",
        )
    return hosts
