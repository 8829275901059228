"""The foot of the terminal: what others write goes above it."""

from __future__ import annotations

import io
import logging
import os
import pty
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from gridengine.api import terminal_line
from gridengine.api.terminal_line import STALE_SECONDS, TerminalLine, is_terminal
from gridengine.output.stream_writer import writing
from tests.support.script_driver import screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def line(terminal: Terminal) -> Iterator[TerminalLine]:
    with closing(TerminalLine(terminal)) as made:
        yield made


def test_printed_lines_go_above_the_bar(terminal: Terminal, line: TerminalLine) -> None:
    line.show("--- 1 ---")
    print("a", "b", file=terminal)
    line.show("--- 2 ---")
    assert screen(terminal.getvalue()) == ["a b", "--- 2 ---"]
    line.close()
    assert screen(terminal.getvalue()) == ["a b", ""]
    assert line.width == 79


def test_lines_of_an_earlier_handler_go_above_the_bar(terminal: Terminal) -> None:
    handler = logging.StreamHandler(terminal)
    with closing(TerminalLine(terminal)) as line:
        line.show("--- 1 ---")
        handler.emit(logging.makeLogRecord({"msg": "logged"}))
        assert screen(terminal.getvalue()) == ["logged", "--- 1 ---"]


def test_nothing_is_drawn_into_a_line_that_is_not_finished(
    terminal: Terminal, line: TerminalLine
) -> None:
    line.show("--- 1 ---")
    terminal.write("loading ... ")
    line.show("--- 2 ---")
    assert screen(terminal.getvalue()) == ["loading ... "]
    terminal.write("done\n")
    assert screen(terminal.getvalue()) == ["loading ... done", "--- 2 ---"]


def test_several_lines_stand_below_each_other(terminal: Terminal, line: TerminalLine) -> None:
    line.show("--- first ---")
    with closing(TerminalLine(terminal)) as second:
        second.show("--- second ---")
        print("x", file=terminal)
        line.show("--- first again ---")
        assert screen(terminal.getvalue()) == ["x", "--- first again ---", "--- second ---"]
    assert screen(terminal.getvalue()) == ["x", "--- first again ---"]


def test_a_bar_that_ends_above_others_leaves_no_gap(terminal: Terminal) -> None:
    lines = [TerminalLine(terminal) for _ in range(3)]
    for number, one in enumerate(lines):
        one.show(f"--- {number} ---")
    lines[0].close()
    assert screen(terminal.getvalue()) == ["--- 1 ---", "--- 2 ---"]
    for one in lines:
        one.close()
    assert screen(terminal.getvalue()) == [""]
    assert vars(terminal).get("write") is None


def test_as_many_bars_are_shown_as_there_is_room_for(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(terminal_line.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(terminal_line, "MOST_LINES", 2)
    with closing(TerminalLine(terminal)) as stale, closing(TerminalLine(terminal)) as first:
        stale.show("--- stale ---")
        first.show("--- first ---")
        now[0] += STALE_SECONDS + 0.1
        with closing(TerminalLine(terminal)) as second:
            first.show("--- first again ---")
            second.show("--- second ---")
            assert screen(terminal.getvalue()) == ["--- first again ---", "--- second ---"]
        print("x", file=terminal)
        assert screen(terminal.getvalue()) == ["x", "--- stale ---", "--- first again ---"]


def test_output_of_calls_to_a_terminal_goes_above_the_bar(
    terminal: Terminal, line: TerminalLine
) -> None:
    ours, theirs = pty.openpty()
    read, write = os.pipe()
    try:
        line.show("--- 1 ---")
        for fd in (theirs, write):
            assert writing().write(fd, memoryview(b"printed\n")) == 8
        assert os.read(read, 99) == b"printed\n"
        drawn_again = "--- 1 ---\r\x1b[2K--- 1 ---"
        assert terminal.getvalue() == drawn_again, "it was not taken away once, for the terminal"
    finally:
        for fd in (ours, theirs, read, write):
            os.close(fd)


class Gone(Terminal):
    def flush(self) -> None:
        raise OSError


def test_a_terminal_that_is_gone_ends_nothing() -> None:
    with closing(TerminalLine(Gone())) as line:
        line.show("--- 1 ---")


def test_a_terminal_that_is_closed_meanwhile_ends_nothing(terminal: Terminal) -> None:
    with closing(TerminalLine(terminal)) as line:
        line.show("--- 1 ---")
        terminal.close()
        line.show("--- 2 ---")


class Writer:
    def write(self, text: str) -> int:
        return len(text)


def test_a_stream_without_isatty_is_no_terminal() -> None:
    assert not is_terminal(Writer())
    assert not is_terminal(None)
    with open(os.devnull) as closed:
        pass
    assert not is_terminal(closed)


def test_standard_streams_may_be_anything_that_is_written_to(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    detached = io.TextIOWrapper(io.BytesIO())
    detached.detach()
    for name, one in (("stdout", Writer()), ("__stdout__", detached), ("__stderr__", None)):
        monkeypatch.setattr(sys, name, one)
    with closing(TerminalLine(terminal)) as line:
        line.show("--- 1 ---")
        assert screen(terminal.getvalue()) == ["--- 1 ---"]


def test_bars_of_two_threads_that_appear_at_once_have_one_foot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both, found = threading.Barrier(2), list[object]()

    class SlowFoot(terminal_line.Foot):
        def __init__(self) -> None:
            super().__init__()
            both.wait(10)

    def find() -> None:
        found.append(terminal_line._foot_of(-1))

    monkeypatch.setattr(terminal_line, "Foot", SlowFoot)
    threads = [threading.Thread(target=find) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1]
