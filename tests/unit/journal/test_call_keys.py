"""The keys of calls: what changes them, and what does not."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import os
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import gauss
from random import random as random_number
from typing import Any

import numpy as np
import pytest

from gridengine.journal import call_keys
from gridengine.journal.call_keys import CallKeys, changed_parts
from gridengine.journal.code_facts import imported_code
from gridengine.serialize.payload import SINGLE, STAR

since_3_14 = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="older Pythons evaluate annotations when they are written"
)


def key(call: Any, form: int = SINGLE) -> bytes:
    return CallKeys().of_call(call, form)


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("1", b"1"),
        ((1, 2), [1, 2]),
        ({1, 2}, frozenset({1, 2})),
        (Point(1), Point(2)),
        (Colour.RED, Colour.BLUE),
        (np.arange(3), np.arange(3.0)),
        (np.zeros(100_000), np.zeros(100_001)),
        (np.zeros(100_000), np.ones(100_000)),
        (functools.partial(abs, 1), functools.partial(abs, 2)),
    ],
)
def test_other_arguments_are_another_call(one: Any, other: Any) -> None:
    assert key(one) != key(other)


def test_one_tuple_and_two_arguments_are_different_calls() -> None:
    assert key((1, 2), SINGLE) != key((1, 2), STAR)


@pytest.mark.parametrize("n", [10, 200_000])
def test_equal_arrays_are_the_same_call(n: int) -> None:
    assert key(np.arange(n)) == key(np.arange(n))


def test_many_plain_calls_have_the_keys_of_each() -> None:
    calls = [1, "a", 2.5, None, b"x"]
    assert CallKeys().of_calls(calls, SINGLE) == [key(call) for call in calls]


def digest(f: Callable[..., Any]) -> bytes:
    return CallKeys().of_function(f).digest


def defined(source: str, name: str = "f", **variables: Any) -> Callable[..., Any]:
    """Return a function of a script's that has this text."""
    space = {"__name__": "__main__", **variables}
    exec(compile(source, "script", "exec", dont_inherit=True), space)
    return space[name]  # type: ignore[no-any-return]


def test_place_and_docstring_of_a_function_do_not_matter() -> None:
    plain = defined("def f(x):\n    y = x + 1\n    return y")
    told = defined("# comment\n\n\ndef f(x):\n    'Says.'\n    y = x + 1  # one\n    return y")
    assert digest(plain) == digest(told)


CLASS = "class C:\n    x: int = 1\n    def m(self, y: int) -> str: return {}\ndef f(a): return C"


@since_3_14
def test_place_and_use_of_an_annotated_class_do_not_matter() -> None:
    plain = digest(defined(CLASS.format(1)))
    assert digest(defined("# comment\n\n" + CLASS.format(1))) == plain
    looked_at = defined(CLASS.format(1))
    assert looked_at(0).__annotations__ == {"x": int}
    assert looked_at(0).m.__annotations__ == {"y": int, "return": str}
    assert digest(looked_at) == plain
    changes = [CLASS.format(2), CLASS.format(1).replace("x: int = 1", "x: int = 2")]
    changes.append(CLASS.format(1).replace("class C", "class C(dict)"))
    assert plain not in map(digest, map(defined, changes))


@since_3_14
def test_the_place_of_a_class_made_by_a_function_does_not_matter() -> None:
    source = "def f(x):\n{}    'Says.'\n    class C: 'Tells.'; y = {}\n    return C"
    assert digest(defined(source.format("", 1))) == digest(defined(source.format("\n" * 300, 1)))
    assert digest(defined(source.format("", 1))) != digest(defined(source.format("", 2)))


@pytest.mark.parametrize(
    "changed",
    [
        "def f(x): return x + 2",
        "def f(x): return x + 300",
        "def f(x, y=1): return x + 1",
        "def f(x): return g(x) + 1",
        "def f(x): return (lambda q: q + 2)(x)",
    ],
)
def test_other_code_is_another_function(changed: str) -> None:
    assert digest(defined("def f(x): return x + 1")) != digest(defined(changed))


def test_names_that_a_function_refers_to_are_part_of_its_key() -> None:
    source = "def g(x): return x * {n}\ndef f(x): return g(x) + SCALE"
    one, same = defined(source.format(n=1), SCALE=1), defined(source.format(n=1), SCALE=1)
    assert digest(one) == digest(same)
    keys = [
        CallKeys().of_function(f)
        for f in (one, defined(source.format(n=2), SCALE=1), defined(source.format(n=1), SCALE=2))
    ]
    assert len({one.digest for one in keys}) == 3
    assert [*changed_parts(keys[0].parts, keys[1].parts)] == ["g"]
    assert [*changed_parts(keys[0].parts, keys[2].parts)] == ["SCALE"]


@pytest.mark.parametrize(
    "source",
    [
        "def f(x): return eval('x + SCALE')",
        "def f(frame): return frame.query('y > @SCALE')",
        "TEXT = 'y > @SCALE'\ndef f(frame): return frame.query(TEXT)",
        "def f(frame): return globals()['SCALE']",
    ],
)
def test_variables_that_only_a_text_names_are_part_of_a_function(source: str) -> None:
    one, same, other = (CallKeys().of_function(defined(source, SCALE=n)) for n in (1, 1, 2))
    assert one == same
    assert [*changed_parts(one.parts, other.parts)] == ["SCALE"]


def test_a_variable_that_stays_behind_is_no_part_of_a_function() -> None:
    source = "def f(x): return eval('x + SCALE')"
    one, other = (digest(defined(source, SCALE=bytes(1_000_000 + n))) for n in (1, 2))
    assert one == other


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Write the user's own module `own_package.part`, which this process has not loaded then."""

    def forget() -> None:
        for name in [one for one in sys.modules if one.partition(".")[0].startswith("own_")]:
            del sys.modules[name]

    def write(source: str) -> None:
        forget()
        (tmp_path / "own_package" / "part.py").write_text(source)
        importlib.invalidate_caches()

    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_top.py").write_text("from own_package.part import g")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield write
    forget()


@pytest.mark.parametrize(
    "source",
    [
        "import own_package.part\ndef f(x): return own_package.part.g(x)",
        "def f(x):\n    import own_package.part as p\n    return p.g(x)",
        "def f(x):\n    from own_package.part import g\n    return g(x)",
        "def f(x):\n    from own_package import part\n    return part.g(x)",
        "def f(x):\n    from own_top import g\n    return g(x)",
        "import own_top\ndef f(x): return own_top.g(x)",
        "import own_top\ndef f(x): return eval('own_top.g(x)')",
    ],
)
def test_members_of_modules_that_a_function_uses_are_part_of_its_key(
    own: Callable[[str], None], source: str
) -> None:
    digests = []
    for text in ("x + 1", "x + 1", "x + 30"):
        own(f"def g(x): return {text}")
        digests.append(digest(defined(source)))
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.skipif(sys.version_info < (3, 15), reason="Python imports eagerly")
@pytest.mark.parametrize(
    "source",
    [
        "lazy import own_package.part\ndef f(x): return own_package.part.g(x)",
        "lazy from own_package.part import g\ndef f(x): return g(x)",
        "lazy from own_package import part as p\ndef f(x): return p.g(x)",
        "lazy import own_top\ndef f(x): return own_top.g(x)",
        "import own_lazy\ndef f(x): return own_lazy.g(x)",
    ],
)
def test_members_of_modules_not_yet_imported_are_part_of_the_key(
    own: Callable[[str], None], source: str, tmp_path: Path
) -> None:
    (tmp_path / "own_lazy.py").write_text("lazy from own_package.part import g")
    digests = []
    for text in ("x + 1", "x + 1", "x + 30"):
        own(f"def g(x): return {text}")
        digests.append(digest(defined(source)))
        assert "own_package.part" not in sys.modules
    assert digests[0] == digests[1] != digests[2]


def test_imports_of_a_function_are_not_loaded_here(own: Callable[[str], None]) -> None:
    own("raise SystemExit")
    digest(defined("def f():\n    import own_package.part, own_nothing, sys, numpy.linalg"))
    assert not [name for name in sys.modules if name.startswith("own_")]


def test_functions_that_call_each_other_have_a_digest() -> None:
    source = "def g(n): return f(n - {k})\ndef f(n): return g(n) if n else 0"
    assert digest(defined(source.format(k=1))) == digest(defined(source.format(k=1)))
    assert digest(defined(source.format(k=1))) != digest(defined(source.format(k=2)))


def test_unpicklable_objects_count_by_their_type() -> None:
    source = "def f(x):\n    with lock: return x"
    lock, other = threading.Lock(), threading.Lock()
    assert digest(defined(source, lock=lock)) == digest(defined(source, lock=other))
    assert digest(defined(source, lock=lock)) != digest(defined(source, lock=threading.RLock()))


def test_a_class_of_the_users_own_is_part_of_a_call() -> None:
    source = "class C:\n    def m(self): return {n}\ndef f(): return C()"
    one, same, other = (defined(source.format(n=n))() for n in (1, 1, 2))
    assert key(one) == key(same)
    assert key(one) != key(other)


def test_a_function_is_called_as_it_is_without_the_arguments_that_were_given() -> None:
    assert CallKeys().of_function(functools.partial(Point, 1)).name == "Point"


def test_the_result_of_another_call_is_no_argument_to_know_a_call_by(executor: Any) -> None:
    with pytest.raises(Exception, match="future"):
        key(executor.submit(abs, 1))


def test_a_function_that_refers_to_the_result_of_another_call_is_new_each_time(
    executor: Any,
) -> None:
    f = defined("def f(x): return x + other", other=executor.submit(abs, 1))
    assert digest(f) != digest(f)
    assert key(f) != key(f)


def test_another_python_has_other_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    here = digest(abs)
    monkeypatch.setattr(call_keys, "PYTHON", "3.99")
    assert digest(abs) != here


# ---------------------------------------------------------------- imported code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the user's that modules are imported from; none may be loaded."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    loaded = {name for name in set(sys.modules) - before if name.partition(".")[0].startswith("my")}
    assert not loaded


def write(folder: Path, sources: Mapping[str, str]) -> None:
    """Write modules, by their paths without the ending."""
    for name, source in sources.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
    importlib.invalidate_caches()


def found(source: str, package: str | None = None) -> list[str]:
    code = compile(textwrap.dedent(source), "script", "exec")
    return [name for name, _ in imported_code(code, package)]


@pytest.mark.parametrize(
    ("sources", "source", "names"),
    [
        (
            {"mya": "import myb", "myb": "def f():\n    from myc import x", "myc": "x = 1"},
            "def f():\n    import mya",
            ["mya", "myb", "myc"],
        ),
        ({"mya": "import myb, mya", "myb": "import mya"}, "import mya, myb", ["mya", "myb"]),
        ({"myspace/mod": ""}, "import myspace.mod", ["myspace.mod"]),
    ],
    ids=["what they import", "each other", "a folder without init"],
)
def test_modules_are_found_once(
    folder: Path, sources: dict[str, str], source: str, names: list[str]
) -> None:
    write(folder, sources)
    assert found(source) == names


def test_packages_and_members_that_are_modules_are_found(folder: Path) -> None:
    write(
        folder, {"myp/__init__": "", "myp/inner/__init__": "", "myp/inner/mod": "", "myp/other": ""}
    )
    assert found("import myp.inner.mod") == ["myp", "myp.inner", "myp.inner.mod"]
    assert found("from myp import other, nothing") == ["myp", "myp.other"]
    assert found("from myp.inner import *") == ["myp", "myp.inner"]


def test_imports_of_a_package_are_relative_to_it(folder: Path) -> None:
    write(
        folder,
        {"myp/__init__": "from . import one", "myp/one": "from .two import x", "myp/two": ""},
    )
    assert found("import myp") == ["myp", "myp.one", "myp.two"]
    assert sorted(found("from .two import x", "myp")) == ["myp", "myp.one", "myp.two"]
    assert found("from ... import beyond", "myp") == []
    assert found("from . import two") == []


@pytest.mark.parametrize(
    "source",
    ["import json", "import pytest", "import gridengine", "import sys", "import mynone.x", "x = 1"],
)
def test_modules_that_are_not_the_users_own_are_left_out(folder: Path, source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize("content", [b"def f(:\n", b"\xff\xfe", b"x = '\0'", b"# coding: none\n"])
def test_files_that_are_no_python_are_left_out(folder: Path, content: bytes) -> None:
    (folder / "mybad.py").write_bytes(content)
    importlib.invalidate_caches()
    assert found("import mybad") == []


def test_a_file_that_was_edited_is_read_again(folder: Path) -> None:
    def constants() -> tuple[object, ...]:
        [(_, code)] = imported_code(compile("import mya", "script", "exec"), None)
        return code.co_consts

    write(folder, {"mya": "x = 'one'"})
    assert "one" in constants()
    write(folder, {"mya": "x = 'two'"})
    os.utime(folder / "mya.py", ns=(1, 1))
    assert "two" in constants()


def test_an_edited_module_that_the_script_imports_for_its_effect_changes_the_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_keys, "imports_for_effect", lambda *_: (("mya",), ("mya",)))
    write(folder, {"mya": "import myb", "myb": "x = 1"})
    before = CallKeys().of_function(len)
    assert CallKeys().of_function(len) == before
    write(folder, {"myb": "x = 2"})
    os.utime(folder / "myb.py", ns=(1, 1))
    after = CallKeys().of_function(len)
    assert changed_parts(before.parts, after.parts) == ["import myb"]
    assert before.digest != after.digest


def test_a_finder_of_the_users_that_fails_is_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Finder:
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == "mya":
                raise RuntimeError("a user's own")

    write(folder, {"mya": ""})
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert found("import mya") == ["mya"]


def test_a_hidden_generator_counts_by_its_name_and_not_by_its_state() -> None:
    before = CallKeys().of_function(lambda x: random_number() + gauss(0, 1))
    random_number()
    assert CallKeys().of_function(lambda x: random_number() + gauss(0, 1)).digest == before.digest
