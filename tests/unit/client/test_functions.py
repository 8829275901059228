"""Functions as they travel, and what is pickled again."""

from __future__ import annotations

import functools
import gc
import importlib
import math
import os
import pickle
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine import delayedval
from gridengine.call_context.random_streams import Seed, Seeded
from gridengine.client import functions
from gridengine.client.functions import FunctionCache, function_of_map, make_function
from gridengine.client.initializer import Initializer, Prepared
from gridengine.client.options import CallOptions
from gridengine.client.submitter import Submitter
from gridengine.requests import Function
from gridengine.serialize import pickling
from gridengine.serialize.payload import size_of
from gridengine.serialize.shared_memory import LARGE, StoredPayload
from gridengine.serialize.users_modules import own_modules
from tests.support.fake_dispatcher import FakeScheduler


def local(**names: Any) -> dict[str, Any]:
    """Return the global variables of a script of their own, in which these are defined."""
    return {"__name__": "__main__", **names}


def defined(source: str, space: dict[str, Any]) -> Any:
    """Return the function `f` of a script's source."""
    exec(source, space)
    return space["f"]


def called(cache: FunctionCache[Function], f: Callable[..., Any], *args: Any) -> Any:
    """Return what a function returns where it arrives, as it is submitted now."""
    return pickling.load_function(cache.find(f).payload)[0](*args)


def pickled(f: Callable[..., Any], before: Function | None) -> tuple[Function, int]:
    function = make_function(f, before=before)
    return function, size_of(function.payload)


@pytest.fixture
def cache() -> FunctionCache[Function]:
    return FunctionCache(pickled)


def test_the_cache_of_functions_goes_without_the_collector() -> None:
    class Kept:
        """Can be referred to weakly."""

    made: list[weakref.ref[Kept]] = []

    def make(f: Callable[..., Any], _: Kept | None) -> tuple[Kept, int]:
        kept = Kept()
        made.append(weakref.ref(kept))
        return kept, 1

    collects = gc.isenabled()
    gc.disable()
    try:
        cache = FunctionCache(make)
        assert cache.find(called) is made[0]()
        del cache
        assert made[0]() is None
    finally:
        if collects:
            gc.enable()


@pytest.mark.parametrize("f", [math.sqrt, len, pickling.load, dict, functools.partial(pow, 2)])
def test_an_importable_function_is_pickled_once(
    cache: FunctionCache[Function], f: Callable[..., Any]
) -> None:
    assert cache.find(f) is cache.find(f)


def test_a_function_of_constants_is_pickled_once(
    cache: FunctionCache[Function],
) -> None:
    f = defined(
        "import math\nSIZE = (1, 2)\ndef g(x): return x\ndef f(x): return math.sqrt(g(x)) + "
        "SIZE[0]",
        local(),
    )
    assert cache.find(f) is cache.find(f)
    assert called(cache, f, 4) == 3


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("def f(): return number", "number = 2"),
        ("def g(): return number\ndef f(): return g()", "number = 2"),
        ("def g(): return 1\ndef f(): return g()", "def g(): return 2"),
        ("def f(x=1): return x", "f.__defaults__ = (2,)"),
        ("def f(*, x=1): return x", "f.__kwdefaults__['x'] = 2"),
        ("def f(*, x=1): return x", "f.__kwdefaults__ = {'x': 2}"),
        ("def f(): return f.n\nf.n = 1", "f.__dict__ = {'n': 2}"),
        ("def f(): return 1", "def g(): return 2\nf.__code__ = g.__code__"),
        ("numbers = [1]\ndef f(): return len(numbers)", "numbers.append(2)"),
        ("numbers = {'a': 1}\ndef f(): return numbers['a']", "numbers['a'] = 2"),
        ("class C:\n  def m(self): return 1\ndef f(): return C().m()", "C.m = lambda self: 2"),
        ("class B:\n  n = 1\nclass C(B): pass\ndef f(): return C.n", "B.n = 2"),
        (
            "class A: n = 1\nclass B: n = 2\nclass C(A): pass\ndef f(): return C.n",
            "C.__bases__ = (B,)",
        ),
        ("class C: n = 1\none = C()\ndef f(): return one.n", "one.n = 2"),
        (
            "import functools\n@functools.lru_cache\ndef g(): return number\ndef f(): return g()",
            "number = 2",
        ),
        (
            "def make(n):\n  def f(): return n\n  def put(m):\n    nonlocal n; n = m\n  return f, "
            "put\nf, put = make(1)",
            "put(2)",
        ),
        ("def f(): return len(extra) if 'extra' in globals() else 1", "extra = 'ab'"),
        ("def f(): return eval('1 * number')", "number = 2"),
        ("TEXT = '1 * number'\ndef f(): return eval(TEXT)", "number = 2"),
        ("TEXT = '1 + 0'\ndef f(): return eval(TEXT)", "TEXT = '1 + number'"),
        ("def g(): return 1\ndef f(): return eval('g()')", "def g(): return 2"),
        ("numbers = [1]\ndef f(): return eval('len(numbers)')", "numbers.append(2)"),
        ("def f(): return globals().get('extra', 1)", "extra = 2"),
        (
            "class C:\n  def m(self): return eval('1 * number')\ndef f(): return C().m()",
            "number = 2",
        ),
    ],
)
def test_a_changed_function_is_pickled_anew(
    cache: FunctionCache[Function], source: str, change: str
) -> None:
    space = local(number=1)
    f = defined(source, space)
    assert called(cache, f) == 1
    exec(change, space)
    assert called(cache, f) == 2


def test_large_objects_named_only_in_texts_are_not_compared(
    cache: FunctionCache[Function],
) -> None:
    space = local(large=[b"0" * 1_000_001], number=1)
    f = defined("def f(): return eval('len(large)') if 'large' in globals() else number", space)
    assert called(cache, f) == 1
    assert cache.find(f) is cache.find(f)
    space["large"] = "ab"
    assert called(cache, f) == 2


class AllNames:
    """Has every name, each of which is another such."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return type(self)()


@pytest.mark.parametrize("held", [delayedval(1) + 1, AllNames()])
def test_an_object_that_has_every_name_is_not_searched(
    cache: FunctionCache[Function], held: Any
) -> None:
    cache.find(defined("def f(): return held", local(held=held)))


def test_a_function_pickled_to_the_same_bytes_travels_as_before() -> None:
    f = defined("numbers = [1]\ndef f(): return numbers", local())
    submitter = Submitter(FakeScheduler(), None, initializer=None, options=CallOptions())
    one, other = (submitter.submit(f, (), {}) for _ in range(2))
    assert one.template is other.template
    submitter.batcher.close(wait=True)


def test_calls_that_threads_submit_while_another_sees_the_environment_change_have_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def variables_of(future: Any) -> bytes:
        caller = future.template.function.caller
        assert caller is not None
        return bytes(caller.variables)

    monkeypatch.setenv("A", "before")
    submitter = Submitter(FakeScheduler(), None, initializer=None, options=CallOptions())
    assert b"A=before" in variables_of(submitter.submit(len, ("x",), {}))
    seen: list[bytes] = []

    def interrupted(make: Any) -> FunctionCache[Any]:
        monkeypatch.setattr("gridengine.client.submitter.FunctionCache", FunctionCache)
        # as another thread does that comes in between
        seen.append(variables_of(submitter.submit(len, ("x",), {})))
        return FunctionCache(make)

    monkeypatch.setattr("gridengine.client.submitter.FunctionCache", interrupted)
    monkeypatch.setenv("A", "after")
    seen.append(variables_of(submitter.submit(len, ("x",), {})))
    submitter.batcher.close(wait=True)
    assert [b"A=after" in variables for variables in seen] == [True, True]


class Array:
    """A buffer that travels out of band, as a NumPy array."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Array, (pickle.PickleBuffer(self.data),)


@pytest.mark.parametrize(
    "change",
    [
        "first.data[7] = 1",
        "second.data[7] = 1",
        "first = Array(bytearray(LARGE + 1))",
        "second = None",
        "number = 1",
        "def g(): return 1",
    ],
)
def test_a_change_beside_large_data_or_in_it_is_seen(
    cache: FunctionCache[Function], change: str
) -> None:
    space = local(Array=Array, LARGE=LARGE, number=0)
    f = defined(
        "first, second = Array(bytearray(LARGE)), Array(bytearray(LARGE))\ndef g(): return 0\n"
        "def f(): return [one and bytes(one.data) for one in (first, second)], number, g()",
        space,
    )
    before = called(cache, f)
    assert before == f()
    exec(change, space)
    assert called(cache, f) == f() != before


def test_large_data_that_is_the_same_is_compared_and_not_copied() -> None:
    f = defined("def f(): return data, numbers", local(data=Array(bytearray(LARGE)), numbers=[1]))
    before = make_function(f)
    after = make_function(f, before=before)
    assert after.digest == before.digest
    assert isinstance(before.payload, StoredPayload)
    assert isinstance(after.payload, StoredPayload)
    assert after.payload.block is before.payload.block


def test_a_function_that_its_user_has_dropped_is_not_kept(cache: FunctionCache[Function]) -> None:
    class Thing:
        def method(self) -> None: ...

    def capture(thing: Thing) -> Callable[[], Thing]:
        return lambda: thing

    thing, other = Thing(), Thing()
    ends = [weakref.ref(thing), weakref.ref(other)]
    f = capture(other)
    cache.find(thing.method)
    cache.find(f)
    del thing, other, f
    gc.collect()
    assert [end() for end in ends] == [None, None]
    assert cache._cached == {}


def test_only_so_many_are_kept(cache: FunctionCache[Function]) -> None:
    made = [functools.partial(pow, n) for n in range(2 * functions.MOST_CACHED)]
    for f in made:
        cache.find(f)
    assert len(cache._cached) == functions.MOST_CACHED


def test_only_so_much_is_kept(cache: FunctionCache[Function]) -> None:
    made = [functools.partial(len, bytes(functions.MOST_CACHED_BYTES // 3)) for _ in range(5)]
    for f in made:
        cache.find(f)
    assert len(cache._cached) == 2


def test_a_small_function_is_pickled_once_for_several_maps() -> None:
    def f() -> int:
        return 1

    assert function_of_map(f) is function_of_map(f)


def test_a_large_function_is_not_kept_from_one_map_to_the_next() -> None:
    f = functools.partial(len, bytes(functions.SMALL_BYTES))
    assert function_of_map(f) is not function_of_map(f)


def test_a_function_that_holds_shared_objects_is_not_kept_from_one_map_to_the_next() -> None:
    f = functools.partial(len, gridengine.share([1]))
    assert function_of_map(f) is not function_of_map(f)


def test_a_function_of_a_map_runs_where_and_with_the_path_that_the_map_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def f() -> int:
        return 1

    before = function_of_map(f)
    monkeypatch.chdir(tmp_path)
    assert function_of_map(f).directory == os.fsencode(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    assert function_of_map(f).path[0] == os.fsencode(tmp_path / "mine")
    assert function_of_map(f).digest != before.digest


def test_calls_of_a_map_have_the_environment_in_which_it_was_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def f() -> int:
        return 1

    before = function_of_map(f)
    assert function_of_map(f) is before
    monkeypatch.setenv("A_VARIABLE", "x=y")
    monkeypatch.setattr(sys, "argv", ["script.py", "-v"])
    caller = function_of_map(f).caller
    assert caller is not None
    assert b"A_VARIABLE=x=y" in caller.variables.split(b"\0")
    assert caller.arguments == (b"script.py", b"-v")
    assert function_of_map(f).digest != before.digest


def test_a_function_of_any_name_can_travel() -> None:
    def f() -> None: ...

    f.__qualname__ = "caf\xe9 \udcff"
    assert make_function(f).name == "caf\xe9 \\udcff"


class Model:
    def fit(self, rate: float, *rest: float, depth: int = 3) -> None: ...


async def awaited(x: int) -> None: ...


@pytest.mark.parametrize(
    ("f", "names"),
    [
        (Model.fit, ("self", "rate")),
        (Model().fit, ("rate",)),
        (functools.partial(Model.fit, Model(), depth=4), ("rate",)),
        (awaited, ("x",)),
        (Prepared(awaited, Initializer(print, (), None)), ("x",)),
        (abs, ()),
        (Model, ()),
        (Prepared(Seeded(awaited, Seed(1)), Initializer(print, (), None)), ("x", "")),
    ],
)
def test_a_function_travels_with_the_names_of_its_positional_parameters(
    f: Callable[..., Any], names: tuple[str, ...]
) -> None:
    assert make_function(f).parameters == names


def test_a_function_has_the_umask_with_which_it_was_pickled() -> None:
    masks = 0o027, 0o077
    before, made = os.umask(0), []
    try:
        for mask in masks:
            os.umask(mask)
            made.append(make_function(abs))
    finally:
        os.umask(before)
    assert tuple(one.caller and one.caller.umask for one in made) == masks
    assert made[0].digest != made[1].digest


def test_calls_find_modules_that_a_prompt_imported_before_a_chdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_early").mkdir()
    (tmp_path / "imported_early" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    importlib.import_module("imported_early")
    own_modules().check()
    del sys.modules["imported_early"]
    monkeypatch.chdir("/")
    for path, found in (["", "/usr"], True), (["/usr"], False):
        monkeypatch.setattr(sys, "path", path)
        assert (os.fsencode(tmp_path) in functions.surroundings()[1]) is found


def test_an_attribute_that_a_function_gets_later_travels() -> None:
    one = functools.partial(pow, 2)
    before = function_of_map(one).digest
    assert function_of_map(one).digest == before
    vars(one)["extra"] = "later"
    assert function_of_map(one).digest != before
