"""Which edits of modules make a function another one: ways to reach a helper, by edits."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gridengine.journal.call_keys import CallKeys
from gridengine.journal.module_uses import imports_by_text, reads_globals
from gridengine.serialize.users_modules import is_own

HELPER = """
import own_below
CALLED = []
def g(x): return own_below.half(x) + {g}
def h(x): return x * {h}
TABLE = {{"g": g}}
def by_globals(n): return globals()[n](1)
def by_eval(): return eval("g(1)")
def by_getattr(n): return getattr(sys.modules[__name__], n)(1)
import sys
"""
SOURCES = {
    "own_helper": HELPER.format(g=1, h=1),
    "own_below": "def half(x): return x / 2",
    "own_package/__init__": "import own_helper as inner",
    "own_other": "def unused(x): return x",
}
CHANGED = {
    "g": {"own_helper": HELPER.format(g=2, h=1)},
    "h": {"own_helper": HELPER.format(g=1, h=2)},
    "below": {"own_below": "def half(x): return x / 3"},
    "other": {"own_other": "def unused(x): return x + 1"},
}

BY_NAME = {
    "module.name": "import own_helper\ndef f(x): return own_helper.g(x)",
    "a module of a module": "import own_package\ndef f(x): return own_package.inner.g(x)",
    "a table by its name": "import own_helper\ndef f(x): return own_helper.TABLE['g'](x)",
    "an import in the function around": (
        "def make():\n    import own_helper as m\n    return lambda x: m.g(x)\nf = make()"
    ),
}
"""Ways to reach `g` alone."""
AS_A_WHOLE = {
    "getattr": "import own_helper\ndef f(x): return getattr(own_helper, 'g')(x)",
    "getattr of a module of a module": (
        "import own_package\ndef f(x): return getattr(own_package.inner, 'g')(x)"
    ),
    "vars": "import own_helper\ndef f(x): return vars(own_helper)['g'](x)",
    "__dict__": "import own_helper\ndef f(x): return own_helper.__dict__['g'](x)",
    "__getattribute__": "import own_helper\ndef f(x): return own_helper.__getattribute__('g')(x)",
    "attrgetter": (
        "import own_helper, operator\ndef f(x): return operator.attrgetter('g')(own_helper)(x)"
    ),
    "methodcaller": (
        "import own_helper, operator\nget = operator.methodcaller('g', 1)\n"
        "def f(x): return get(own_helper)"
    ),
    "inspect": (
        "import own_helper, inspect\ndef f(x): return dict(inspect.getmembers(own_helper))['g'](x)"
    ),
    "another name": "import own_helper\ndef f(x):\n    m = own_helper\n    return m.g(x)",
    "a choice": "import own_helper\ndef f(x):\n    m = x and own_helper\n    return m.g(x)",
    "a dict": "import own_helper\nPLACES = {'m': own_helper}\ndef f(x): return PLACES['m'].g(x)",
    "a list in a dict": "import own_helper\nALL = {'m': [own_helper]}\ndef f(x): return ALL",
    "an attribute": (
        "import own_helper, types\nspace = types.SimpleNamespace(m=own_helper)\n"
        "def f(x): return space.m.g(x)"
    ),
    "a class": "import own_helper\nclass C: m = own_helper\ndef f(x): return C.m.g(x)",
    "a default": "import own_helper\ndef f(x, m=own_helper): return m.g(x)",
    "a keyword's default": "import own_helper\ndef f(x, *, m=own_helper): return m.g(x)",
    "a partial": (
        "import own_helper, functools\ndef call(m, x): return m.g(x)\n"
        "f = functools.partial(call, own_helper)"
    ),
    "a closure": (
        "def make():\n    import own_helper as m\n    return lambda x: vars(m)['g'](x)\nf = make()"
    ),
    "handed on": (
        "import own_helper\ndef call(m, x): return m.g(x)\ndef f(x): return call(own_helper, x)"
    ),
    "handed on by another function": (
        "import own_helper\ndef give(): return own_helper\ndef f(x): return give().g(x)"
    ),
    "import_module": (
        "from importlib import import_module\ndef f(x): return import_module('own_helper').g(x)"
    ),
    "importlib.import_module": (
        "import importlib\ndef f(x): return importlib.import_module('own_helper').g(x)"
    ),
    "import_module by another name": (
        "from importlib import import_module as get\ndef f(x): return get('own_helper').g(x)"
    ),
    "import_module, imported in the function": (
        "def f(x):\n    from importlib import import_module\n"
        "    return import_module('own_helper').g(x)"
    ),
    "__import__": "def f(x): return __import__('own_helper').g(x)",
    "sys.modules": "import sys, own_helper\ndef f(x): return sys.modules['own_helper'].g(x)",
    "sys.modules.get": "import sys\ndef f(x): return sys.modules.get('own_helper').g(x)",
    "globals of its module": "from own_helper import by_globals\ndef f(x): return by_globals('g')",
    "eval in its module": "from own_helper import by_eval\ndef f(x): return by_eval()",
    "its module by its name": (
        "from own_helper import by_getattr\ndef f(x): return by_getattr('g')"
    ),
}
BY_UNKNOWN_TEXT = {
    "a text that is an argument": (
        "from importlib import import_module\ndef f(x): return import_module(x).g(1)"
    ),
    "a text that is put together": (
        "from importlib import import_module\ndef f(x): return import_module('own_' + x).g(1)"
    ),
    "import_module, handed on": (
        "from importlib import import_module\ndef f(x): return [*map(import_module, x)]"
    ),
    "__import__ by another name": "def f(x):\n    get = __import__\n    return get(x).g(1)",
    "imported in the function by another name": (
        "def f(x):\n    from importlib import import_module as get\n    return get(x).g(1)"
    ),
    "sys.modules": "import sys\ndef f(x): return sys.modules[x].g(1)",
    "runpy": "import runpy\ndef f(x): return runpy.run_path(x)",
}

Digest = Callable[..., bytes]


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Digest]:
    """Return the digest of a script's function, in a process that has just read the modules."""
    of_others = [one for one in sys.path if not is_own(f"{one or os.curdir}{os.sep}")]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *of_others])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget() -> None:
        for name in [one for one in sys.modules if one.startswith("own_")]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def of(script: str, **changed: str) -> bytes:
        forget()
        for name, source in {**SOURCES, **changed}.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(source)
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(script, "script", "exec", dont_inherit=True), space)
        return CallKeys().of_function(space["f"]).digest

    yield of
    forget()


@pytest.mark.parametrize("way", BY_NAME)
def test_the_named_members_of_a_module_count(way: str, digest: Digest) -> None:
    before = digest(BY_NAME[way])
    same = {edit for edit, changed in CHANGED.items() if digest(BY_NAME[way], **changed) == before}
    assert same == {"h", "other"}


@pytest.mark.parametrize("way", AS_A_WHOLE)
def test_a_module_that_is_used_otherwise_counts_as_a_whole(way: str, digest: Digest) -> None:
    before = digest(AS_A_WHOLE[way])
    same = {
        edit for edit, changed in CHANGED.items() if digest(AS_A_WHOLE[way], **changed) == before
    }
    assert same == {"other"}


@pytest.mark.parametrize("way", BY_UNKNOWN_TEXT)
def test_an_import_by_a_text_that_is_not_known_counts_all_own_modules(
    way: str, digest: Digest
) -> None:
    before = digest(BY_UNKNOWN_TEXT[way])
    assert digest(BY_UNKNOWN_TEXT[way]) == before
    assert before not in {digest(BY_UNKNOWN_TEXT[way], **changed) for changed in CHANGED.values()}


def test_a_function_of_the_script_may_reach_the_others_by_globals(digest: Digest) -> None:
    source = "def g(x): return x + {}\ndef f(n): return globals()[n](1)"
    assert digest(source.format(1)) == digest(source.format(1)) != digest(source.format(2))


def test_a_module_among_the_arguments_of_a_call_counts_as_a_whole(digest: Digest) -> None:
    keys = []
    for edit in ({}, {}, CHANGED["g"], CHANGED["other"]):
        digest("import own_helper\ndef f(x): pass", **edit)
        module = sys.modules["own_helper"]
        keys.append(CallKeys().of_call((module, {"m": [module]}), 0))
    assert keys[0] == keys[1] == keys[3] != keys[2]


def test_a_variable_of_a_module_that_counts_as_a_whole_is_part_of_it(digest: Digest) -> None:
    script = "import own_other\n{}\ndef f(x): return getattr(own_other, x)"
    assert digest(script.format("own_other.SCALE = 1")) != digest(
        script.format("own_other.SCALE = 2")
    )


def test_a_method_with_the_name_of_an_import_function_imports_nothing() -> None:
    def import_module(x: object) -> object:
        return x

    def f(x: Any) -> Any:
        return import_module(x)

    assert not imports_by_text(f.__code__, {"import_module": import_module}).others


def test_a_variable_is_compared_with_nothing() -> None:
    class Array:
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value of an array is ambiguous")

    assert not reads_globals([("data",)], {"data": Array()})
