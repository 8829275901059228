"""Classes that calls cannot import, as scripts write them: what they hold, and who counts as one.

Each class is local to its test, and so travels by value; calls run in a process of their own.
"""

from __future__ import annotations

import abc
import collections.abc
import dataclasses
import enum
import functools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import gridengine


@pytest.fixture(scope="module")
def scheduler() -> Iterator[gridengine.ProcessScheduler]:
    with gridengine.ProcessScheduler(1) as scheduler:
        yield scheduler


@pytest.fixture
def called(scheduler: gridengine.ProcessScheduler) -> Callable[[Callable[[], Any]], Any]:
    """Return the result of one call of a function in another process."""

    def called(f: Callable[[], Any]) -> Any:
        return gridengine.starmap(f, [()], scheduler=scheduler)[0]

    return called


Called = Callable[[Callable[[], Any]], Any]


def in_a_dict() -> Callable[[], Any]:
    class Reader:
        table: dict[str, Callable[[], str]] = {}  # noqa: RUF012

        @classmethod
        def load(cls) -> str:
            return cls.__name__

    Reader.table["x"] = Reader.load
    return lambda: Reader.table["x"]()


def in_a_partial() -> Callable[[], Any]:
    class Reader:
        made: Callable[[], str]

        @classmethod
        def load(cls) -> str:
            return cls.__name__

    Reader.made = functools.partial(Reader.load)
    return lambda: Reader.made()


def as_a_default() -> Callable[[], Any]:
    class Reader:
        @classmethod
        def load(cls) -> str:
            return cls.__name__

    def read(_: Any, load: Callable[[], str] = Reader.load) -> str:
        return load()

    Reader.read = read  # type: ignore[attr-defined]
    return lambda: Reader().read()  # type: ignore[attr-defined]


def in_a_dataclass() -> Callable[[], Any]:
    @dataclasses.dataclass
    class Reader:
        table = []  # type: ignore[var-annotated] # noqa: RUF012

        @classmethod
        def load(cls) -> str:
            return cls.__name__

    Reader.table.append(Reader.load)
    return lambda: Reader.table[0]()


def in_an_enumeration() -> Callable[[], Any]:
    class Reader(enum.Enum):
        ONE = 1

        @classmethod
        def load(cls) -> str:
            return cls.__name__

    Reader.table = {"x": Reader.load}  # type: ignore[attr-defined]
    return lambda: Reader.table["x"]()  # type: ignore[attr-defined]


def inherited() -> Callable[[], Any]:
    class Base:
        table: list[Callable[[], str]] = []  # noqa: RUF012

        @classmethod
        def load(cls) -> str:
            return cls.__name__

    class Reader(Base):
        pass

    Base.table.append(Reader.load)
    return lambda: Reader.table[0]()


def of_an_instance() -> Callable[[], Any]:
    class Reader:
        table: list[Callable[[], str]] = []  # noqa: RUF012

        def __init__(self) -> None:
            self.name = "Reader"
            self.table.append(self.load)

        def load(self) -> str:
            return self.name

    Reader()
    return lambda: Reader.table[0]()


@pytest.mark.parametrize(
    "made",
    [
        in_a_dict,
        in_a_partial,
        as_a_default,
        in_a_dataclass,
        in_an_enumeration,
        inherited,
        of_an_instance,
    ],
)
def test_a_class_may_hold_a_bound_method_of_itself(
    called: Called, made: Callable[[], Callable[[], Any]]
) -> None:
    assert called(made()) == "Reader"


def test_a_method_that_a_class_holds_equals_its_own_method(called: Called) -> None:
    class Reader:
        table: list[Callable[[], str]] = []  # noqa: RUF012

        @classmethod
        def load(cls) -> str:
            return cls.__name__

    Reader.table.append(Reader.load)
    for _ in range(2):  # the second time the class is known there
        assert called(lambda: Reader.table[0] == Reader.load)


@pytest.mark.promise
def test_classes_registered_with_a_script_s_abstract_class_count_in_calls(called: Called) -> None:
    class Shape(abc.ABC):  # noqa: B024
        pass

    @Shape.register
    class Square:
        pass

    Shape.register(int)
    assert called(lambda: [isinstance(one, Shape) for one in (Square(), 1, "")]) == [
        True,
        True,
        False,
    ]


@pytest.mark.promise
def test_a_class_that_a_script_has_registered_as_a_sequence_is_one_in_calls(called: Called) -> None:
    @collections.abc.Sequence.register
    class Row:
        pass

    assert called(lambda: isinstance(Row(), collections.abc.Sequence))


def test_a_registration_between_two_calls_counts_in_the_second(called: Called) -> None:
    class Row:
        pass

    def is_set() -> bool:
        return isinstance(Row(), collections.abc.Set)

    assert not called(is_set)
    collections.abc.Set.register(Row)
    assert called(is_set)


def test_a_class_whose_metaclass_does_not_let_it_be_made_again_is_named_with_a_remedy(
    called: Called,
) -> None:
    class Point(msgspec.Struct):
        x: int = 0

    with pytest.raises(gridengine.PicklingError, match=r"class Point .*StructMeta") as caught:
        called(lambda: Point(1))
    assert (
        caught.value.hint
        == "put the class into a module beside the script, and import it from there"
    )


class Delegating:
    def __init__(self, target: object) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


@pytest.mark.parametrize(
    "call",
    [
        lambda one, **where: gridengine.starmap(lambda: one, [()], **where),
        lambda one, **where: gridengine.map(type, [one], **where),
        lambda one, **where: gridengine.map(Delegating, [[]], **where),
    ],
    ids=["captured", "argument", "result"],
)
def test_a_class_whose_getattr_calls_itself_without_end_is_named(
    scheduler: gridengine.ProcessScheduler, call: Callable[..., Any]
) -> None:
    with pytest.raises(gridengine.PicklingError, match=r"class Delegating .*__getattr__"):
        call(Delegating([]), scheduler=scheduler)


def test_a_class_that_says_that_it_is_of_another_module_travels_by_its_own(called: Called) -> None:
    with pytest.raises(pytest.skip.Exception, match="not today"):
        called(lambda: pytest.skip("not today"))
