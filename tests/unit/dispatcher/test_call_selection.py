"""By which words some of a dispatcher's calls are meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from gridengine.dispatcher.call_selection import MOST_NAMES, MOST_SUBMITTERS, NamedCalls
from gridengine.journal.run_file import path_of
from gridengine.wire.messages import NUMBER_BITS, ClientHello
from tests.support.journaled_client import HELLO

SEVEN = 7 << NUMBER_BITS


def test_calls_of_a_run_are_those_of_its_submitters() -> None:
    calls = NamedCalls()
    calls.note("sweep", "/r/sweep.sqlite", 3)
    calls.note("sweep", "/r/sweep.sqlite", 9)
    calls.note("night", "/r/night.sqlite", 4)
    assert [number for number in range(12) if calls.has("sweep", number)] == [3, 9]
    assert calls.files() == {"sweep": "/r/sweep.sqlite", "night": "/r/night.sqlite"}


def test_calls_of_a_client_are_all_that_it_submits(
    tmp_path: Path, configure: Callable[..., None]
) -> None:
    configure(run_directory=tmp_path)
    calls = NamedCalls()
    hello: ClientHello = replace(HELLO, script="sweep.py", pid=4242, keep="far/0a1b2c")
    calls.note_client(7, hello)
    for word in ("far", "sweep.py", "sweep", "4242"):
        assert calls.has(word, SEVEN | 3)
        assert not calls.has(word, (8 << NUMBER_BITS) | 3)
        assert not calls.has(word, 3)
    assert calls.files() == {"far": str(path_of("far"))}
    calls.note_client(8, replace(hello, keep="", script=""))
    assert not calls.has("", (8 << NUMBER_BITS) | 3)


def test_the_last_are_remembered() -> None:
    calls = NamedCalls()
    for number in (1, 2, 1, *range(3, MOST_SUBMITTERS + 2)):
        calls.note(f"run{min(number, MOST_NAMES + 1)}", "", number)
    assert list(calls.files()) == [f"run{n}" for n in (1, *range(3, MOST_NAMES + 2))]
    assert [calls.has(f"run{number}", number) for number in (1, 2, 3)] == [True, False, True]
