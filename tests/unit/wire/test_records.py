"""Records are what `dataclasses` makes of the same class."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from gridengine.wire.records import field, record


def made_by(decorator: Callable[[type], type], field: Callable[..., Any]) -> Any:
    class Worker:
        """A worker."""

        name: str
        slots: int = 1
        runs: dict[int, str] = field(default_factory=dict)

        @property
        def is_idle(self) -> bool:
            return not self.runs

    return decorator(Worker)


@pytest.fixture(params=["ours", "theirs"])
def worker(request: pytest.FixtureRequest) -> Any:
    if request.param == "ours":
        return made_by(record, field)
    return made_by(dataclasses.dataclass(slots=True, eq=False), dataclasses.field)


def test_fields_are_set_by_place_and_by_name_and_have_defaults(worker: Any) -> None:
    one, other = worker("a"), worker("b", slots=2, runs={1: "x"})
    assert (one.name, one.slots, one.runs, one.is_idle) == ("a", 1, {}, True)
    assert (other.name, other.slots, other.runs, other.is_idle) == ("b", 2, {1: "x"}, False)
    assert one.runs is not worker("c").runs


def test_there_is_room_for_the_fields_alone(worker: Any) -> None:
    with pytest.raises(AttributeError):
        worker("a").lots = 1


def test_a_missing_field_is_named(worker: Any) -> None:
    with pytest.raises(TypeError, match=r"Worker.__init__\(\) missing .*'name'"):
        worker()


def test_records_are_equal_only_to_themselves(worker: Any) -> None:
    assert worker("a") != worker("a")
    assert worker.__doc__ == "A worker."
