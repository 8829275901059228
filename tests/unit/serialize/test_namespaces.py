"""Global variables that the functions of a script share, in the processes that run them."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from gridengine.client.initializer import Initializer, Prepared
from gridengine.serialize import pickling
from gridengine.serialize.classes import KnownClasses
from gridengine.serialize.namespaces import MOST_UNUSED, SHARED, Namespaces, Table
from gridengine.serialize.shared_memory import LARGE


class Script:
    """A script: lines run in its `__main__`, and its functions travel by value."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.main = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", self.main)

    def run(self, lines: str) -> None:
        exec(lines, vars(self.main))

    def dump(self, name: str, initializer: Initializer | None = None) -> Any:
        function = vars(self.main)[name]
        return pickling.dump_function(Prepared(function, initializer) if initializer else function)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(monkeypatch)


class Process:
    """A process that runs the script's functions; each is loaded once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        classes = KnownClasses()  # others than the script's, which are in this process
        monkeypatch.setattr("gridengine.serialize.classes.known_classes", lambda: classes)
        self.namespaces = Namespaces()
        self.loaded: dict[bytes, tuple[Callable[..., Any], Table]] = {}

    def load(self, dumped: Any) -> tuple[Callable[..., Any], Table]:
        digest, payload = dumped
        token = SHARED.set(self.namespaces)
        try:
            if digest not in self.loaded:
                with self.namespaces.recording() as table:
                    self.loaded[digest] = pickling.load_function(payload)[0], table
        finally:
            SHARED.reset(token)
        return self.loaded[digest]

    def call(self, dumped: Any, *given: Any) -> Any:
        arguments = pickling.dump(given)
        function, table = self.load(dumped)
        token = SHARED.set(self.namespaces)
        try:
            if not (self.namespaces.is_entered and self.namespaces.entered is table):
                self.namespaces.enter(table)
            given = pickling.load(arguments)
            self.namespaces.enter_again()
        finally:
            SHARED.reset(token)
        return function(*given)

    def forget(self, dumped: Any) -> None:
        del self.loaded[dumped[0]]
        self.namespaces.forget(table for _, table in self.loaded.values())


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(monkeypatch)


CACHES = "cache = {}\ndef put(x): cache[x] = 1\ndef names(): return sorted(cache)"


def test_cached_values_are_found_by_other_functions(script: Script, process: Process) -> None:
    script.run(CACHES)
    process.call(script.dump("put"), "a")
    assert process.call(script.dump("names")) == ["a"]
    assert not script.main.cache


def test_cached_values_stay_when_another_variable_changes(script: Script, process: Process) -> None:
    script.run("number = 1\n" + CACHES + "\ndef both(): return number, sorted(cache)")
    process.call(script.dump("put"), "a")
    assert process.call(script.dump("both")) == (1, ["a"])
    script.run("number = 2")
    assert process.call(script.dump("both")) == (2, ["a"])


@pytest.mark.parametrize(
    ("lines", "change", "results"),
    [
        ("number = 1", "number = 2", (1, 2)),
        ("k = 1\n@functools.lru_cache\ndef h(): return k\nclass N:\n"
         "  def __int__(self): return h()\nnumber = N()", "k = 2", (1, 2)),
        ("space = {'k': 1}\nexec('def h(): return k', space)\nh = space['h']\nclass N:\n"
         "  def __int__(self): return h()\nnumber = N()", "space['k'] = 2", (1, 2)),
        ("def h(k=1): return k\nclass N:\n  def __int__(self): return h()\nnumber = N()",
         "h.__defaults__ = (2,)", (1, 2)),
        ("numbers = [1]\nclass N:\n  def __int__(self): return numbers[0]\nnumber = N()",
         "numbers[0] = 2", (1, 2)),
        (f"data = bytearray({LARGE + 1})\ndef h(): return data[0]\nclass N:\n"
         "  def __int__(self): return h()\nnumber = N()", "data[0] = 2", (0, 2)),
        ("def h(): return 1\nclass N:\n  def __int__(self): return h()\nnumber = N()",
         "def h(): return 2", (1, 2)),
    ],
)  # fmt: skip
def test_each_call_finds_the_variables_as_they_were_when_it_was_submitted(
    script: Script, process: Process, lines: str, change: str, results: tuple[int, int]
) -> None:
    script.run(
        "import functools\n" + lines + "\ndef f(): return int(number)\ndef g(): return int(number)"
    )
    before = script.dump("f"), script.dump("g")
    script.run(change)
    after = script.dump("g"), script.dump("f")
    for _ in range(2):
        assert [process.call(one) for one in before] == [results[0]] * 2
        assert [process.call(one) for one in after] == [results[1]] * 2


def test_a_variable_that_gets_an_earlier_value_again_is_assigned_again(
    script: Script, process: Process
) -> None:
    script.run("def f():\n  state.append(len(state))\n  return list(state)")
    found = []
    for value in (7, 8, 7, 7):
        script.run(f"if globals().get('state') != [{value}]: state = [{value}]")
        found.append(process.call(script.dump("f")))
    assert found == [[7, 1], [8, 1], [7, 1], [7, 1, 2]]


def test_each_call_finds_the_attributes_of_classes_as_they_were_when_it_was_submitted(
    script: Script, process: Process
) -> None:
    script.run(
        "class C:\n  k = 0\n  calls = []\n  def m(self): return self.k\n"
        "def f():\n  C.calls.append(1)\n  return C().m(), len(C.calls)"
    )
    first = script.dump("f")
    script.run("C.k, C.other = 9, 1")
    second = script.dump("f")
    script.run("C.k = 0\ndel C.other")
    third = script.dump("f")
    found = [process.call(one) for one in (first, second, first, third, second, third)]
    assert found == [(0, 1), (9, 1), (0, 2), (0, 1), (9, 2), (0, 2)]


def test_a_class_that_only_arguments_have_is_let_go_of(script: Script, process: Process) -> None:
    script.run("def make():\n  class C: k = 1\n  return C()\ndef f(one): return one.k")
    f = script.dump("f")
    for _ in range(3):
        one = script.main.make()
        assert process.call(f, one) == 1
        type(one).k = 2
        assert process.call(f, one) == 2
    assert len(process.namespaces._known) == 1  # the script's


def test_versions_of_a_class_that_arguments_bring_are_let_go_of(
    script: Script, process: Process
) -> None:
    script.run("class C: made = 0\ndef f(one): return isinstance(one, C) and one.made")
    f = script.dump("f")
    for number in range(20):
        script.main.C.made = number
        process.call(f, script.main.C())
    assert sum(len(one._kept) for one in process.namespaces._known.values()) < 10


def test_attributes_that_python_writes_into_a_class_are_no_change_of_a_user(
    script: Script, process: Process
) -> None:
    script.run("class C: k = 0\ndef init(): C.k = 3\ndef f(one): return C.k\ndef g(): return C.k")
    initializer = Initializer(script.main.init, (), None)
    f, one = script.dump("f", initializer), script.main.C()
    assert process.call(f, one) == 3
    assert "__slotnames__" in vars(script.main.C)
    assert process.call(script.dump("g", initializer)) == 3


def test_class_attributes_of_an_initializer_are_those_of_its_executor_alone(
    script: Script, process: Process
) -> None:
    script.run("class C: k = 0\ndef init(k): C.k = k\ndef f(): return C.k\n")
    initializers = [Initializer(script.main.init, (number,), None) for number in (1, 2)]
    dumped = [script.dump("f", one) for one in initializers] + [script.dump("f")]
    for _ in range(2):
        assert [process.call(one) for one in dumped] == [1, 2, 0]


def test_values_of_an_initializer_stay_until_the_caller_assigns_others(
    script: Script, process: Process
) -> None:
    script.run("K = None\ndef init():\n  global K, L\n  K, L = 3, 4\ndef f(): return K, L")
    process.call(script.dump("init"))
    old = script.dump("f")
    assert process.call(old) == (3, 4)
    script.run("K = 5")
    assert process.call(script.dump("f")) == (5, 4)
    assert process.call(old) == (3, 4)
    script.run("del K\ndef g(): return 'K' in globals()")
    assert process.call(script.dump("g")) is True  # `g` names it in a text alone
    with pytest.raises(NameError):
        process.call(script.dump("f"))


def test_arguments_do_not_change_the_variables_of_the_function(
    script: Script, process: Process
) -> None:
    script.run("number = 1\ndef f(other): return number\ndef g(): return number")
    f = script.dump("f")
    script.run("number = 2")
    assert process.call(f, script.main.g) == 1


def test_results_of_other_calls_do_not_change_the_variables_of_the_call(
    script: Script, process: Process
) -> None:
    script.run("number = 1\ndef f(load): return load()(), number\ndef g(): return number")
    f = script.dump("f")
    script.run("number = 2")
    result = pickling.dump(script.main.g)

    def load() -> Any:
        process.namespaces.is_loading = False
        token = SHARED.set(process.namespaces)
        try:
            return pickling.load(result)
        finally:
            SHARED.reset(token)

    function, table = process.load(f)
    process.namespaces.enter(table)
    assert function(load) == (1, 1)


def test_variables_that_have_an_object_in_common_are_assigned_together(
    script: Script, process: Process
) -> None:
    script.run(
        "part = [0]\nwhole = {'part': part}\ndef f(): part.append(1)\n"
        "def g(): return whole['part'] is part\ndef h(): return is_same()\n"
        "def is_same(): return whole['part'] is part"
    )
    process.call(script.dump("f"))
    assert process.call(script.dump("g"))
    assert process.call(script.dump("h"))


def test_each_executor_with_an_initializer_has_variables_of_its_own(
    script: Script, process: Process
) -> None:
    script.run(
        "def init(k):\n  global K\n  K = k\ndef f(): return K\n"
        "class C:\n  def get(self): return K\ndef g(one): return one.get()"
    )
    initializers = [Initializer(script.main.init, (number,), None) for number in range(2)]
    functions = [[script.dump(name, one) for one in initializers] for name in ("f", "g")]
    for _ in range(2):
        assert [process.call(one) for one in functions[0]] == [0, 1]
        assert [process.call(one, script.main.C()) for one in functions[1]] == [0, 1]
    with pytest.raises(NameError):
        process.call(script.dump("f"))


def test_variables_of_no_module_are_not_shared(process: Process) -> None:
    spaces: list[dict[str, Any]] = [{"__name__": "__main__"} for _ in range(2)]
    for space in spaces:
        exec(CACHES, space)
    process.call(pickling.dump_function(spaces[0]["put"]), "a")
    assert process.call(pickling.dump_function(spaces[1]["names"])) == []


def test_scripts_do_not_share_variables(
    script: Script, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.run(CACHES)
    process.call(script.dump("put"), "a")
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in a child that it has forked
    assert process.call(script.dump("names")) == []


def test_large_data_goes_with_the_last_function_that_uses_it(
    script: Script, process: Process
) -> None:
    script.run(
        f"small, data = [], bytearray({LARGE + 1})\ndef f(): return globals()\n"
        "def g(): return data, small, f"
    )
    f, g = script.dump("f"), script.dump("g")
    process.call(g)
    variables = process.call(f)
    assert {"data", "small"} <= variables.keys()
    process.forget(g)
    assert "data" not in variables
    assert "small" in variables


def test_only_so_many_executors_variables_are_kept(script: Script, process: Process) -> None:
    script.run("K = 0\ndef f():\n  global K\n  K += 1\n  return K")
    functions = [
        script.dump("f", Initializer(None, (), number)) for number in range(2 * MOST_UNUSED)
    ]
    for one in functions:
        assert process.call(one) == 1
    for one in functions:
        process.forget(one)
    assert [process.call(one) for one in functions[:2]] == [1, 1]
    assert process.call(functions[-1]) == 2


class Fickle:
    """Can be loaded only if `Fickle.is_there`."""

    is_there = True

    def __reduce__(self) -> Any:
        return _load_fickle, ()


def _load_fickle() -> str:
    if not Fickle.is_there:
        raise ImportError("not here")
    return "loaded"


def test_a_variable_that_a_text_names_and_that_cannot_be_loaded_is_no_older_value(
    script: Script, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.run("def f(): return eval('value') if 'value' in globals() else 'left out'\nvalue = 1")
    assert process.call(script.dump("f")) == 1
    vars(script.main)["value"] = Fickle()
    monkeypatch.setattr(Fickle, "is_there", False)
    assert process.call(script.dump("f")) == "left out"
    script.run("def g(): return value")
    monkeypatch.setattr(Fickle, "is_there", True)
    assert process.call(script.dump("g")) == "loaded"
