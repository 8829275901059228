"""Of a stream of any length its beginning and its end are kept."""

from __future__ import annotations

import pytest

from gridengine.worker.output_limits import OutputExcerpt


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_what_fits_is_kept_whole(step: int) -> None:
    text = bytes(range(100))
    kept = OutputExcerpt(100)
    for start in range(0, 100, step):
        kept.add(text[start : start + step])
    assert kept.content() == text


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_of_what_does_not_fit_the_beginning_and_the_end_are_kept(step: int) -> None:
    text = bytes(i % 251 for i in range(30_000))
    kept = OutputExcerpt(100)
    for start in range(0, len(text), step):
        kept.add(text[start : start + step])
    assert kept.content() == text[:50] + b"\n[... 29900 bytes left out ...]\n" + text[-50:]


def test_memory_for_a_flood_is_bounded() -> None:
    kept = OutputExcerpt(100)
    for _ in range(1000):
        kept.add(b"x" * 65536)
        assert len(kept._tail) < 200_000
