"""Calls in this very process. How they run: `tests/unit/calls/test_inline.py`."""

from __future__ import annotations

import pytest

from gridengine.errors import ConfigurationError
from gridengine.schedulers.inline import InlineScheduler


@pytest.mark.parametrize("number", [None, 1, 50])
def test_a_number_of_workers_is_taken_and_has_no_effect(number: int | None) -> None:
    scheduler = InlineScheduler(max_workers=number)
    assert (scheduler.max_workers, repr(scheduler)) == (1, "InlineScheduler()")


@pytest.mark.parametrize(("number", "error"), [(0, ConfigurationError), ("2", TypeError)])
def test_what_is_no_number_of_workers_is_refused(number: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_workers"):
        InlineScheduler(number)  # type: ignore[arg-type]
