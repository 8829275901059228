"""Functions taken apart and put together, and annotations, which travel as code."""

from __future__ import annotations

import functools
import linecache
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gridengine.api.job_target import accepts_controller
from gridengine.serialize import classes, functions, pickling
from gridengine.serialize.by_value import define
from gridengine.serialize.encoding import encode
from gridengine.serialize.payload import FULL


def through(obj: Any) -> Any:
    return pickling.load(pickling.dump(obj))


def test_a_function_by_value_is_a_new_one_with_only_the_global_variables_it_names() -> None:
    function = through(lambda: FULL)
    assert function() == FULL
    assert set(function.__globals__) <= {
        "FULL",
        "__name__",
        "__package__",
        "__file__",
        "__builtins__",
    }


def test_an_empty_closure_cell_stays_empty() -> None:
    def outer() -> Callable[[], int]:
        def inner() -> int:
            return later

        if not outer:
            later = 1
        return inner

    with pytest.raises(NameError):
        through(outer())()


def test_lines_that_no_file_has_are_noted_and_lines_of_files_are_not() -> None:
    functions.note_source("<nowhere 7>", 3, ["third\n", "fourth\n"])
    functions.note_source("<nowhere 7>", 1, ["first\n"])
    linecache.checkcache()
    assert [linecache.getline("<nowhere 7>", number) for number in (1, 3, 4)] == [
        "first\n",
        "third\n",
        "fourth\n",
    ]
    functions.note_source(__file__, 1, ["wrong\n"])
    assert linecache.getline(__file__, 1).startswith('"""')


pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="older Pythons evaluate annotations when they are written"
)

SCRIPT = """
import abc, collections.abc, dataclasses, enum
from typing import NamedTuple, Protocol, TypedDict
"""
KINDS = {
    "a plain class": "class Made: x: {}",
    "a method": "class Made:\n def f(self, x: {}): ...",
    "an abstract class": "class Made(abc.ABC): x: {}",
    "an heir of an abstract class": """
class Abstract(abc.ABC): y: int = 1
class Made(Abstract): x: {}
""",
    "a protocol": "class Made(Protocol): x: {}",
    "an heir of collections.abc": """
class Made(collections.abc.Sized):
    x: {}
    def __len__(self): return 3
""",
    "a dataclass": "@dataclasses.dataclass\nclass Made: x: {}",
    "a frozen dataclass with slots": """
class Abstract(abc.ABC): y: int = 1
@dataclasses.dataclass(frozen=True, slots=True)
class Made(Abstract): x: list[{}]
""",
    "a named tuple": "class Made(NamedTuple): x: {}",
    "a typed dict": "class Made(TypedDict): x: {}",
    "an enumeration": "class Made(enum.Enum):\n A = 1\n x: {}",
    "a generic class": "class Made[T: {}, U: ({}, str), V = {}]: x: {}",
    "annotations under a condition": "class Made:\n if True: x: {}",
    "a function": "def Made(x: {}) -> None: ...",
    "a generic function": "def Made[T: {}](x: {}) -> T: ...",
    "a closure that is not filled": """
def make():
    def made(x: later): ...
    return made
    later = 1
Made = make()
""",
}


def written(source: str, **names: Any) -> Any:
    """Return what a script of this text calls `Made`."""
    space = {"__name__": "__main__", **names}
    exec(compile(SCRIPT + source, "script", "exec", dont_inherit=True), space)
    return space["Made"]


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what passes an object through C pickle to a process that knows none of its classes."""

    def through(obj: Any) -> Any:
        payload = encode(obj, {})
        monkeypatch.setattr(classes, "known_classes", functools.cache(classes.KnownClasses))
        return pickling.load(payload)

    return through


def annotations(made: Any) -> dict[str, Any]:
    import annotationlib

    return annotationlib.get_annotations(made, format=annotationlib.Format.STRING)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("annotation", ["int", "OnlyForTypeCheckers"])
def test_annotated_objects_travel_with_their_annotations(
    kind: str, annotation: str, elsewhere: Any
) -> None:
    made = written(KINDS[kind].replace("{}", annotation))
    arrived = elsewhere(made)
    assert arrived is not made
    assert annotations(arrived) == annotations(made)


def test_annotations_find_the_names_of_their_module_class_and_function(elsewhere: Any) -> None:
    made = written("""
class Global: ...
def make(Local):
    class Made:
        class Inner: ...
        a: Global
        b: Local
        c: Inner
        def f(self, x: Inner) -> Global: ...
    return Made
Made = make(Global)
""")
    arrived = elsewhere(made)
    names = {name: one.__name__ for name, one in arrived.__annotations__.items()}
    assert names == {"a": "Global", "b": "Global", "c": "Inner"}
    assert arrived.f.__annotations__["x"] is arrived.Inner
    assert arrived.f.__annotations__["return"] is arrived.__annotations__["a"]


def test_an_object_that_only_annotations_name_stays_behind_if_it_cannot_be_pickled(
    elsewhere: Any,
) -> None:
    source = """
class Holder:
    class Model: ...
class Made:
    x: holder.Model
    def f(self, x: holder.Model): ...
holder = Holder()
holder.lock = lock
"""
    arrived = elsewhere(written(source, lock=None))
    assert arrived.__annotations__["x"].__name__ == "Model"
    assert arrived.f.__annotations__["x"].__name__ == "Model"
    arrived = elsewhere(written(source, lock=threading.Lock()))
    assert annotations(arrived) == {"x": "holder.Model"}
    with pytest.raises(NameError):
        arrived.f.__annotations__  # noqa: B018


def test_annotations_are_not_evaluated_on_the_way(elsewhere: Any) -> None:
    evaluated: list[int] = []
    source = """
class Made:
    x: evaluated.append(1)
    def __init__(self, controller: evaluated.append(4) = None): ...
    def __call__(self, x: evaluated.append(2), controller: evaluated.append(3)): ...
"""
    made = written(source, evaluated=evaluated)
    elsewhere(made())
    elsewhere(made.__call__)
    assert accepts_controller(made)
    assert accepts_controller(made(), (1,))
    assert accepts_controller(made().__call__, (1,))
    assert accepts_controller(functools.partial(made.__call__, 1), (2,))
    assert not evaluated


@pytest.mark.filterwarnings("error")
def test_deprecated_classes_of_python_do_not_warn_a_script_that_sends_its_own(
    elsewhere: Any,
) -> None:
    classes._registrars.cache_clear()
    assert elsewhere(written(KINDS["an abstract class"].replace("{}", "int")))


@pytest.mark.parametrize("kind", ["a plain class", "a class without annotations"])
def test_a_class_whose_annotations_were_looked_at_is_the_same_definition(kind: str) -> None:
    made = written(KINDS.get(kind, "class Made: x = 1").replace("{}", "int"))
    before = define(made, {})[1]
    assert made.__annotations__ is not None
    assert made.__annotate__ is None or made.__annotate__
    assert define(made, {})[1] == before


def test_a_class_that_arrives_again_forgets_the_annotations_that_it_had(elsewhere: Any) -> None:
    made = written("class Made: x: T", T=int)
    arrived = elsewhere(made)
    assert arrived.__annotations__ == {"x": int}
    made.__annotate__ = written("class Made: y: str").__annotate__
    assert pickling.load(encode(made, {})) is arrived
    assert arrived.__annotations__ == {"y": str}


def test_annotations_that_were_assigned_travel_as_they_are(elsewhere: Any) -> None:
    made = written("class Made:\n x: int\n def f(self, x: int): ...")
    made.__annotations__ = {"y": str}
    made.f.__annotations__ = {"z": float}
    arrived = elsewhere(made)
    assert arrived.__annotations__ == {"y": str}
    assert arrived.f.__annotations__ == {"z": float}
