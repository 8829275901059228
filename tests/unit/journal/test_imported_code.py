"""The code of modules that functions import when they run."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gridengine.journal.call_keys import imported_code


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
def test_what_is_not_the_users_own_is_left_out(folder: Path, source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize("content", [b"def f(:\n", b"\xff\xfe", b"x = '\0'", b"# coding: none\n"])
def test_what_is_no_python_is_left_out(folder: Path, content: bytes) -> None:
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
