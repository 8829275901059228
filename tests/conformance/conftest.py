"""Marks CPython's tests: those that are about something else are left out, and those that cannot
hold must fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.expected_failures import (
    CONCURRENT_FUTURES,
    HANG_SECONDS,
    MULTIPROCESSING,
    OTHERS,
)

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if item.path.parent == HERE and name_of(item) in OTHERS]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
    for item in items:
        if item.path.parent == HERE:
            item.add_marker("conformance")
            failure = {**CONCURRENT_FUTURES, **MULTIPROCESSING}.get(name_of(item))
            if failure is not None:
                item.add_marker(
                    pytest.mark.xfail(reason=failure.reason, strict=True, run=failure.run)
                )
                if failure.hangs:
                    item.add_marker(pytest.mark.timeout(HANG_SECONDS))


def name_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[2]
