"""`each` of one iterable."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.api.delayed_value import delayedval, each


@pytest.mark.parametrize(
    "given",
    [
        [delayedval(1), 2],
        (delayedval(1), 2),
        (delayedval(number) for number in (1, 2)),
        map(delayedval, (1, 2)),
        range(1, 3),
        {1: delayedval(1), 2: 2}.values(),
    ],
)
def test_one_iterable_stands_for_what_is_in_it(given: Any) -> None:
    assert each(given).result() == [1, 2]


@pytest.mark.parametrize("given", ["words", {"a": 1}, 5])
def test_one_value_that_is_no_list_is_itself(given: Any) -> None:
    assert each(given).result() == [given]


def test_one_delayed_list_is_one_value() -> None:
    assert each(delayedval([1, 2], 2)).result() == [[1, 2]]
