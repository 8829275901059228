"""Delayed functions: what they look like, and the options that they take."""

from __future__ import annotations

from typing import Any

import pytest

import gridengine
from gridengine import ConfigurationError, Cores, Memory
from gridengine.api.delayed import delayed
from tests.support.fake_dispatcher import FakeScheduler


def add(a: int, b: int = 1) -> int:
    """Add two."""
    return a + b


def test_a_delayed_function_looks_like_its_function() -> None:
    f = delayed(add)
    assert (f.__name__, f.__doc__) == ("add", "Add two.")
    assert "add" in repr(f)


def test_resources_that_are_said_twice() -> None:
    f = delayed(resources=Cores(2))(add)
    g = f @ Memory(1)
    assert g is not f
    with pytest.raises(ConfigurationError, match=r"Cores\(2\) already.*Cores again"):
        _ = f @ Cores(4)
    with pytest.raises(ConfigurationError, match="Memory"):
        _ = g @ Memory(1)
    with pytest.raises(TypeError):
        _ = f @ 3  # type: ignore[operator]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"nout": -1}, "nout"),
        ({"retries": "2"}, "retries"),
        ({"resources": 4}, "resources"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_options_are_checked_at_once(options: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ConfigurationError), match=error):
        delayed(**options)


def test_only_functions_are_delayed() -> None:
    with pytest.raises(TypeError, match="delayedval"):
        delayed(3)  # type: ignore[call-overload]


def test_the_function_below_is_had_by_its_name() -> None:
    assert vars(delayed(add))["__wrapped__"] is add


def test_a_delayed_function_is_not_mapped_or_submitted() -> None:
    words = r"submits its calls by itself: write \[f\(x\)"
    with FakeScheduler() as scheduler, gridengine.Executor(scheduler=scheduler) as executor:
        with pytest.raises(TypeError, match=words):
            gridengine.map(delayed(abs), [1], scheduler=scheduler)
        assert str(executor.submit(delayed(abs), 1).exception()).startswith("<delayed <built-in")
