"""Classes by value, and the table of those that a process knows."""

from __future__ import annotations

import enum
import gc
import sys
import sysconfig
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gridengine.serialize import classes, pickling


def local_class() -> type:
    class Local:
        def me(self) -> bool:
            return type(self) is Local

    return Local


def through(obj: Any) -> Any:
    return pickling.load(pickling.dump(obj))


def test_a_class_in_the_same_process_is_the_same_class() -> None:
    cls = local_class()
    assert through(cls) is cls
    assert type(through(cls())) is cls
    assert through(lambda: cls().me())() is True


def test_a_method_hidden_by_a_subclass_stays_the_one_it_was() -> None:
    class Base:
        def who(self) -> str:
            return "base"

    class Sub(Base):
        def who(self) -> str:
            return "sub"

        def base(self) -> Callable[[], str]:
            return super().who

    assert through(Sub().base())() == "base"


def test_a_class_that_was_written_within_another_is_made_with_its_whole_name() -> None:
    class Inner: ...

    Inner.__qualname__ = "Outer.Inner"
    made = classes.make_class(b"unlike all others", type, "Inner", *classes.beginnings(Inner))
    assert (made.__name__, made.__qualname__) == ("Inner", "Outer.Inner")


def test_many_threads_agree_on_one_class() -> None:
    cls = local_class()
    with ThreadPoolExecutor(8) as pool:
        back = list(pool.map(lambda _: type(through(cls())), range(200)))
    assert set(back) == {cls}


@pytest.mark.skipif(
    sys.version_info < (3, 14) and bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="from its first thread on, a 3.13t never frees a class or function",
)
def test_unused_classes_are_forgotten_in_the_end() -> None:
    first = weakref.ref(local_class())
    pickling.dump(first())
    gc.collect()
    assert first() is not None
    for _ in range(classes.RECENT_CLASSES):
        pickling.dump(local_class())
    gc.collect()
    assert first() is None


def test_a_function_that_is_a_member_of_an_enumeration_stays_one() -> None:
    class Rule(enum.Enum):
        DOUBLE = enum.member(lambda x: 2 * x)

        def apply(self, x: int) -> int:
            return self.value(x)  # type: ignore[no-any-return]

    token = b"another that is unlike all others"
    made: Any = classes.make_class(token, enum.EnumType, "Rule", *classes.beginnings(Rule))
    assert list(made.__members__) == ["DOUBLE"]
    assert made.DOUBLE.value(2) == 4
