"""Ports that stay free while who listens there is away: the kernel gives them to nobody."""

from __future__ import annotations

import random
from pathlib import Path

COUNT = 100


def first_given() -> int:
    """Return the first of the ports that the kernel gives to who asks for any."""
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


def some_ports() -> str:
    """Return the setting `ports`, with some that hardly another test has."""
    first = random.randrange(first_given() // 2, first_given() - COUNT)
    return f"{first}-{first + COUNT - 1}"
