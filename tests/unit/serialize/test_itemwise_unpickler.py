"""Lists loaded item by item: what stands for those that cannot be rebuilt."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest

from gridengine.serialize import pickling
from gridengine.serialize.itemwise_unpickler import Unloadable, load_items


class Stubborn:
    """Raises when it is rebuilt."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __setstate__(self, state: dict[str, Any]) -> None:
        raise state["error"]


class Absent:
    """Refers to something that is not there."""

    def __reduce__(self) -> Any:
        return "NOWHERE"


NOWHERE = Absent()


def test_an_item_that_cannot_be_rebuilt_is_replaced_by_its_error() -> None:
    first, second, third = load_items(pickle.dumps([1, Stubborn(KeyError("no")), [2]], 5), ())
    assert (first, third) == (1, [2])
    assert type(second) is Unloadable
    assert "in __setstate__" in "".join(traceback.format_exception(second.error))


def test_buffers_of_their_own_find_their_items() -> None:
    numpy = pytest.importorskip("numpy")
    arrays = [numpy.full(100_000, number) for number in range(3)]
    payload = pickling.dump_calls(
        [arrays[0], Stubborn(KeyError("no")), (arrays[1], Stubborn(KeyError("no"))), arrays[2]]
    )
    calls, complete = pickling.load_items(payload)
    assert not complete
    assert [type(one) for one in calls] == [numpy.ndarray, Unloadable, Unloadable, numpy.ndarray]
    assert calls[0][0] == 0
    assert calls[3][0] == 2


def test_a_missing_module_fails_only_the_values_that_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pickled = pickle.dumps([1, NOWHERE, (2, NOWHERE), 3], 5)
    monkeypatch.delattr(f"{__name__}.NOWHERE")
    assert [type(one) is Unloadable for one in load_items(pickled, ())] == [
        False,
        True,
        True,
        False,
    ]


def test_an_error_that_is_no_exception_belongs_to_its_item_too() -> None:
    items, complete = pickling.load_items(
        [pickle.dumps([Stubborn(SystemExit("no licence")), 1], 5)]
    )
    assert not complete
    assert isinstance(items[0].error, SystemExit)
    assert items[1] == 1


def test_a_ctrl_c_belongs_to_no_item() -> None:
    with pytest.raises(KeyboardInterrupt):
        pickling.load_items([pickle.dumps([Stubborn(KeyboardInterrupt()), 1], 5)])


def test_a_pickle_of_no_list_is_an_error() -> None:
    for pickled in (pickle.dumps(Stubborn(KeyError("no")), 5), pickle.dumps([1], 5)[:-2]):
        with pytest.raises((KeyError, EOFError)):
            pickling.load_items([pickled])
