"""Serve the page on this machine's loopback address, until it is told to end."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from gridengine.errors import ConfigurationError
from gridengine.page.access import Access
from gridengine.page.app import AccessCheck, Page
from gridengine.page.source import Source

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
            f"port {port} cannot be had: {error.strerror}", hint="say another --port, or none"
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
    """Serve until SIGINT or SIGTERM. Call `started` with the port and the access once all
    is ready.
    """
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


class _Server(uvicorn.Server):
    """Ends the streams of events when it shuts down; otherwise it would wait for them."""

    def __init__(self, app: ASGIApp, closing: asyncio.Event) -> None:
        super().__init__(
            uvicorn.Config(
                app,
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
