"""Names that are imported lazily, from Python 3.15 on: they travel, and nobody imports them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gridengine.client.functions import references_of
from gridengine.serialize import pickling
from gridengine.serialize.encoding import encode

pytestmark = pytest.mark.skipif(sys.version_info < (3, 15), reason="Python imports eagerly")

OWN = {
    "lazy_own/__init__.py": "",
    "lazy_own/inner.py": "inner = 'function'\n",
    "lazy_own_same.py": "lazy_own_same = 'member'\n",
}


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have modules of the user's own that nobody has imported."""
    for name, text in OWN.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)


def forget() -> None:
    for name in [one for one in sys.modules if one.startswith("lazy_own")]:
        del sys.modules[name]


def written(imports: str, value: str) -> Any:
    """Return a function of a script with these imports that gives this."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(f"{imports}\ndef f(): return {value}", space)
    return space["f"]


@pytest.mark.parametrize(
    ("imports", "value", "expected"),
    [
        ("lazy import lazy_own.inner", "lazy_own.inner.inner", "function"),
        ("lazy import lazy_own.inner as lazy_own", "lazy_own.inner", "function"),
        ("lazy from lazy_own import inner as given", "given.inner", "function"),
        ("lazy from lazy_own.inner import inner", "inner", "function"),
        ("lazy from lazy_own_same import lazy_own_same", "lazy_own_same", "member"),
        ("lazy import lazy_own_same", "lazy_own_same.lazy_own_same", "member"),
        ("lazy import lazy_own_absent", "'not used' or lazy_own_absent", "not used"),
    ],
)
def test_a_function_that_uses_it_travels_and_imports_it_where_it_is_called(
    imports: str, value: str, expected: str
) -> None:
    forget()
    payload = encode(written(imports, value), {})
    arrived = pickling.load(payload)
    assert not [one for one in sys.modules if one.startswith("lazy_own")]
    assert arrived() == expected
    forget()


def test_a_lazy_import_does_not_pickle_a_function_again() -> None:
    assert references_of(written("lazy import lazy_own", "lazy_own")) is not None
