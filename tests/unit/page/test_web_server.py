"""What the page answers."""

from __future__ import annotations

import asyncio
import getpass
import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn
from msgspec.structs import replace
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from gridengine.dispatcher.status_views import status_of
from gridengine.dispatcher.task_views import graph_of
from gridengine.dispatcher.watch_messages import CANCEL, GRAPH, Identity, WatchAnswer
from gridengine.errors import ClusterError
from gridengine.page.access import HEADERS, Access
from gridengine.page.web_server import (
    MOST_CONNECTIONS,
    AccessCheck,
    BoundedConnection,
    Page,
    address,
    tunnel,
)
from tests.support.core_play import Play


class Answered(NamedTuple):
    """What came of a request."""

    status: int
    headers: dict[str, str]
    body: bytes


def request(
    app: Any, path: str, method: str = "GET", *, query: str = "", body: bytes = b"", **headers: str
) -> Answered:
    """Return what an application answers; in the names of headers `_` stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if body and "transfer-encoding" not in named:
        named["content-length"] = str(len(body))
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    start, *rest = sent
    told = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answered(start["status"], told, b"".join(one.get("body", b"") for one in rest))


WHO = Identity("<b>.py", "run", 4242, "login1", "/b.py", "/", 0.0, "Slurm", "1.2", "3.11")


class PlayedSource:
    """A dispatcher whose core is played, or that is gone."""

    identity = WHO
    ended: WatchAnswer | None = None

    def __init__(self) -> None:
        self.folder = ""
        self.gone = False
        self.acted: list[tuple[str, Sequence[str]]] = []
        self.play = Play(max_workers=1)
        self.play.crash(self.play.running(3, retries=0), 0)

    def ask(self, ask: str = "status", *, most: int = 1000, **other: Any) -> WatchAnswer:
        if self.gone:
            raise ClusterError("it has ended")
        state = self.play.core.state
        graph = graph_of(state, most) if ask == GRAPH else None
        who = replace(WHO, folder=self.folder)
        return WatchAnswer(who, status_of(state, 100.0, self.play.now, most=most), graph=graph)

    def act(self, ask: str, words: Sequence[str]) -> WatchAnswer:
        self.acted.append((ask, words))
        return WatchAnswer(WHO, count=len(words))


class Site:
    """A page, asked by who has its token."""

    def __init__(self, *, actions: bool = False) -> None:
        self.source, self.access = PlayedSource(), Access(8787)
        page = Page(self.source, actions=actions)  # type: ignore[arg-type]
        self.app = AccessCheck(page.app(), self.access)

    def ask(self, path: str, method: str = "GET", **other: Any) -> Answered:
        token = f"Bearer {self.access.token}"
        named = {"host": "localhost:8787", "authorization": token, **other}
        return request(self.app, path, method, **named)


def test_the_token_is_exchanged_for_a_cookie() -> None:
    site = Site()
    query = f"token={site.access.token}"
    answered = request(site.app, "/", query=query, host="localhost:8787")
    assert answered.status == 200
    assert answered.headers["set-cookie"] == site.access.cookie()
    assert b'content="0;url=/"' in answered.body
    assert site.access.token.encode() not in answered.body


def test_requests_without_a_token_get_no_answer() -> None:
    site = Site()
    for path in ("/", "/static/page.js", "/rows/calls", "/metrics", "/nosuch"):
        assert request(site.app, path, host="localhost:8787").status == 403
    assert request(site.app, "/", query="token=guessed", host="localhost:8787").status == 403


@pytest.mark.parametrize("path", ["/", "/static/page.js", "/rows/calls", "/nosuch", "/rows/nosuch"])
def test_each_answer_keeps_browsers_from_loading_anything_else(path: str) -> None:
    headers = Site().ask(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/..", "/static/nosuch.js"])
def test_other_files_are_not_given(path: str) -> None:
    assert Site().ask(path).status == 404


def test_rows_are_told_a_window_at_a_time() -> None:
    site = Site()
    told = json.loads(site.ask("/rows/failures", query="most=10").body)
    assert told["total"] == 1
    [row] = told["rows"]
    assert row["cells"][0] == "call 0 of square"
    assert json.loads(site.ask("/rows/failures", query="most=0").body)["rows"] == []
    assert site.ask("/rows/failures", query="first=x").status == 400


def test_causes_that_differ_in_numbers_are_one() -> None:
    site = Site()
    site.source.play.crash(site.source.play.assigned()[0], 1)
    [row] = json.loads(site.ask("/rows/causes").body)["rows"]
    assert row["cells"][0] == "2"


@pytest.mark.parametrize("path", ["/rows/calls", "/graph", "/timeline", "/logs", "/metrics"])
def test_a_lost_dispatcher_is_told(path: str) -> None:
    site = Site()
    assert site.ask(path).status == 200
    site.source.gone = True
    answered = site.ask(path)
    assert answered.status == 503
    assert json.loads(answered.body) == {"error": "it has ended"}


def test_the_report_is_a_file_to_save() -> None:
    answer = Site().ask("/report")
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''%3Cb%3E.html"
    assert b'id="answers"' in answer.body


def test_logs_of_the_runs_folder_alone_are_shown(tmp_path: Path) -> None:
    site = Site()
    assert json.loads(site.ask("/logs").body) == []
    site.source.folder = str(tmp_path)
    (tmp_path / "logs").mkdir()
    for name in ("1.log", "2.log"):
        (tmp_path / "logs" / name).write_text(f"<b>{name}</b>")
    (tmp_path / "secret.log").write_text("secret")
    assert json.loads(site.ask("/logs").body) == ["2.log", "1.log"]
    answered = site.ask("/logs/1.log")
    assert answered.body == b"<b>1.log</b>"
    assert answered.headers["content-type"].startswith("text/plain")
    for name in ("3.log", "secret.log", "../secret.log", "..%2Fsecret.log"):
        assert site.ask(f"/logs/{name}").status == 404


def test_nothing_is_done_unless_that_is_allowed() -> None:
    words = {"body": b'{"calls": ["1.0"]}', "origin": "http://localhost:8787"}
    assert Site().ask("/cancel", "POST", **words).status == 404
    site = Site(actions=True)
    assert site.ask("/cancel", "POST", body=words["body"]).status == 403
    assert site.ask("/cancel", "GET").status == 405
    assert json.loads(site.ask("/cancel", "POST", **words).body) == {"count": 1}
    assert site.source.acted == [(CANCEL, ["1.0"])]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"calls": 1}', b"x" * 100_000])
def test_an_unknown_action_does_nothing(body: bytes) -> None:
    site = Site(actions=True)
    assert site.ask("/cancel", "POST", body=body, origin="http://localhost:8787").status in (
        400,
        413,
    )
    assert site.source.acted == []


def test_an_action_whose_length_is_not_told_is_refused_unread() -> None:
    site = Site(actions=True)
    words = {"origin": "http://localhost:8787", "transfer_encoding": "chunked"}
    assert site.ask("/cancel", "POST", body=b'{"calls": ["1.0"]}', **words).status == 413
    assert site.source.acted == []


def test_the_address_is_this_machines_alone_and_has_the_token() -> None:
    access = Access(8787)
    assert address(8787, access) == f"http://127.0.0.1:8787/?token={access.token}"


def test_a_tunnel_leads_to_the_same_port_and_has_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "me")
    monkeypatch.setattr(socket, "gethostname", lambda: "login1")
    assert tunnel(8787) == "ssh -N -L 8787:127.0.0.1:8787 me@login1"


class Transport(asyncio.Transport):
    """One end of a connection; keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.closed = b"", False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


class Timers:
    """An event loop whose time stands still."""

    def __init__(self) -> None:
        self.due: list[tuple[float, asyncio.TimerHandle]] = []

    def call_later(self, seconds: float, act: Any) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(seconds, act, (), self)  # type: ignore[arg-type]
        self.due.append((seconds, handle))
        return handle

    def _timer_handle_cancelled(self, handle: object) -> None: ...

    def get_debug(self) -> bool:
        return False

    def run_out(self) -> None:
        for _, handle in self.due:
            if not handle.cancelled():
                handle._run()


def connected(state: ServerState, loop: Timers) -> tuple[BoundedConnection, Transport]:
    config = uvicorn.Config(PlainTextResponse("yes"), log_config=None)
    connection, transport = BoundedConnection(config, state, {}, loop), Transport()  # type: ignore[arg-type]
    connection.connection_made(transport)
    return connection, transport


@pytest.mark.parametrize("sent", [b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_connection_whose_request_does_not_come_to_its_head_s_end_is_closed(sent: bytes) -> None:
    loop = Timers()
    connection, transport = connected(ServerState(), loop)
    connection.data_received(sent)
    connection.data_received(b"1")
    assert not transport.closed
    loop.run_out()
    assert transport.closed


def test_a_request_has_all_the_time_for_its_answer() -> None:
    loop = Timers()
    connection, transport = connected(ServerState(), loop)
    loop.create_task = lambda coroutine, **_: coroutine.close() or asyncio.Future(loop=loop)  # type: ignore[attr-defined, assignment]
    connection.data_received(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    loop.run_out()
    assert not transport.closed


def test_more_connections_than_may_be_open_are_closed_at_once() -> None:
    state, loop = ServerState(), Timers()
    transports = [connected(state, loop)[1] for _ in range(MOST_CONNECTIONS + 2)]
    assert [one.closed for one in transports] == [False] * MOST_CONNECTIONS + [True] * 2


def test_malformed_http_gets_an_answer_with_all_headers() -> None:
    connection, transport = connected(ServerState(), Timers())
    connection.data_received(b"\x16\x03\x01 no http\r\n\r\n")
    assert transport.written.startswith(b"HTTP/1.1 400 ")
    for name, value in HEADERS.items():
        assert f"{name}: {value}\r\n".encode() in transport.written
    assert transport.closed


@pytest.mark.parametrize("host", ["[", "[::1", "a b", ""])
def test_a_host_that_is_none_is_refused_with_all_headers(host: str) -> None:
    answered = Site().ask("/", host=host)
    assert answered.status == 403
    assert answered.headers["x-content-type-options"] == "nosniff"
