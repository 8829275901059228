"""The keys of a server, and whose it accepts."""

from __future__ import annotations

from gridengine.wire.sockets import PeersKeys, new_keys


def test_keys_are_never_used_again() -> None:
    first, second = new_keys(watchers=True), new_keys(watchers=True)
    keys = [getattr(one, name) for one in (first, second) for name in one.__struct_fields__]
    keys = [key for key in keys if isinstance(key, str)]
    assert len(set(keys)) == len(keys) == 12


def test_only_the_key_of_a_role_may_connect() -> None:
    keys = new_keys(watchers=True)
    check = PeersKeys(keys).callback
    assert check("global", keys.peer_public.encode())
    assert check("global", keys.watcher_public.encode())
    assert not check("global", keys.public.encode())
    assert not check("global", new_keys().peer_public.encode())


def test_no_key_is_empty_without_watchers() -> None:
    assert not PeersKeys(new_keys()).callback("global", b"")
