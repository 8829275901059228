"""Decides who may see the page: a browser that has the token and was not sent by another site."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

HOSTS = ("127.0.0.1", "localhost", "::1")
"""The names by which a browser may address this machine. Another name belongs to somebody else, who
has pointed it here (DNS rebinding).
"""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of every answer."""
NO_TOKEN = "open the address that `gridengine page` has printed: its token is missing here"


def _name_in(host: str) -> str | None:
    """Return the name in a `Host` header; None if it has none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:  # half an IPv6 address
        return None


class Access:
    """The token of one page, and the cookie that replaces it once it was shown.

    Args:
        port: the page's port. Browsers do not separate cookies by port, so it is part of the
            cookie's name.
    """

    def __init__(self, port: int) -> None:
        self.token = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)
        self._cookie = f"gridengine-{port}"

    def is_token(self, words: str) -> bool:
        return secrets.compare_digest(words.encode(), self.token.encode())

    def cookie(self) -> str:
        """Return the header that sets the cookie."""
        return f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"

    def refusal(self, method: str, headers: Mapping[str, str], *, entering: bool = False) -> str:
        """Return why a request is refused; empty when it is answered. A request that is `entering`
        brings the token, and may come from anywhere.
        """
        host, origin = headers.get("host", ""), headers.get("origin")
        if _name_in(host) not in HOSTS:
            return "this page is for a browser on this machine, or at the end of an ssh tunnel"
        if origin is not None and origin != f"http://{host}":
            return "this comes from another site"
        if entering:
            return ""
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "this comes from another site"
        if not self._is_known(headers):
            return NO_TOKEN
        if method not in ("GET", "HEAD") and origin is None:
            return "this request does not say which site it comes from"
        return ""

    def _is_known(self, headers: Mapping[str, str]) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.is_token(token)
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        said = found.value if found is not None else ""
        return secrets.compare_digest(said.encode(), self._session.encode())
