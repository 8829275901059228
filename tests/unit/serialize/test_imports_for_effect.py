"""Which modules of a script its calls import before they begin."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from gridengine.serialize.imports_for_effect import import_all, imports_for_effect

SITE = "/usr/lib/site-packages"


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the modules of these scripts be loaded: `theirs` and its like of the environment, `mine`
    and its like of the user.
    """
    files = {
        **{name: f"{SITE}/{name}.py" for name in ("theirs", "theirs.plugin", "others")},
        **{name: f"/home/me/{name}.py" for name in ("mine", "mine.part", "package.mine")},
    }
    for name, file in files.items():
        module = types.ModuleType(name)
        module.__file__ = file
        monkeypatch.setitem(sys.modules, name, module)


def imports() -> tuple[tuple[str, ...], tuple[str, ...]]:
    main = sys.modules["__main__"]
    return imports_for_effect(main, len(vars(main)), len(sys.modules))


def run(monkeypatch: pytest.MonkeyPatch, path: Path, text: str, package: str = "") -> None:
    """Let a script be this process's `__main__`, whose run has ended."""
    path.write_text(text)
    main = types.ModuleType("__main__")
    main.__file__, main.__package__ = str(path), package
    monkeypatch.setitem(sys.modules, "__main__", main)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import theirs", ["theirs"]),
        ("import theirs as other", ["theirs"]),
        ("import theirs.plugin", ["theirs.plugin"]),
        ("import theirs.plugin as other", ["theirs.plugin"]),
        ("from theirs import plugin", ["theirs", "theirs.plugin"]),
        ("try:\n    import theirs\nexcept ImportError:\n    pass", ["theirs"]),
        ("import theirs, others\nothers.f()", ["theirs"]),
        ("import theirs  # theirs registers\n'theirs'", ["theirs"]),
        ("import theirs\ntheirs.f()", []),
        ("import theirs.plugin\ndef f(): return lambda: theirs.x", []),
        ("from theirs import plugin, x\nx()", ["theirs.plugin"]),
        ("from theirs import *\nx()", []),
        ("import mine\nmine.f()", ["mine"]),
        ("from mine import *\nf()", ["mine"]),
        ("from mine import part\npart.f()", ["mine", "mine.part"]),
        ("import not_loaded", []),
        ("import json\nimport gridengine", []),
        ("def f():\n    import theirs", []),
        ("if __name__ == '__main__':\n    import mine, theirs", []),
        ("if __name__ == '__main__':\n    import mine\nimport theirs", ["theirs"]),
        ("if __name__ != '__main__':\n    pass\nimport theirs", ["theirs"]),
        ("IS_MAIN = __name__ == '__main__'\nimport theirs", ["theirs"]),
        ("IS_MAIN = __name__ == '__main__'\nimport theirs\nif IS_MAIN:\n    pass", ["theirs"]),
        ("f = [__name__ == '__main__']\nif f:\n    import theirs\n", ["theirs"]),
        ("if not __name__ == '__main__':\n    import theirs", ["theirs"]),
        ("if x and __name__ == '__main__':\n    import mine\nimport theirs", ["theirs"]),
    ],
)
def test_a_script_imports_for_effect(
    text: str, names: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(monkeypatch, tmp_path / "script.py", text)
    assert list(imports()[0]) == names


def test_code_that_a_script_executes_is_not_taken_for_the_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(monkeypatch, tmp_path / "script.py", "import theirs")
    space = vars(sys.modules["__main__"])
    space["found"] = imports
    exec("result = found()", space)
    assert space["result"][0] == ("theirs",)


def test_a_relative_import_has_the_whole_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(monkeypatch, tmp_path / "__main__.py", "from . import mine", "package")
    assert imports()[0] == ("package.mine",)


def test_a_module_that_is_used_comes_by_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(monkeypatch, tmp_path / "script.py", "import mine, mine.part as part, theirs\nmine.f()")
    assert imports()[1] == ("mine.part", "theirs")


def test_programs_of_the_environment_import_nothing_for_effect(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "site-packages" / "pytest.py"
    program.parent.mkdir()
    run(monkeypatch, program, "import mine, theirs")
    assert not imports()[0]


def test_cells_of_a_notebook_count_as_one_script(monkeypatch: pytest.MonkeyPatch) -> None:
    main = types.ModuleType("__main__")
    cells = ["", "import theirs, others", "await others.f()", "%not python"]
    monkeypatch.setitem(main.__dict__, "In", cells)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert imports()[0] == ("theirs",)
    cells.append("theirs.f()")
    main.__dict__["_i4"] = cells[-1]  # as IPython does
    assert not imports()[0]


def test_a_module_that_cannot_be_imported_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    modules = {"one_fails": "1 / 0", "one_exits": "raise SystemExit", "one_works": ""}
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    import_all(("not_there", "one_fails", "one_exits", "one_works"))
    assert "one_works" in sys.modules
    del sys.modules["one_works"]


def test_a_module_for_which_there_is_no_memory_is_no_module_to_leave_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "one_is_large.py").write_text("raise MemoryError")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MemoryError):
        import_all(("one_is_large",))
