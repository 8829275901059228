"""The keys of `gridengine top`."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gridengine.cli.top import FOOT, HELP, _end, _Screen, clicked, keys_in
from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.errors import ClusterError
from gridengine.status.rows import FunctionStatus, Status
from gridengine.watching.connections import DispatcherEnded
from gridengine.watching.top_tables import View
from tests.support.watched import WHO, Machine


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


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (Status(done=24, failed=1), "process 4242 on login1, ended at .*: 24 done, 1 failed"),
        (None, "sweep.py has ended; when it was last seen, of its calls 20 done, 0 failed"),
    ],
)
def test_the_end_of_a_run_is_told_by_its_figures_and_no_error(
    machine: Machine, report: Status | None, words: str
) -> None:
    if report is not None:
        machine.ended(WatchAnswer(WHO, report))
    seen = WatchAnswer(WHO, Status(done=20))
    assert re.search(words, _end(DispatcherEnded("it has ended"), seen))
    assert _end(ClusterError("it is silent"), seen).startswith("it is silent; when it was last")
    with pytest.raises(DispatcherEnded):
        _end(DispatcherEnded("it has ended"), None)
