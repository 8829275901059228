"""Calls wait as they are where nothing can change them, and pickled otherwise."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

from gridengine.errors import PicklingError
from gridengine.serialize import pickling
from gridengine.serialize.argument_snapshot import SHORT, CallSnapshot, is_constant, snapshot
from gridengine.serialize.encoding import OUT_OF_BAND
from gridengine.serialize.payload import FULL, SINGLE, STAR


@pytest.mark.parametrize("value", [None, True, 3, 2.5, 1j, "a" * SHORT, b"a", (1, "a", b"b"), ()])
def test_short_values_that_cannot_change_are_constant(value: object) -> None:
    assert is_constant(value)


class Number(int):
    """A number that may have attributes."""


@pytest.mark.parametrize(
    "value",
    [
        "a" * (SHORT + 1),
        b"a" * (SHORT + 1),
        (0,) * (SHORT + 1),
        [1],
        ("a", "b" * 999),
        ((1,),),
        Number(3),
    ],
)
def test_long_or_mutable_arguments_are_not_copied(value: object) -> None:
    assert not is_constant(value)


@pytest.mark.parametrize(
    ("call", "form"), [(3, SINGLE), ((3, "a"), STAR), (((3,), {"key": "a"}), FULL)]
)
def test_a_call_of_constants_waits_as_it_is(call: Any, form: int) -> None:
    assert snapshot(call, form) is call


@pytest.mark.parametrize(("arguments", "named"), [(([1],), {}), ((1,), {"key": [1]})])
def test_a_call_of_what_may_change_arrives_as_it_was(arguments: Any, named: Any) -> None:
    taken = snapshot((arguments, named), FULL)
    for one in (*arguments, *named.values()):
        if isinstance(one, list):
            one.append("later")
    assert isinstance(taken, CallSnapshot)
    (back,) = pickling.load(pickling.dump_calls([taken]))
    assert "later" not in repr(back)


def test_the_large_buffers_of_a_waiting_call_are_not_pickled_again() -> None:
    taken = snapshot(pickle.PickleBuffer(bytearray(OUT_OF_BAND)), SINGLE)
    payload = pickling.dump_calls([taken])
    assert memoryview(payload[1]).obj is taken.payload[1]
    assert taken.size > OUT_OF_BAND


def test_a_call_that_cannot_be_pickled_is_an_error_that_names_it() -> None:
    with pytest.raises(PicklingError, match="argument 2 of the call of train"):
        snapshot((1, threading.Lock()), STAR, "train")
