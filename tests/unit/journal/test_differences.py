"""What differs between a call that a run has and a call that is handed in."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from gridengine.journal.differences import difference
from gridengine.serialize.payload import FULL, SINGLE, STAR


class Model:
    def __init__(self, size: int, *parts: Any) -> None:
        self.size, self.parts = size, {"all": list(parts)}


class New:
    """Pickles otherwise each time."""

    def __reduce__(self) -> Any:
        return str, (os.urandom(8).hex(),)


@pytest.mark.parametrize(
    ("before", "now", "form", "told"),
    [
        (1, 2, SINGLE, "the argument differs: 1 before, 2 now"),
        ((1, "a"), (1, "b"), STAR, "argument 2 differs: 'a' before, 'b' now"),
        (((1,), {"k": 1}), ((1,), {"k": 2}), FULL, "argument 'k' differs: 1 before, 2 now"),
        ((1, 2), (1,), STAR, "the number of arguments differs: 2 before, 1 now"),
        (
            Model(1, 2, 3),
            Model(1, 2, 4),
            SINGLE,
            "the argument differs at .parts['all'][1]: 3 before, 4 now",
        ),
        ([New()], [New()], SINGLE, "the argument differs at [0]: a New"),
        (Model(1, np.arange(3)), Model(1, np.arange(3)), SINGLE, ""),
    ],
)
def test_the_smallest_part_that_differs_is_named(
    before: Any, now: Any, form: int, told: str
) -> None:
    assert difference(before, now, form).replace(f"{New.__module__}.", "") == told
