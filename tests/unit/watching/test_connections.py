"""Which dispatchers answer."""

from __future__ import annotations

import socket
from pathlib import Path

from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.watching.connections import Watched, answers
from tests.support.watched import WHO, FakeWatched, Machine, silent


def test_all_answers_are_told_the_last_begun_first_beside_the_words_of_the_silent(
    machine: Machine,
) -> None:
    first, last = (replace(WHO, name=one, pid=n) for n, one in enumerate(("a.py", "b.py"), 1))
    machine.says(WatchAnswer(replace(first, since=1.0)), WatchAnswer(replace(last, since=2.0)))
    machine.add(FakeWatched(silent), 99)
    found, mute = answers()
    assert [one.identity.name for one in found] == ["b.py", "a.py"]
    [words] = mute
    assert words.startswith("the dispatcher of process 99 cannot be watched: ")


def test_a_connection_that_is_closed_has_ended_for_the_dispatcher(tmp_path: Path) -> None:
    path = tmp_path / "7-main.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        watched = Watched(path)
        sock, _ = server.accept()
        with sock:
            watched.close()
            sock.settimeout(10)
            assert sock.recv(1) == b""
