"""Calls of functions by their names, in JSON and msgpack, as clients in other languages make
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.named_client import NamedClient
from tests.support.standalone import Standalone

MODULE = """
import os

class Table:
    @staticmethod
    def size(rows):
        return len(rows)

def described(rate, *, steps=1):
    return {"rate": rate, "steps": steps, "parent": os.getppid()}

async def doubled(x):
    return 2 * x

def failing(x):
    raise ValueError(f"no {x}")

def leaving(x):
    os._exit(3)
"""


@pytest.fixture(params=["json", "msgpack"])
def named(standalone: Standalone, request: pytest.FixtureRequest) -> Iterator[NamedClient]:
    made = NamedClient(standalone.path, request.param)
    yield made
    made.close()


@pytest.fixture
def path(tmp_path: Path) -> tuple[bytes, ...]:
    (tmp_path / "by_name.py").write_text(MODULE)
    return (bytes(tmp_path),)


def test_methods_and_coroutine_functions_have_names_too(
    named: NamedClient, path: tuple[bytes, ...]
) -> None:
    assert named.results("by_name:Table.size", [[1, 2, 3]], path=path) == [3]
    assert named.results("by_name:doubled", [4], path=path) == [8]


def test_a_function_is_imported_in_a_runner_and_not_in_the_dispatcher(
    named: NamedClient, path: tuple[bytes, ...], standalone: Standalone
) -> None:
    [told] = named.results("by_name:described", [[[1], {}]], form=2, path=path)
    assert told["parent"] != standalone.process.pid


def test_errors_of_the_dispatcher_come_in_the_same_form(
    named: NamedClient, path: tuple[bytes, ...]
) -> None:
    item, told = named.outcome(named.submit("by_name:leaving", [1], path=path, retries=0))
    assert (item.failed, item.exitcode) == (True, 3)
    assert told["type"] == "WorkerCrashed"


def test_calls_by_name_cannot_refer_to_the_results_of_others(named: NamedClient) -> None:
    item, told = named.outcome(named.submit("math:sqrt", [1], kept=[(0, 77)]))
    assert item.failed
    assert "no futures" in told["message"]
