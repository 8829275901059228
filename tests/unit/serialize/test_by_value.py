"""What travels by name, and what the receiver has of its own."""

from __future__ import annotations

import functools
import io
import sys
import threading
import types
from concurrent.futures import Future
from typing import Any

import pytest

from gridengine.errors import WorkerCrashed
from gridengine.serialize import pickling


def through(obj: Any) -> Any:
    return pickling.load(pickling.dump(obj))


def test_importable_objects_travel_by_name() -> None:
    assert through(functools.reduce) is functools.reduce
    assert through(WorkerCrashed) is WorkerCrashed
    assert len(pickling.dump(pickling.dump_calls)[0]) < 100


def test_the_standard_streams_are_those_of_the_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    payload = pickling.dump(sys.stdout)
    monkeypatch.setattr(sys, "stdout", other := io.StringIO())
    assert pickling.load(payload) is other


@pytest.mark.parametrize(
    "name",
    [
        "argument_snapshot.restore",
        "by_value.make_lru_cache",
        "byte_code.load_code",
        "classes.fill_classes",
        "classes.find_class",
        "classes.make_class",
        "exceptions.fill_exception",
        "exceptions.load_optional",
        "exceptions.make_exception",
        "expressions.compute",
        "expressions.gather",
        "expressions.with_fields",
        "functions.fill_cell",
        "functions.fill_function",
        "functions.make_function",
        "lazy_imports.make",
        "mapped_files.open_again",
        "named_objects.find_offered",
        "namespaces.find",
        "pickling.RetriedFunction",
        "sentinels.find",
        "shared_objects.find",
        "shared_objects.identity",
        "type_parameters.Deferred",
        "type_parameters.fill",
        "type_parameters.fill_all",
        "type_parameters.make_alias",
        "type_parameters.make_lazy_variable",
    ],
)
def test_names_in_stored_pickles_are_found(name: str) -> None:
    """Files of named runs have pickles of older versions of the package."""
    module, _, function = name.partition(".")
    stored = f"cgridengine.serialize.{module}\n{function}\n.".encode()  # GLOBAL, STOP
    assert pickling.load([stored]).__qualname__ == function


def global_names_of(text: str, **variables: Any) -> set[str]:
    """Return which of these global variables a function of a script takes along for a text."""
    space: dict[str, Any] = {"__name__": "__main__", **variables}
    exec(f"def f(): return eval({text!r})", space)
    return through(space["f"]).__globals__.keys() & variables.keys()


def test_a_function_has_the_global_variables_that_its_texts_name() -> None:
    assert global_names_of("one + two(3)", one=1, two=lambda x: x, three=3) == {"one", "two"}


class Sized:
    """Like an array or a frame, which would be copied when it is pickled."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __reduce__(self) -> Any:
        pytest.fail("it is pickled")


@pytest.mark.parametrize(
    "value",
    [
        b"0" * 1_000_001,
        [b"0" * 600_000] * 2 + [bytes(600_000)],
        Sized(nbytes=1_000_001),
        Sized(estimated_size=lambda: 1_000_001),
        threading.Lock(),
        Future(),
    ],
    ids=["large", "large parts", "an array", "a frame", "a lock", "a future"],
)
def test_objects_named_only_in_texts_stay_behind_if_large_or_unpicklable(value: Any) -> None:
    assert global_names_of("one + value", one=1, value=value) == {"one"}


def test_functions_whose_texts_name_each_other_travel() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    source = "def even(n): return n == 0 or eval('odd(n - 1)')\n"
    source += "def odd(n): return n != 0 and eval('even(n - 1)')"
    exec(source, space)
    assert through(space["even"])(4) is True


@pytest.mark.parametrize("reached", ["xml.dom.Node", "eval('xml.dom.Node')"])
def test_submodules_that_a_function_or_its_text_reaches_are_imported(reached: str) -> None:
    import xml.dom

    space: dict[str, Any] = {"__name__": "__main__", "xml": xml}
    exec(f"def f(): return {reached}", space)
    payload = pickling.dump(space["f"])
    dom = sys.modules.pop("xml.dom")
    try:
        pickling.load(payload)
        assert "xml.dom" in sys.modules
    finally:
        sys.modules["xml.dom"] = xml.dom = dom


class Raises:
    """Cannot be loaded."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        return _raise, (self.error,)


def _raise(error: type[BaseException]) -> None:
    raise error


def test_objects_named_only_in_texts_are_left_out_where_unloadable() -> None:
    others = {"error": Raises(ValueError), "left": Raises(SystemExit), "one": None}
    assert global_names_of("error(), left(), one()", **others) == {"one"}


def test_a_module_that_only_a_text_names_need_not_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("not_at_the_worker")
    module.part, module.__path__ = types.ModuleType("not_at_the_worker.part"), []  # type: ignore[attr-defined]
    space: dict[str, Any] = {"__name__": "__main__", "module": module}
    exec("def f(): return 'see module.part(x)'", space)
    with monkeypatch.context() as only_here:
        only_here.setitem(sys.modules, "not_at_the_worker", module)
        only_here.setitem(sys.modules, "not_at_the_worker.part", module.part)
        payload = pickling.dump(space["f"])
    assert pickling.load(payload)() == "see module.part(x)"


def test_a_variable_for_which_there_is_no_memory_is_not_left_out() -> None:
    with pytest.raises(MemoryError):
        global_names_of("large()", large=Raises(MemoryError))


class Counted:
    """Counts how often it is pickled."""

    count = 0

    def __reduce__(self) -> Any:
        Counted.count += 1
        return Counted, ()


def test_objects_named_in_several_texts_are_pickled_once() -> None:
    space: dict[str, Any] = {"__name__": "__main__", "value": Counted()}
    exec("def g(): 'value()'.strip(); h()\ndef h(): 'value() or g()'.strip()", space)
    Counted.count = 0
    pickling.dump(space["g"])
    assert Counted.count == 1


def test_a_function_that_a_text_names_is_small_whatever_its_own_texts_name() -> None:
    large = {name: bytes(400_000) for name in ("one", "two", "three")}
    space: dict[str, Any] = {"__name__": "__main__", **large}
    exec("def f(): return eval('g()')\ndef g(): return eval('one, two, three')", space)
    assert through(space["f"])() == tuple(large.values())
