"""The addresses of this machine, and its ports; whether a host's address resolves."""

from __future__ import annotations

import socket
from pathlib import Path

from gridengine.errors import ConfigurationError


def own_addresses() -> list[str]:
    """Return the addresses of this machine that another may reach it at, the host name's first;
    loopback only when there is no other.
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
    """Return some ports, by chance, of those that the kernel gives to nobody who asks for any
    (ip(7), ip_local_port_range): one of them is most likely free again for who listened there. None
    where it gives all, from 1024 on.
    """
    import random  # here, since few need it, and all would wait for it

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
    except (OSError, UnicodeError) as error:  # the latter of what can be no name, as "a..b"
        from gridengine.settings.values import said_by  # here, since workers read no settings

        raise ConfigurationError(
            f"host {host!r} (said by {said_by('host')}) does not resolve: {error}",
            hint="set GRIDENGINE_HOST to an address of this machine",
        ) from None
