"""What a terminal sends when keys are pressed."""

from __future__ import annotations

import pytest

from gridengine.cli.terminal_keys import keys_in


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
def test_what_a_terminal_sends_is_cut_into_keys(typed: str, keys: list[str]) -> None:
    assert keys_in(typed) == keys
