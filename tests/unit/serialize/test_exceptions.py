"""Exceptions arrive as they were."""

from __future__ import annotations

import bdb
import dataclasses
import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gridengine.errors import ConfigurationError, PicklingError, RemoteTraceback, WorkerCrashed
from gridengine.serialize import pickling
from gridengine.serialize.exceptions import NO_TERMINAL, PAIRS, note_remedy


class Held:
    lock = threading.Lock()  # one that a module offers under a name travels by that


def through(obj: Any) -> Any:
    return pickling.load(pickling.dump(obj))


class NotBack:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_our_own_errors_keep_all_they_know() -> None:
    error = WorkerCrashed(
        "died", host="node7", job="12.3", log="/log", log_tail="end", attempts=["one"], hint="look"
    )
    came = back(error)
    assert type(came) is WorkerCrashed
    assert (vars(came), str(came)) == (vars(error), str(error))
    assert isinstance(through(ConfigurationError("x")), ValueError)


class Odd(AttributeError):
    def __init__(self, what: str, more: int) -> None:
        super().__init__(f"no {what}", name=what)
        self.more = more


class Named(AttributeError):
    @property
    def name(self) -> str:  # type: ignore[override]
        return "its own"


def raised_by(act: Callable[[], Any]) -> Exception:
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def back(error: BaseException) -> Any:
    return pickling.load_exception(pickling.dump_exception(error))


def test_builtin_exceptions_keep_attributes_that_are_no_arguments() -> None:
    assert back(raised_by(lambda: (3).nothing)).name == "nothing"  # type: ignore[attr-defined]
    assert back(raised_by(lambda: undefined)).name == "undefined"  # type: ignore[name-defined]  # noqa: F821
    missing = raised_by(lambda: exec("import nowhere.at_all"))
    assert (back(missing).name, back(missing).msg) == ("nowhere", "No module named 'nowhere'")
    syntax = raised_by(lambda: compile("a b", "file", "exec"))
    syntax.text = "another"  # type: ignore[attr-defined]
    assert (back(syntax).text, back(syntax).lineno) == ("another", 1)
    leave = SystemExit(1)
    leave.code = 3
    assert back(leave).code == 3
    assert back(raised_by(Path("/nowhere").open)).filename == "/nowhere"
    assert back(raised_by(lambda: "ä".encode("ascii"))).start == 0
    assert (
        back(ExceptionGroup("two", [raised_by(lambda: (3).nothing)])).exceptions[0].name
        == "nothing"
    )  # type: ignore[attr-defined]


def test_exceptions_of_ones_own_keep_the_attributes_of_their_builtin_base() -> None:
    odd = back(Odd("colour", 3))
    assert (odd.name, odd.more, str(odd)) == ("colour", 3, "no colour")
    assert back(Named("x")).name == "its own"
    locked = Odd("colour", 3)
    locked.more = Held.lock  # type: ignore[assignment]
    assert back(locked).name == "colour"


def test_the_object_that_lacked_an_attribute_comes_when_it_can() -> None:
    assert back(AttributeError("no", name="x", obj=[1])).obj == [1]
    for obj in (Held.lock, b"x" * 1_000_000, NotBack()):
        error = back(AttributeError("no", name="x", obj=obj))
        assert (error.name, error.obj) == ("x", None)
    circle = AttributeError("no", name="x")
    circle.obj = [circle]
    assert back(circle).obj[0].name == "x"


def test_the_traceback_begins_with_the_users_frames() -> None:
    space: dict[str, Any] = {}
    ours = Path(pickling.__file__).with_name("runner.py")
    exec(
        compile(
            "def call(f):\n    try: f()\n    except Exception as error: return error", ours, "exec"
        ),
        space,
    )
    error = space["call"](lambda: functools.reduce(lambda a, b: a / b, [1, 0]))
    cause = back(error).__cause__
    assert isinstance(cause, RemoteTraceback)
    assert "runner.py" not in cause.text
    assert "lambda a, b: a / b" in cause.text


def test_an_exception_whose_repr_fails_still_arrives() -> None:
    class Bad:
        lock = Held.lock

        def __reduce__(self) -> Any:
            raise TypeError("no")

        def __repr__(self) -> str:
            raise ValueError("no repr")

    error = KeyError("key")
    error.bad = Bad()  # type: ignore[attr-defined]
    came = back(error)
    assert type(came) is KeyError
    assert "whose repr raised ValueError" in came.bad  # type: ignore[attr-defined]


class Unhelpful(Exception):
    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def test_an_exception_whose_own_code_fails_still_arrives() -> None:
    error = raised_by(lambda: (_ for _ in ()).throw(Unhelpful("text")))
    came = back(error)
    assert type(came) is Unhelpful
    assert came.args == ("text",)
    assert (
        "Unhelpful (its text cannot be had: KeyError)"
        if sys.version_info < (3, 13)
        else "Unhelpful: text"
    ) in came.__cause__.text
    assert "raised_by" in came.__cause__.text


class Textless(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_exception_that_cannot_be_pickled_for_an_error_without_a_text_is_named() -> None:
    class Stubborn(Exception):
        def __reduce__(self) -> Any:
            raise Textless

    came = back(Stubborn())
    assert type(came) is PicklingError
    assert "Stubborn" in str(came)
    assert "Textless, whose text raised ValueError" in str(came)


def test_an_exception_that_is_none_where_it_arrives_is_named() -> None:
    class NotBack(Exception):
        def __reduce__(self) -> Any:
            return int, ("no number",)

    came = back(NotBack("x"))
    assert type(came) is PicklingError
    assert "NotBack: x" in str(came.__cause__)


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    lock: Any


def test_only_the_exception_that_arrives_has_a_note_of_lost_parts() -> None:
    for error in (Frozen(Held.lock), ValueError(Held.lock)):
        arrived = [back(error) for _ in range(2)]
        assert [type(one) for one in arrived] == [type(error)] * 2
        error.__dict__["__notes__"] = ["mine"]
        arrived += [back(error) for _ in range(2)]
        assert [len(one.__notes__) for one in arrived] == [1, 1, 2, 2]
        assert error.__notes__ == ["mine"]


def test_unpicklable_exceptions_of_a_group_arrive_as_copies() -> None:
    arrived = back(ExceptionGroup("two", [ValueError(Held.lock), KeyError("k")]))
    assert [type(one) for one in arrived.exceptions] == [ValueError, KeyError]


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted(Exception):
    count: int


def test_a_frozen_dataclass_with_slots_arrives_with_its_fields_and_notes() -> None:
    error = Slotted(3)
    error.__dict__["__notes__"] = ["mine"]
    arrived = back(error)
    assert isinstance(arrived, Slotted)
    assert (arrived.count, arrived.__notes__) == (3, ["mine"])


class Awkward(Exception):
    @property
    def __dict__(self) -> Any:
        raise RuntimeError

    __notes__ = property(lambda _: ["its own"])


def test_an_exception_that_shows_none_of_its_attributes_is_named() -> None:
    error = back(Awkward())
    assert isinstance(error, PicklingError)
    assert "Awkward" in str(error)


class Pointed(Exception):
    """Like the errors of formulas: its text needs an attribute that cannot be pickled."""

    def __init__(self, origin: Any) -> None:
        super().__init__("no column x")
        self.origin = origin

    def __str__(self) -> str:
        return f"{self.args[0]} at {self.origin.place()}"


class Origin(Held):
    def __getstate__(self) -> Any:
        raise NotImplementedError

    def place(self) -> str:
        return "y ~ x"


def test_an_exception_whose_text_is_lost_on_the_way_has_it_as_a_note() -> None:
    error = pickling.load_exception(pickling.dump_exception(Pointed(Origin())))
    assert type(error) is Pointed
    assert "its text in the call: no column x at y ~ x" in error.__notes__  # type: ignore[attr-defined]


def test_a_text_that_arrives_is_not_repeated() -> None:
    error = ValueError("no column x")
    error.origin = Origin()  # type: ignore[attr-defined]
    [note] = pickling.load_exception(pickling.dump_exception(error)).__notes__  # type: ignore[attr-defined]
    assert note == "(could not be pickled, and is shown by its repr: origin)"


@pytest.mark.parametrize(
    ("error", "argument", "note"),
    [
        (EOFError("EOF when reading a line"), 1, NO_TERMINAL),
        (bdb.BdbQuit(), 1, NO_TERMINAL),
        (TypeError("f() missing 1 required positional argument: 'b'"), (1, 2), PAIRS),
        (TypeError("f() missing 1 required positional argument: 'b'"), 1, None),
        (ValueError("no number"), 1, None),
    ],
)
def test_an_error_that_calls_alone_have_gets_a_remedy(
    error: BaseException, argument: object, note: str | None
) -> None:
    note_remedy(error, argument)
    assert getattr(error, "__notes__", []) == ([note] if note else [])
