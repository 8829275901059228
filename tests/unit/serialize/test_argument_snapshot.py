"""Arguments that can never change."""

from __future__ import annotations

import pytest

from gridengine.serialize.argument_snapshot import SHORT, is_constant


@pytest.mark.parametrize("value", [None, True, 3, 2.5, 1j, "a" * SHORT, b"a", (1, "a", b"b"), ()])
def test_short_values_that_cannot_change_are_constant(value: object) -> None:
    assert is_constant(value)


class Number(int):
    """A number that may have attributes."""


@pytest.mark.parametrize(
    "value",
    [
        "a" * (SHORT + 1),
        b"a" * (SHORT + 1),
        (0,) * (SHORT + 1),
        [1],
        ("a", "b" * 999),
        ((1,),),
        Number(3),
    ],
)
def test_long_or_mutable_arguments_are_not_copied(value: object) -> None:
    assert not is_constant(value)
