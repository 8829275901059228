"""Who may see the page."""

from __future__ import annotations

import pytest

from gridengine.page.access import NO_TOKEN, Access

HOST = "127.0.0.1:8787"


def cookie(access: Access) -> str:
    return access.cookie().partition(";")[0]


def test_requests_with_the_cookie_or_the_token_are_answered() -> None:
    access = Access(8787)
    assert access.refusal("GET", {"host": HOST, "cookie": cookie(access)}) == ""
    assert access.refusal("GET", {"host": HOST, "authorization": f"Bearer {access.token}"}) == ""


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"cookie": "gridengine-8787=guessed"},
        {"cookie": "gridengine-8787"},
        {"authorization": "Bearer guessed"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer gu\u00e9ssed"},
    ],
)
def test_requests_without_the_token_are_told_to_bring_it(headers: dict[str, str]) -> None:
    assert Access(8787).refusal("GET", {"host": HOST, **headers}) == NO_TOKEN


def test_the_cookie_of_one_page_is_not_that_of_another() -> None:
    one, other = Access(8787), Access(8787)
    assert one.refusal("GET", {"host": HOST, "cookie": cookie(other)}) == NO_TOKEN
    assert one.token not in one.cookie()


def test_scripts_and_other_sites_have_nothing_of_the_cookie() -> None:
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(Access(1).cookie().split("; "))


@pytest.mark.parametrize("host", [HOST, "localhost:9", "[::1]:8787", "localhost"])
def test_this_machine_may_be_called_by_its_names_at_the_port_of_a_tunnel(host: str) -> None:
    access = Access(8787)
    assert access.refusal("GET", {"host": host, "cookie": cookie(access)}) == ""


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8787",
        "127.0.0.1.evil.example",
        "[",
        "[::1",
        "[x]",
        "\u00e9",
    ],
)
def test_requests_to_another_host_name_are_refused_even_with_the_token(host: str) -> None:
    access = Access(8787)
    headers = {"host": host, "cookie": cookie(access)}
    assert "on this machine" in access.refusal("GET", headers)
    assert "on this machine" in access.refusal("GET", headers, entering=True)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_requests_of_other_sites_are_refused(headers: dict[str, str]) -> None:
    access = Access(8787)
    said = access.refusal("GET", {"host": HOST, "cookie": cookie(access), **headers})
    assert said == "this comes from another site"


def test_acting_requests_must_name_their_origin() -> None:
    access = Access(8787)
    headers = {"host": HOST, "cookie": cookie(access)}
    assert "does not say" in access.refusal("POST", headers)
    assert access.refusal("POST", {**headers, "origin": f"http://{HOST}"}) == ""


def test_requests_with_the_token_may_come_from_anywhere() -> None:
    assert (
        Access(1).refusal("GET", {"host": HOST, "sec-fetch-site": "cross-site"}, entering=True)
        == ""
    )
