"""Output is kept within bounds and passed on without waiting."""

from __future__ import annotations

import os

import pytest

from gridengine.output import Kept, Outlet, Tap


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_what_fits_is_kept_whole(step: int) -> None:
    text = bytes(range(100))
    kept = Kept(100)
    for start in range(0, 100, step):
        kept.add(text[start : start + step])
    assert kept.content() == text


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_of_what_does_not_fit_the_beginning_and_the_end_are_kept(step: int) -> None:
    text = bytes(i % 251 for i in range(300_000))
    kept = Kept(100)
    for start in range(0, len(text), step):
        kept.add(text[start : start + step])
    assert kept.content() == text[:50] + b"\n[... 299900 bytes left out ...]\n" + text[-50:]


def test_memory_for_a_flood_is_bounded() -> None:
    kept = Kept(100)
    for _ in range(1000):
        kept.add(b"x" * 65536)
        assert len(kept._tail) < 200_000


def test_a_full_outlet_is_not_waited_for_and_takes_the_rest_later() -> None:
    reading, writing = os.pipe()
    outlet = Outlet(writing)
    outlet.write(b"x" * 300_000)
    assert not outlet.flush()
    taken = b""
    while len(taken) < 300_000:
        taken += os.read(reading, 1 << 20)
        outlet.flush()
    assert taken == b"x" * 300_000
    os.close(reading)
    os.close(writing)


def test_what_an_outlet_cannot_hold_is_dropped() -> None:
    reading, writing = os.pipe()
    outlet = Outlet(writing)
    outlet.write(b"x" * 10_000_000)
    assert len(outlet._pending) <= 1 << 20
    os.close(reading)
    os.close(writing)


def test_an_outlet_that_is_closed_or_broken_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    outlet = Outlet(writing)
    outlet.write(b"x")
    assert outlet.flush()
    os.close(writing)
    outlet.write(b"x")
    assert outlet.flush()


def test_a_tap_keeps_only_what_is_written_while_it_is_asked_to() -> None:
    reading, writing = os.pipe()
    tap = Tap(reading, Outlet(os.open(os.devnull, os.O_WRONLY)))
    os.write(writing, b"before")
    tap.drain()
    tap.kept = Kept(100)
    os.write(writing, b"during")
    tap.drain()
    assert tap.kept.content() == b"during"
    os.close(writing)
    tap.drain()
    assert tap.ended
    tap.close()
