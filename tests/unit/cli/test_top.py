"""The keys of `gridengine top`."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.cli.top import FOOT, HELP, _Screen, clicked, keys_in
from gridengine.status.rows import FunctionStatus
from gridengine.watching.top_tables import View


def test_the_header_fits_into_80_columns() -> None:
    assert max(map(len, (FOOT, *HELP.splitlines()))) < 80


def test_arrows_are_no_part_of_a_filter() -> None:
    watched: Any = None
    screen = _Screen(watched, View(), 1.0)
    for key in ("/", "a", "up", "b", "\n"):
        screen._press(key)
    assert screen._view.filter == "ab"


def test_a_name_is_typed_to_be_followed() -> None:
    watched: Any = None
    screen = _Screen(watched, View("calls"), 1.0)
    for key in ("f", "n", "1", "\n"):
        screen._press(key)
    assert (screen._view.follow, screen._view.filter) == ("n1", "")


def test_a_click_sorts_turns_shows_and_follows() -> None:
    view = clicked(View("workers"), 2)
    assert (view.sort, view.reverse) == (2, False)
    assert clicked(view, 2).reverse
    assert clicked(View(follow="n1"), "calls") == View("calls", follow="n1")
    assert clicked(View(), FunctionStatus("train")).follow == "train"
    assert clicked(View(), None) == View()


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("sr", ["s", "r"]),
        ("\x1b[A\x1bOB\x1b[B", ["up", "down", "down"]),
        ("\x1b[5~q\x1b[1;5C\x1b[<0;3;4M\x1b[<0;3;4m", ["q", "click 2 3"]),
        ("\x1b[<64;3;4M\x1b[<65;3;4M\x1b[<2;3;4M", ["up", "down"]),
        ("\x1b", ["\x1b"]),
        ("", []),
        ("\u00e9\r", ["\u00e9", "\r"]),
    ],
)
def test_input_of_a_terminal_is_cut_into_keys(typed: str, keys: list[str]) -> None:
    assert keys_in(typed) == keys
