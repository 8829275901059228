"""What travels by name and what by value, what is copied, and what errors say."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.errors import PicklingError
from gridengine.serialize import pickling


class NotBack:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_results_that_are_cut_off_are_an_error() -> None:
    [body] = pickling.dump_values([1, 2])
    with pytest.raises(PicklingError, match="the results cannot be rebuilt here"):
        pickling.load_values([bytes(body)[:-2]])


def test_what_cannot_be_rebuilt_is_an_error() -> None:
    (value,), complete = pickling.load_values(pickling.dump_values([NotBack()]))
    assert not complete
    assert isinstance(value.error, PicklingError)
    assert "cannot be rebuilt here: ValueError: invalid literal" in str(value.error)
    with pytest.raises(ValueError, match="invalid literal"):
        pickling.load(pickling.dump_calls([NotBack()]))
