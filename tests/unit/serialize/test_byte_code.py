"""Code objects: what they name, and that those of another Python are never run."""

from __future__ import annotations

import marshal
import sys

import pytest

from gridengine.errors import VersionMismatch
from gridengine.serialize import byte_code, pickling
from gridengine.serialize.payload import SINGLE


def test_names_of_attributes_are_not_taken_for_global_variables() -> None:
    assert byte_code.global_names((lambda x: (x.LOCK, len(SINGLE.y))).__code__) == ("SINGLE", "len")  # type: ignore[attr-defined]


def test_submodules_are_those_that_code_reaches_as_attributes() -> None:
    import xml.dom.minidom

    code = (lambda: xml.dom.Node).__code__
    assert [*byte_code.submodules(code, [xml, SINGLE])] == ["xml.dom"]


def test_code_of_another_python_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    with monkeypatch.context() as other:
        other.setattr(byte_code, "MARK", b"2.7 (byte code 62211)\n")
        function = pickling.dump(lambda: 1)
        made = pickling.dump(type("Made", (), {"method": lambda self: 1})())
    monkeypatch.setattr(marshal, "loads", pytest.fail)
    for payload in (function, made):
        with pytest.raises(VersionMismatch, match=rf"Python 2\.7 .* which Python {this} .*cannot"):
            pickling.load(payload)
