"""How calls travel whose functions are known by name."""

from __future__ import annotations

import math
import os
from typing import Any

import msgspec
import pytest

from gridengine.errors import PicklingError
from gridengine.serialize.codecs import CODECS, Codec, import_function, is_importable

codecs = pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))


class Odd(Exception):
    def __str__(self) -> str:
        raise ValueError


@codecs
@pytest.mark.parametrize("items", [[], [None, 1.5, "ä", [1, {"a": True}]]])
def test_values_come_back(codec: Codec, items: list[Any]) -> None:
    assert codec.load_items(codec.dump_values(items)) == items


@codecs
@pytest.mark.parametrize("value", [5, {"a": 1}, "text"])
def test_calls_are_a_list(codec: Codec, value: object) -> None:
    with pytest.raises(ValueError, match=f"not a list in {codec.name}"):
        codec.load_items([codec.encode(value)])


@codecs
@pytest.mark.parametrize("payload", [b"", b"\xc1", b"[1", b"\xff\xfe"])
def test_data_of_another_form_is_a_value_error(codec: Codec, payload: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)) as raised:
        codec.load_items([payload])
    assert isinstance(raised.value, ValueError)


@codecs
def test_a_result_that_has_no_such_form_is_named(codec: Codec) -> None:
    with pytest.raises(PicklingError, match=f"result of call 0 has no form in {codec.name}"):
        codec.dump_values([object()])
    with pytest.raises(PicklingError, match="call 7 of f has no form"):
        codec.dump_values([object()], describe=lambda place: f"call {place + 7} of f")
    with pytest.raises(PicklingError, match="a result has no form"):
        codec.dump_values([1, object()])


def test_numbers_that_json_does_not_have_are_null() -> None:
    json = CODECS["json"]
    assert json.load_items(json.dump_values([math.nan, math.inf])) == [None, None]


@codecs
@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("a: b"), "ValueError", "a: b"),
        (KeyError(), "KeyError", ""),
        (OSError("\udcff"), "OSError", "\\udcff"),
        (Odd(), "Odd", ""),
    ],
)
def test_any_exception_travels_as_text(
    codec: Codec, error: Exception, kind: str, message: str
) -> None:
    told = codec.decode(codec.dump_exception(error, "x=\udcff")[0])
    assert (told["type"], told["message"], told["arguments"]) == (kind, message, "x=\\udcff")
    assert kind in told["traceback"]


def test_a_form_has_the_name_by_which_it_is_found() -> None:
    assert all(one.name == name for name, one in CODECS.items())


@pytest.mark.parametrize(
    ("name", "function"), [("os.path:join", os.path.join), ("msgspec:Struct.__init__", None)]
)
def test_a_function_is_found_by_its_name(name: str, function: object) -> None:
    assert is_importable(name)
    assert import_function(name) is (function or msgspec.Struct.__init__)


@pytest.mark.parametrize("name", ["os:nosuch", "nosuch.module:f", "os:", ":f", "os:path", "os"])
def test_a_name_of_no_function_is_an_error(name: str) -> None:
    with pytest.raises((AttributeError, ImportError, ValueError, TypeError)):
        import_function(name)


def test_other_names_are_those_of_workers_that_announce_them() -> None:
    assert not is_importable("square")
