"""The place of a test, whose module is asked of one place after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.places import Place


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, _get_place: Callable[[str], Place]) -> Place:
    """Each place in turn; see tests/support/contract.py."""
    found = _get_place(request.param)
    found.wait_until_ready()
    return found


@pytest.fixture(autouse=True)
def _end_scripts(place: Place) -> Iterator[None]:
    """Kill the scripts that a test has left."""
    yield
    place.kill_children()
