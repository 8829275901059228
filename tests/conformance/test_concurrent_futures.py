"""CPython's tests of `concurrent.futures`, of `gridengine.Executor`."""

from __future__ import annotations

import pytest

from tests.conformance.cpython import is_test, why_not
from tests.conformance.expected_failures import CONCURRENT_FUTURES

if why_not():
    pytest.skip(why_not(), allow_module_level=True)

from tests.conformance import futures_suite

PREFIX = "ProcessPoolSpawn"
"""Of the classes that there are for each way to start processes, which is ours to say, those of
one.
"""

globals().update(
    {
        name.removeprefix(PREFIX): case
        for name, case in vars(futures_suite).items()
        if name.startswith(PREFIX) and name.endswith("Test")
    }
)


def test_each_expected_failure_is_a_test_of_cpython() -> None:
    assert [name for name in CONCURRENT_FUTURES if not is_test(name, globals())] == []
