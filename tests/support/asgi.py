"""Requests to an ASGI application, without a socket."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple


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
