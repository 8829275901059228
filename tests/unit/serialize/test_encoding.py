"""Which buffers travel on their own, which are copied, and which objects dill takes apart."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from gridengine.errors import PicklingError
from gridengine.serialize import encoding, pickling


def test_large_buffers_of_results_are_not_copied_and_small_ones_are_in_band() -> None:
    large, small = bytearray(encoding.OUT_OF_BAND), bytearray(encoding.OUT_OF_BAND - 1)
    payload = pickling.dump_values([pickle.PickleBuffer(large), pickle.PickleBuffer(small)])
    assert len(payload) == 2
    assert memoryview(payload[1]).obj is large
    assert pickling.load(payload) == [large, small]


def test_an_argument_that_changes_after_it_was_handed_in_arrives_as_it_was() -> None:
    array = bytearray(b"a" * encoding.OUT_OF_BAND)
    payload = pickling.dump_calls([pickle.PickleBuffer(array)])
    array[0] = 0
    assert pickling.load(payload)[0][:1] == b"a"


def test_a_read_only_view_of_changing_data_arrives_as_it_was() -> None:
    np = pytest.importorskip("numpy")
    memory = bytearray(encoding.OUT_OF_BAND)
    array = np.frombuffer(memory, np.uint8)
    own = np.zeros(encoding.OUT_OF_BAND, np.uint8)
    views = [array[:], own.view(), np.frombuffer(memoryview(memory).toreadonly(), np.uint8)]
    for view in views:
        view.setflags(write=False)
    payload = pickling.dump_calls(views)
    memory[0] = own[0] = 1
    assert [view[0] for view in views] == [1, 1, 1]
    assert [view[0] for view in pickling.load(payload)] == [0, 0, 0]


def test_immutable_data_is_not_copied() -> None:
    np = pytest.importorskip("numpy")
    constant = bytes(encoding.OUT_OF_BAND)
    own = np.zeros(encoding.OUT_OF_BAND, np.uint8)
    own.setflags(write=False)
    for one in (pickle.PickleBuffer(constant), np.frombuffer(constant, np.uint8), own, own[:]):
        assert type(pickling.dump_calls([one])[1]) is memoryview


def test_a_writable_buffer_is_not_copied_when_it_arrives() -> None:
    payload = pickling.dump(pickle.PickleBuffer(bytearray(encoding.OUT_OF_BAND)))
    arrived = bytearray(payload[1])
    back = pickling.load([payload[0], arrived])
    assert memoryview(back).obj is arrived or back is arrived


def test_a_payload_may_be_views_of_a_message() -> None:
    message = b"xx" + bytes(pickling.dump_calls([1, "a"])[0]) + b"yy"
    assert pickling.load([memoryview(message)[2:-2]]) == [1, "a"]


class Held:
    lock = threading.Lock()  # one that a module offers under a name travels by that


def through(obj: Any) -> Any:
    return pickling.load(pickling.dump(obj))


def test_objects_that_only_dill_knows_travel() -> None:
    assert list(through({1: 2}.keys())) == [1]
    target = type("Local", (), {})
    assert through([weakref.ref(target), target])[0]() is target


def test_a_class_may_hold_objects_that_only_dill_pickles() -> None:
    class Choice:
        keys = {"a": 1}.keys()

    assert through(Choice).keys is Choice.keys


def test_locks_and_files_do_not_arrive_as_others() -> None:
    with Path(__file__).open() as file:
        for obj in (Held.lock, threading.RLock(), file):
            with pytest.raises(PicklingError):
                pickling.dump(obj)


def test_dill_is_not_imported_until_it_is_needed() -> None:
    code = (
        "import sys; from gridengine.serialize.pickling import *\n"
        "class A: pass\n"
        "load(dump([A(), lambda: A, 1, ValueError(2)])); assert 'dill' not in sys.modules\n"
        "dump({}.keys()); assert 'dill' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=True)


def test_plain_pickle_behaves_as_if_dill_were_not_there() -> None:
    pickling.dump({}.keys())
    for obj in (Held.lock, lambda: 1, {}.keys()):
        with pytest.raises((TypeError, pickle.PicklingError, AttributeError)):
            pickle.dumps(obj)
