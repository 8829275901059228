from __future__ import annotations

import gc
import pickle
from typing import Any

import pytest

from gridengine.errors import PicklingError
from gridengine.serialize import pickling, references, shared_objects
from gridengine.serialize.references import MOST_BESIDE, Reference, awaited_in, can_go_on


class Later:
    """Stands for a result; without a reference it is an object as others are."""

    def __init__(self, reference: Reference | None) -> None:
        self.reference = reference


class Dispatcher:
    def __init__(self) -> None:
        self.released: list[int] = []

    def release_references(self, references: list[int]) -> None:
        self.released += references


def find(obj: Later) -> tuple[Reference, str] | None:
    return None if obj.reference is None else (obj.reference, "source")


@pytest.fixture(autouse=True)
def _later_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references.hook(), "kinds", (Later,))
    monkeypatch.setattr(references.hook(), "find", find)


def test_references_of_calls_are_listed_once_and_found_by_name() -> None:
    one, other = Reference(), Reference()
    assert one.number != other.number
    payload = pickling.dump_calls([[Later(one), {"a": Later(one)}], Later(other)])
    assert dict(awaited_in(payload)) == {one: "source", other: "source"}
    made: list[list[int]] = []

    def load() -> list[int]:
        made.append([5])
        return made[-1]

    for reference in (one, other):
        shared_objects.register_result(reference.name, load)
    try:
        assert pickle.loads(payload[0]) == [[[5], {"a": [5]}], [5]]
    finally:
        for reference in (one, other):
            shared_objects.unregister(reference.name)
    assert len(made) == 3  # each object that stands for the result has its own
    with pytest.raises(LookupError):
        pickle.loads(payload[0])


def test_a_function_may_refer_to_results() -> None:
    later = Later(Reference())
    _, payload = pickling.dump_function(lambda: later)
    assert list(awaited_in(payload)) == [later.reference]


def test_a_reference_without_a_value_is_a_plain_object() -> None:
    payload = pickling.dump_calls([Later(None)])
    assert not awaited_in(payload)
    assert pickle.loads(payload[0])[0].reference is None


@pytest.mark.parametrize("dump", [pickling.dump, lambda obj: pickling.dump_values([obj])])
def test_elsewhere_than_in_calls_nothing_is_referred_to(dump: Any) -> None:
    assert not awaited_in(dump([Later(Reference())]))


def test_an_error_names_the_object_that_cannot_travel_beside_a_reference() -> None:
    with pytest.raises(PicklingError, match=r"the argument of call 0, at \[1\] \(a generator\)"):
        pickling.dump_calls([[Later(Reference()), (one for one in "")]])


def test_users_of_a_reference_are_told_when_it_is_gone() -> None:
    users, other = [Dispatcher(), Dispatcher()], Dispatcher()
    reference = Reference()
    number = reference.number
    for user in [*users, other]:
        reference.add_user(user)
    reference.remove_user(other)
    assert reference.is_known_to(users[0])
    assert not reference.is_known_to(other)
    del users[1:]
    gc.collect()
    del reference
    assert users[0].released == [number]
    assert other.released == []


def test_numbers_are_told_once_each_in_order() -> None:
    one, other = Reference(), Reference()
    assert references.numbers([other, one, other]) == (other.number, one.number)
    assert int.from_bytes(one.name, "big") == one.number


@pytest.mark.parametrize(
    ("size", "values", "goes_on"),
    [(MOST_BESIDE + 1, 1, True), (MOST_BESIDE, 2, True), (MOST_BESIDE + 1, 2, False)],
)
def test_a_value_goes_on_unchanged_alone_or_with_few_bytes_beside_it(
    size: int, values: int, goes_on: bool
) -> None:
    assert can_go_on([b"", bytes(size)], values) is goes_on
