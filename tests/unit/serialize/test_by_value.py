"""What travels by name, and what the receiver has of its own."""

from __future__ import annotations

import functools
import io
import sys
from typing import Any

import pytest

from gridengine.errors import WorkerCrashed
from gridengine.serialize import pickling


def through(obj: Any) -> Any:
    return pickling.load(pickling.dump(obj))


def test_what_can_be_imported_travels_by_name() -> None:
    assert through(functools.reduce) is functools.reduce
    assert through(WorkerCrashed) is WorkerCrashed
    assert len(pickling.dump(pickling.dump_calls)[0]) < 100


def test_the_standard_streams_are_those_of_the_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    payload = pickling.dump(sys.stdout)
    monkeypatch.setattr(sys, "stdout", other := io.StringIO())
    assert pickling.load(payload) is other
