"""The page's answers to requests: files, tables, events, and actions.

It is served on this machine's loopback address, until the process is told to end.
"""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import h11
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from gridengine.dispatcher.metrics_file import metrics
from gridengine.dispatcher.watch_messages import CANCEL, DRAIN, GRAPH, REPORT
from gridengine.errors import ConfigurationError, GridEngineError
from gridengine.page.access import HEADERS, Access
from gridengine.page.drawn_graph import MOST_DRAWN, GraphMemory
from gridengine.page.overview import gone, overview
from gridengine.page.report import report, static
from gridengine.page.rows import TABLES, window
from gridengine.page.source import Source
from gridengine.page.timeline import timeline_of
from gridengine.schedulers.logs import tail
from gridengine.watching.top_tables import View
from gridengine.watching.worker_logs import logs_in

EVENT_SECONDS, MOST_SAMPLED = 1.0, 500
LOG_BYTES = 64 * 1024
MOST_LOGS = 1000
MOST_BODY = 64 * 1024
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
FILES: Mapping[str, str] = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
ENTER = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>gridengine</title>'
    '<link rel="icon" href="/static/icon.svg">'
    '<meta http-equiv="refresh" content="0;url=/"></head>'
    '<body><a href="/">gridengine</a></body></html>'
)
"""The answer to a request with the token. The next request then comes from this site, so that the
browser sends the cookie, which is `SameSite=Strict`.
"""


class AccessCheck:
    """Answers requests that `Access` allows, and adds the security headers to each answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        request = Request(scope)  # whose `url` is built with the header `Host`, whatever that is
        token = request.query_params.get("token", "") if scope["path"] == "/" else ""
        entering = self._access.is_token(token)
        refusal = self._access.refusal(request.method, request.headers, entering=entering)
        app: ASGIApp = self._app
        if refusal:
            app = PlainTextResponse(refusal, 403)
        elif entering:
            app = HTMLResponse(ENTER, headers={"Set-Cookie": self._access.cookie()})
        await app(scope, receive, send_with_headers)


class Page:
    """The page of one dispatcher.

    Args:
        actions: whether the page may end calls and drain workers.
    """

    def __init__(self, source: Source, *, actions: bool) -> None:
        self._source = source
        self._actions = actions
        self._graph = GraphMemory()
        self.closing = asyncio.Event()

    def app(self) -> Starlette:
        """Return the application for requests that are allowed."""
        ask, graph = self._source.ask, self._graph
        answers: dict[str, Callable[[Request], Response]] = {
            "/": lambda request: _file("index.html"),
            "/static/{name}": lambda request: _file(request.path_params["name"]),
            "/events": lambda request: StreamingResponse(
                self._events(), media_type="text/event-stream"
            ),
            "/rows/{view}": self.rows,
            "/graph": lambda request: _json(graph.update(ask(GRAPH, most=MOST_DRAWN))),
            "/timeline": lambda request: _json(timeline_of(ask(REPORT))),
            "/logs": lambda request: _json(
                [one.name for one in reversed(self._logs())][:MOST_LOGS]
            ),
            "/logs/{name}": self.log,
            "/metrics": self.metrics,
            "/report": self.report,
        }
        actions = {CANCEL: "calls", DRAIN: "hosts"} if self._actions else {}
        return Starlette(
            routes=[
                *(Route(path, answer) for path, answer in answers.items()),
                *(
                    Route(f"/{action}", self._act(action, field), methods=["POST"])
                    for action, field in actions.items()
                ),
            ],
            exception_handlers={GridEngineError: _fault},
        )

    async def _events(self) -> AsyncIterator[bytes]:
        """Yield the dispatcher's overview again and again (server-sent events)."""
        while not self.closing.is_set():
            yield b"data: " + await run_in_threadpool(self._event) + b"\n\n"
            try:
                await asyncio.wait_for(self.closing.wait(), EVENT_SECONDS)
            except TimeoutError:
                continue

    def _event(self) -> bytes:
        try:
            answer = self._source.ask(most=MOST_SAMPLED)
            is_report = answer is self._source.ended
            said = overview(answer, actions=self._actions, is_report=is_report)
        except GridEngineError as error:
            said = gone(self._source.identity, error)
        return msgspec.json.encode(said)

    def rows(self, request: Request) -> Response:
        """Answer with some rows of a table."""
        name, asked = request.path_params["view"], request.query_params
        if name not in TABLES:
            raise HTTPException(404)
        sort = _number(asked.get("sort"), -1)
        view = View(
            name,
            sort=sort if sort >= 0 else None,
            reverse=asked.get("reverse") == "1",
            filter=asked.get("filter", ""),
            first=_number(asked.get("first"), 0),
        )
        return _json(window(self._source, view, _number(asked.get("most"), 100)))

    def log(self, request: Request) -> Response:
        """Answer with the end of a log."""
        for one in self._logs():
            if one.name == request.path_params["name"]:
                return PlainTextResponse(tail(one, LOG_BYTES))
        raise HTTPException(404)

    def _logs(self) -> list[Path]:
        folder = self._source.ask(most=0).identity.folder
        return logs_in(Path(folder)) if folder else []

    def report(self, request: Request) -> Response:
        """Answer with the report, as a file to save."""
        answer = self._source.ask(REPORT)
        name = quote(f"{Path(answer.identity.name).stem}.html")
        saved = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return HTMLResponse(report(answer, ended=answer is self._source.ended), headers=saved)

    def metrics(self, request: Request) -> Response:
        """Answer with the metrics in OpenMetrics text."""
        answer = self._source.ask()
        who = answer.identity
        text = metrics(answer.status, who.run_id, who.name)
        return Response(text, headers={"Content-Type": OPENMETRICS})

    def _act(self, ask: str, field: str) -> Callable[[Request], Any]:
        async def act(request: Request) -> Response:
            if int(request.headers.get("content-length") or MOST_BODY + 1) > MOST_BODY:
                raise HTTPException(413)
            try:
                body = msgspec.json.decode(await request.body(), type=dict[str, list[str]])
            except msgspec.DecodeError as error:
                raise HTTPException(400, str(error)) from error
            if field not in body:
                raise HTTPException(400, f"{field} is missing")
            answer = await run_in_threadpool(self._source.act, ask, body[field])
            return _json({"count": answer.count})

        return act


def _number(words: str | None, default: int) -> int:
    try:
        return int(words or default)
    except ValueError:
        raise HTTPException(400, f"{words!r} is no number") from None


def _file(name: str) -> Response:
    found = static(name)
    kind = FILES.get(name.rpartition(".")[2])
    if kind is None or not found.is_file():
        raise HTTPException(404)
    return Response(found.read_bytes(), headers={"Content-Type": f"{kind}; charset=utf-8"})


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _fault(request: Request, error: Exception) -> Response:
    text = error.message if isinstance(error, GridEngineError) else str(error)
    return Response(msgspec.json.encode({"error": str(text)}), 503, media_type="application/json")


LOOPBACK = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """Return a socket at this port of the loopback address; 0 is any free port.

    Raises:
        ConfigurationError: another process has the port.
    """
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((LOOPBACK, port))
    except OSError as error:
        sock.close()
        raise ConfigurationError(
            f"port {port} cannot be used: {error.strerror}", hint="name another --port, or none"
        ) from error
    return sock


def address(port: int, access: Access) -> str:
    """Return the address, with the token, that lets a browser in."""
    return f"http://{LOOPBACK}:{port}/?token={access.token}"


def tunnel(port: int) -> str:
    """Return the command by which another machine can show the page."""
    return f"ssh -N -L {port}:{LOOPBACK}:{port} {getpass.getuser()}@{socket.gethostname()}"


def serve(
    source: Source, sock: socket.socket, *, actions: bool, started: Callable[[int, Access], None]
) -> None:
    """Serve until SIGINT or SIGTERM; once ready, call `started` with the port and access."""
    port = sock.getsockname()[1]
    access = Access(port)

    async def run() -> None:
        page = Page(source, actions=actions)
        server = _Server(AccessCheck(page.app(), access), page.closing)
        sock.listen()
        started(port, access)
        await server.serve(sockets=[sock])

    try:
        asyncio.run(run())
    finally:
        sock.close()
        source.close()


HEAD_SECONDS, MOST_CONNECTIONS = 10.0, 64


class BoundedConnection(H11Protocol):
    """A browser's connection. It is closed when the head of a request is not there in
    `HEAD_SECONDS`, or when `MOST_CONNECTIONS` are open.
    """

    head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > MOST_CONNECTIONS:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._end_wait()
        elif self.head_due is None:  # the head of a later request has begun
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        self._end_wait()
        headers = [*HEADERS.items(), ("Content-Type", "text/plain"), ("Connection", "close")]
        for event in (
            h11.Response(status_code=400, headers=headers),
            h11.Data(data=msg.encode()),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def _await_head(self) -> None:
        self.head_due = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _end_wait(self) -> None:
        if self.head_due is not None:
            self.head_due.cancel()
            self.head_due = None


class _Server(uvicorn.Server):
    """Ends the streams of events when it shuts down; otherwise it would wait for them."""

    def __init__(self, app: ASGIApp, closing: asyncio.Event) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=BoundedConnection,
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                timeout_graceful_shutdown=5,
            )
        )
        self._closing = closing

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing.set()
        await super().shutdown(sockets)
