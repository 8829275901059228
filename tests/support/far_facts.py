"""What a far end tells of a dispatcher."""

from __future__ import annotations

from msgspec.structs import replace

from gridengine.dispatcher.standalone.dispatcher_folder import StartOptions
from gridengine.dispatcher.standalone.ssh_link import Facts
from gridengine.journal.lock_file import Holder
from gridengine.wire.connection_file import ClientConnection

CLIENT = ClientConnection(
    name="sweeps",
    addresses=("tcp://10.0.0.7:4711", "tcp://127.0.0.1:4711"),
    version="0.1.0",
    host="login1",
    pid=4242,
    beat_seconds=2.0,
    server_key="k" * 40,
    client_public="p" * 40,
    client_secret="s" * 40,
)
FACTS = Facts(
    "127.0.0.1:4711",
    "20261123-093000-dispatcher-login1-4242-1b2c3d",
    Holder("login1", 4242, 0.0, "0.1.0"),
    StartOptions("slurm"),
    CLIENT,
    replace(CLIENT, client_secret="w" * 40),
)
