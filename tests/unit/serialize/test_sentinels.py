"""Sentinels of a script, from Python 3.15 on: each is one object in each process."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

from gridengine.client.functions import references_of
from gridengine.journal.call_keys import CallKeys
from gridengine.serialize import pickling, sentinels
from gridengine.serialize.classes import known_classes
from gridengine.serialize.payload import SINGLE

pytestmark = pytest.mark.skipif(sys.version_info < (3, 15), reason="there are none")


def new(name: str = "ABSENT", text: str | None = None) -> Any:
    """Return one of a script."""
    one = builtins.sentinel(name, repr=text)  # type: ignore[attr-defined]
    one.__module__ = "__main__"
    return one


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what unpickles as a process does that knows none."""
    other = sentinels._KnownSentinels({}, {})

    def load(payload: Any) -> Any:
        with monkeypatch.context() as there:
            there.setattr(sentinels, "_known", lambda: other)
            loaded = pickling.load(payload)
            return loaded, pickling.dump(loaded)

    return load


def test_a_sentinel_comes_back_as_itself(elsewhere: Any) -> None:
    here = new()
    assert pickling.load(pickling.dump([here, here])) == [here, here]
    there, back = elsewhere(pickling.dump(here))
    assert there is not here
    assert pickling.load(back) is here


def test_elsewhere_it_is_one_object_with_its_name_and_text(elsewhere: Any) -> None:
    here = new(text="<absent>")
    first, _ = elsewhere(pickling.dump([here, here]))
    second, _ = elsewhere(pickling.dump({"again": here}))
    assert first[0] is first[1] is second["again"]
    assert (first[0].__name__, first[0].__module__, repr(first[0])) == (
        "ABSENT",
        "__main__",
        "<absent>",
    )
    other, _ = elsewhere(pickling.dump(new()))
    assert other is not first[0]


def test_a_module_s_sentinel_travels_by_its_name(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Any
) -> None:
    one = new()
    one.__module__ = __name__
    monkeypatch.setattr(sys.modules[__name__], "ABSENT", one, raising=False)
    assert elsewhere(pickling.dump(one))[0] is one


def test_a_sentinel_of_an_earlier_process_is_the_scripts_own(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Any
) -> None:
    kept, now = pickling.dump(new()), new()
    monkeypatch.setattr(sys.modules["__main__"], "ABSENT", now, raising=False)
    monkeypatch.setattr(known_classes(), "finds_by_name", True)
    assert elsewhere(kept)[0] is now


def test_a_call_is_known_by_its_name_and_a_function_that_uses_it_is_pickled_once() -> None:
    keys = [CallKeys().of_call([one], SINGLE) for one in (new(), new(), new("OTHER"))]
    assert keys[0] == keys[1] != keys[2]
    one = new()
    assert references_of(lambda: one) is not None
