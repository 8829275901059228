"""Make new CURVE keys, and check the keys of peers."""

from __future__ import annotations

import secrets

import msgspec
import zmq

from gridengine.wire.connection_file import ServerKeys


def new_keys(*, watchers: bool = False) -> ServerKeys:
    """Return new keys; with `watchers` also a pair for watchers."""
    server, peer, watcher = ([one.decode() for one in zmq.curve_keypair()] for _ in range(3))
    keys = ServerKeys(server[0], server[1], peer[0], peer[1])
    if not watchers:
        return keys
    return msgspec.structs.replace(keys, watcher_public=watcher[0], watcher_secret=watcher[1])


class PeersKeys:
    """The credentials provider of a server: it accepts the peers' and the watchers' public key
    only.
    """

    def __init__(self, keys: ServerKeys) -> None:
        self._keys = [one.encode() for one in (keys.peer_public, keys.watcher_public) if one]

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether this client's key (in Z85) is accepted."""
        return any(secrets.compare_digest(key, one) for one in self._keys)
