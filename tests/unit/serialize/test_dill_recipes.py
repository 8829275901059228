"""What dill takes apart, and that it is left alone before."""

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
from gridengine.serialize import pickling


class Held:
    lock = threading.Lock()  # one that a module offers under a name travels by that


def through(obj: Any) -> Any:
    return pickling.load(pickling.dump(obj))


def test_what_only_dill_knows_travels_too() -> None:
    assert list(through({1: 2}.keys())) == [1]
    target = type("Local", (), {})
    assert through([weakref.ref(target), target])[0]() is target


def test_a_class_may_hold_what_only_dill_knows() -> None:
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
