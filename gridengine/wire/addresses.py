"""The addresses and ports of this machine; whether a host's name resolves."""

from __future__ import annotations

import socket
from pathlib import Path

from gridengine.errors import ConfigurationError


def own_addresses() -> list[str]:
    """Return the addresses at which other machines can reach this one, IPv4 first, and the loopback
    address at the end.
    """
    import psutil

    found = [
        entry.address.split("%")[0]
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
        and not entry.address.lower().startswith("fe80")
    ]
    outer = [
        address
        for address in dict.fromkeys(found)
        if not (address.startswith("127.") or address == "::1")
    ]
    return [*sorted(outer, key=lambda address: ":" in address), "127.0.0.1"]


def lasting_ports(count: int = 100) -> list[int]:
    """Return random ports below the range that the kernel assigns by itself (ip(7),
    ip_local_port_range). Such a port is most likely free again when a dispatcher is started again.
    Empty when the kernel's range begins at 1024.
    """
    import random  # here: only stand-alone dispatchers need it, and everybody would wait for it

    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(max(1024, first // 2), first)
    return random.sample(ports, min(count, len(ports)))


def resolve(host: str) -> None:
    """Check that a host's name or address resolves here.

    Raises:
        ConfigurationError: it does not.
    """
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:  # UnicodeError: it can be no name, such as "a..b"
        from gridengine.settings.values import said_by  # here, since workers read no settings

        raise ConfigurationError(
            f"host {host!r} (said by {said_by('host')}) does not resolve: {error}",
            hint="set GRIDENGINE_HOST to an address of this machine",
        ) from None
