"""Where the page is. That it is served is tested in a browser: `tests/integration/watching`."""

from __future__ import annotations

import getpass
import socket

import pytest

from gridengine.page.access import Access
from gridengine.page.server import address, tunnel


def test_the_address_is_this_machines_alone_and_has_the_token() -> None:
    access = Access(8787)
    assert address(8787, access) == f"http://127.0.0.1:8787/?token={access.token}"


def test_a_tunnel_leads_to_the_same_port_and_has_no_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "me")
    monkeypatch.setattr(socket, "gethostname", lambda: "login1")
    assert tunnel(8787) == "ssh -N -L 8787:127.0.0.1:8787 me@login1"
