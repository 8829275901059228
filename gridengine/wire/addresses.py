"""The addresses of this machine, and whether a host's resolves."""

from __future__ import annotations

import socket

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
