"""The socket at which a dispatcher is watched: who may ask, and who is dropped."""

from __future__ import annotations

import math
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gridengine.dispatcher import watch_server
from gridengine.dispatcher.watch_messages import FOLLOW, Identity, WatchAnswer, WatchRequest
from gridengine.dispatcher.watch_server import (
    LEAST_INTERVAL,
    MOST_FOLLOWERS,
    MOST_REQUEST,
    MOST_WATCHERS,
    STUCK_SECONDS,
    FollowerAnswer,
    Watcher,
    WatchServer,
    WatchStreams,
)
from gridengine.status.rows import Status
from gridengine.status.run_log import RunLog
from gridengine.status.watch_events import WatchEvent
from gridengine.wire import connection_file
from gridengine.wire.connection_file import runtime_folders


class Played:
    """A server, what it was asked, and those who watch it."""

    def __init__(self, path: Path) -> None:
        self.asked: list[bytes] = []
        self.size = 10
        self.forgotten: list[Watcher] = []
        self.follows: Watcher | None = None
        self.server = WatchServer(path, self._answer, self.forgotten.append)
        self.watchers: list[socket.socket] = []

    def _answer(self, line: bytes, watcher: Watcher) -> bytes:
        self.asked.append(line)
        self.follows = watcher
        return b"x" * self.size

    def watch(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(0.0)
        sock.connect(str(self.server.path))
        self.watchers.append(sock)
        self.server.serve()
        return sock

    def ask(self, sock: socket.socket, line: bytes) -> None:
        sock.sendall(line)
        self.server.serve()


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    one = Played(tmp_path / "1.sock")
    yield one
    one.server.close()
    for sock in one.watchers:
        sock.close()


def is_dropped(sock: socket.socket) -> bool:
    try:
        while sock.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return True


def test_a_line_is_answered_by_a_line_though_it_comes_in_pieces(played: Played) -> None:
    one = played.watch()
    played.ask(one, b"fi")
    assert played.asked == []
    played.ask(one, b"rst\n")
    assert one.recv(100) == b"x" * 10 + b"\n"
    assert played.asked == [b"first"]


def test_a_request_without_end_is_dropped(played: Played) -> None:
    one = played.watch()
    for _ in range(2):
        played.ask(one, b"x" * MOST_REQUEST)
    played.server.serve()
    assert is_dropped(one)


def test_a_long_answer_is_written_bit_by_bit(played: Played) -> None:
    played.size = 3_000_000
    one = played.watch()
    played.ask(one, b"much\n")
    read = 0
    while read <= played.size:
        read += len(one.recv(65536))
        played.server.serve()
    assert read == played.size + 1


def test_a_watcher_that_does_not_read_is_dropped(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_server, "STUCK_SECONDS", -1.0)
    played.size = 3_000_000
    stuck = played.watch()
    played.ask(stuck, b"much\n")
    played.watch()
    assert is_dropped(stuck)


def test_watchers_are_limited_and_one_that_leaves_makes_room(played: Played) -> None:
    watchers = [played.watch() for _ in range(MOST_WATCHERS + 1)]
    assert [is_dropped(one) for one in watchers] == [False] * MOST_WATCHERS + [True]
    watchers[0].close()
    played.server.serve()
    assert not is_dropped(played.watch())


TOLD = FollowerAnswer(WatchAnswer(Identity("sweep", "run", 1, "host", "", "", 0.0, "", "", "")))


def follower(played: Played) -> tuple[socket.socket, Watcher]:
    sock = played.watch()
    played.ask(sock, b"follow\n")
    assert sock.recv(100) == b"x" * played.size + b"\n"
    assert played.follows is not None
    return sock, played.follows


def test_a_follower_is_sent_lines_unasked(played: Played) -> None:
    sock, watcher = follower(played)
    assert watcher.tell(TOLD)
    assert watcher.tell(TOLD)
    assert sock.recv(10_000) == 2 * (TOLD.line + b"\n")


def test_a_follower_that_has_not_read_is_sent_nothing_more(played: Played) -> None:
    sock, watcher = follower(played)
    much = FollowerAnswer(TOLD.answer)
    much.line = b"x" * 3_000_000
    assert watcher.tell(much)
    assert not watcher.tell(TOLD)
    while len(sock.recv(1_000_000)) and watcher.left:
        played.server.serve()
    assert watcher.tell(TOLD)


def test_a_follower_is_forgotten_when_it_leaves_or_is_dropped(played: Played) -> None:
    left, one = follower(played)
    stays, other = follower(played)
    left.close()
    played.server.serve()
    assert played.forgotten == [one]
    other.drop()
    assert played.forgotten == [one, other]
    assert is_dropped(stays)


def test_another_user_is_turned_away(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_server, "peer_user", lambda sock: os.getuid() + 1)
    assert is_dropped(played.watch())


def test_an_answer_that_cannot_be_made_ends_the_connection_and_nothing_else(
    played: Played,
) -> None:
    one = played.watch()
    played.size = None  # type: ignore[assignment]
    played.ask(one, b"first\n")
    assert is_dropped(one)


def test_the_socket_is_this_users_alone_and_gone_at_the_end(tmp_path: Path) -> None:
    one = Played(tmp_path / "1.sock")
    assert stat.S_IMODE(one.server.path.stat().st_mode) == 0o600
    one.server.close()
    assert not one.server.path.exists()


def test_a_folder_that_others_may_enter_is_not_taken(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folders = list(runtime_folders({"XDG_RUNTIME_DIR": str(tmp_path)}, Path()))
    assert tmp_path / "gridengine" not in folders


def test_a_requested_folder_that_is_unusable_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = tmp_path / "no" / "folder"
    server = watch_server.open_watch_server(given, lambda *asked: b"", lambda watcher: None)
    assert server is None
    assert f"{given} cannot be a folder of this user's alone (mode 0700)" in caplog.text
    assert "watch_directory" in caplog.text


def test_a_blocked_folder_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "gridengine"
    blocked.touch()
    monkeypatch.setattr(connection_file, "runtime_folders", lambda *places: iter([blocked]))
    server = watch_server.open_watch_server(Path(), lambda *asked: b"", lambda watcher: None)
    assert server is None
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert f"cannot be watched from other processes: {blocked} is there" in record.getMessage()


def test_a_visible_socket_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "1.sock", []
    monkeypatch.setattr(Path, "chmod", lambda self, mode: seen.append(path.exists()))
    server = WatchServer(path, lambda line, watcher: line, lambda watcher: None)
    assert seen == [False]
    assert path.exists()
    server.close()
    assert list(tmp_path.iterdir()) == []


def test_its_identity_stands_beside_its_socket_until_it_ends(tmp_path: Path) -> None:
    server = WatchServer(tmp_path / "1.sock", lambda *asked: b"", lambda watcher: None, b"me")
    record = tmp_path / "1.json"
    assert (record.read_bytes(), stat.S_IMODE(record.stat().st_mode)) == (b"me", 0o600)
    server.close()
    assert list(tmp_path.iterdir()) == []


IDENTITY = Identity("sweep", "run", 1, "host", "", "", 0.0, "", "", "")


@dataclass(eq=False)
class Followed:
    """Who follows: what he was told, and whether he takes more."""

    told: list[FollowerAnswer] = field(default_factory=list)
    takes: bool = True
    error: Exception | None = None
    dropped: bool = False
    ended: bool = False

    def tell(self, told: FollowerAnswer) -> bool:
        if self.error is not None:
            raise self.error
        if self.takes:
            self.told.append(told)
        return self.takes

    def drop(self) -> None:
        self.dropped = True

    def end(self) -> None:
        self.ended = True

    def events(self) -> list[str]:
        """What he was told of last."""
        return [one.reason for one in self.told[-1].answer.status.events]


class Streams:
    """The streams of a core to which only what the test says happens."""

    def __init__(self) -> None:
        self.log = RunLog()
        self.made: list[WatchRequest] = []
        self.streams = WatchStreams(self.log, self._status)

    def _status(self, request: WatchRequest, now: float) -> WatchAnswer:
        self.made.append(request)
        return WatchAnswer(IDENTITY, Status(elapsed_seconds=now))

    def follow(self, follower: Followed, now: float = 0.0, **options: object) -> None:
        self.streams.add(follower, WatchRequest(FOLLOW, **options), now)

    def happen(self, words: str) -> None:
        assert self.log.events is not None
        self.log.events.note(WatchEvent("call done", reason=words))


@pytest.fixture
def followed() -> Streams:
    return Streams()


def test_while_nobody_follows_nothing_is_due_and_nothing_is_taken_in(followed: Streams) -> None:
    assert (followed.streams.deadline, followed.log.events) == (math.inf, None)
    one = Followed()
    followed.follow(one)
    assert (followed.streams.deadline, followed.log.events is None) == (1.0, False)
    followed.streams.remove(one)
    followed.streams.remove(one)
    assert (followed.streams.deadline, followed.log.events) == (math.inf, None)


def test_a_follower_is_told_the_news_of_each_interval(followed: Streams) -> None:
    one = Followed()
    followed.follow(one, interval=2.0)
    followed.happen("a")
    followed.streams.push(1.0)
    assert one.told == []
    followed.streams.push(2.0)
    assert one.events() == ["a"]
    followed.happen("b")
    followed.streams.push(4.0)
    assert one.events() == ["b"]


def test_an_answer_that_several_followers_want_is_made_and_encoded_once(followed: Streams) -> None:
    early, late, other = Followed(), Followed(), Followed()
    followed.follow(early, 0.2)
    followed.follow(late, 0.7)
    followed.follow(other, 0.2, most=5)
    followed.streams.push(1.0)
    followed.made.clear()
    followed.happen("a")
    followed.streams.push(2.0)
    assert [request.most for request in followed.made] == [100, 5]
    assert early.told[-1] is late.told[-1]
    assert early.told[-1].line is late.told[-1].line
    assert other.events() == ["a"]


def test_a_late_follower_is_not_told_of_earlier_events(followed: Streams) -> None:
    early, late = Followed(), Followed()
    followed.follow(early)
    followed.happen("a")
    followed.follow(late)
    followed.happen("b")
    followed.streams.push(1.0)
    assert (early.events(), late.events()) == (["a", "b"], ["b"])


def test_a_slow_follower_is_told_everything_the_next_time(followed: Streams) -> None:
    slow, quick = Followed(takes=False), Followed()
    for one in (slow, quick):
        followed.follow(one)
    followed.happen("a")
    followed.streams.push(1.0)
    slow.takes = True
    followed.happen("b")
    followed.streams.push(2.0)
    assert (slow.events(), quick.events()) == (["a", "b"], ["b"])


def test_a_follower_that_does_not_read_for_long_is_dropped(followed: Streams) -> None:
    gone, stuck, other = Followed(error=BrokenPipeError("gone")), Followed(takes=False), Followed()
    for one in (gone, stuck, other):
        followed.follow(one)
    for now in range(1, int(STUCK_SECONDS) + 3):
        assert not stuck.dropped
        followed.streams.push(now)
        assert gone.dropped, "at once: it cannot be told"
    assert stuck.dropped
    assert not other.dropped
    assert len(other.told) == STUCK_SECONDS + 2
    followed.streams.remove(other)
    assert followed.log.events is None


def test_a_follower_that_asks_anew_misses_nothing(followed: Streams) -> None:
    one = Followed()
    followed.follow(one)
    followed.happen("a")
    followed.follow(one, most=7)
    followed.streams.push(1.0)
    assert ([request.most for request in followed.made], one.events()) == ([7], ["a"])


def test_followers_are_told_a_last_time_at_the_end(followed: Streams) -> None:
    one, stuck = Followed(), Followed(takes=False)
    for follower in (one, stuck):
        followed.follow(follower, interval=60.0)
    followed.happen("a")
    followed.streams.close(1.0)
    assert (one.events(), one.ended, stuck.ended) == (["a"], True, True)
    assert (followed.streams.deadline, followed.log.events) == (math.inf, None)


def test_followers_and_their_frequency_are_limited(followed: Streams) -> None:
    followers = [Followed() for _ in range(MOST_FOLLOWERS)]
    for one in followers:
        followed.follow(one, interval=0.001)
    assert followed.streams.deadline == pytest.approx(LEAST_INTERVAL)
    with pytest.raises(ValueError, match="too many"):
        followed.follow(Followed())
    followed.follow(followers[0])
    with pytest.raises(ValueError, match="interval of nan"):
        followed.follow(followers[0], interval=math.nan)
