"""What `gridengine results` writes of values that a format has no words for."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gridengine.cli.results import WRITERS
from gridengine.errors import ConfigurationError

CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize("value", [{(1, 2): 3}, {1, "a"}, b"x", CIRCLE])
def test_json_is_said_to_have_nothing_for_a_value(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"JSON has nothing for [\s\S]*--format pickle"):
        WRITERS["jsonl"]([value])


def test_numbers_that_json_does_not_have_are_null() -> None:
    value = {"a": [math.nan, 1.5], "b": (-math.inf,), "c": "NaN"}
    [line] = WRITERS["jsonl"]([value]).splitlines()
    assert line == b'{"result": {"a": [null, 1.5], "b": [null], "c": "NaN"}}'


def test_text_that_is_no_unicode_is_escaped_in_csv() -> None:
    assert WRITERS["csv"](["\ud800"]) == b"result\r\n\\ud800\r\n"
