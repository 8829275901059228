"""Checks of users' arguments."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.arguments import flag, number, whole
from gridengine.errors import ConfigurationError


def test_a_number_too_small_and_one_too_large_have_different_errors() -> None:
    with pytest.raises(ConfigurationError) as small:
        whole("N", 0, hint="say none")
    with pytest.raises(ConfigurationError) as large:
        whole("N", 10**30, hint="say none")
    assert (small.value.hint, large.value.hint) == ("say none", None)


class bool_:
    def __bool__(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("value", "means"), [(True, True), (False, False), (1, True), (0, False), (bool_(), False)]
)
def test_truth_values_are_taken(value: object, means: bool) -> None:
    assert flag("wait", value) is means


@pytest.mark.parametrize("value", ["no", "", None, 2, 1.0, [], [True]])
def test_a_value_that_is_no_truth_value_is_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError) as raised:
        flag("wait", value)
    assert str(raised.value) == f"wait must be True or False, not {value!r}"


@pytest.mark.parametrize("check", [number, whole])
@pytest.mark.parametrize("value", [True, "3", None])
def test_a_truth_value_is_no_number(check: Any, value: object) -> None:
    with pytest.raises(TypeError, match="N must be a"):
        check("N", value)
