"""Arrays that are mapped from files, or read-only, as arguments of calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gridengine
from tests.integration.conftest import LOCAL_AND_TCP

pytestmark = LOCAL_AND_TCP


def set_all(array: Any) -> None:
    array[...] = 7


@pytest.fixture
def mapped(tmp_path: Path) -> Any:
    return np.memmap(tmp_path / "array", np.int16, "w+", offset=6, shape=(40, 50))


@pytest.mark.parametrize(
    "part",
    [
        lambda array: array,
        lambda array: array[3:30:2, ::-3],
        lambda array: array.T[4],
        lambda array: array[:1, 0],
    ],
)
def test_writes_of_calls_to_a_memory_map_are_in_its_file(
    scheduler: gridengine.Scheduler, mapped: Any, part: Callable[[Any], Any]
) -> None:
    wanted = np.zeros(mapped.shape)
    set_all(part(wanted))
    gridengine.map(set_all, [part(mapped)], scheduler=scheduler)
    assert (mapped == wanted).all()
    assert (np.memmap(mapped.filename, np.int16, "r", 6, mapped.shape) == wanted).all()


@pytest.mark.promise
def test_a_memory_map_whose_file_is_gone_is_named(
    scheduler: gridengine.Scheduler, mapped: Any
) -> None:
    Path(mapped.filename).unlink()
    with pytest.raises(gridengine.PicklingError, match=f"the file {mapped.filename} of"):
        gridengine.map(set_all, [mapped], scheduler=scheduler)


@pytest.mark.promise
def test_the_error_of_a_write_to_a_read_only_array_says_to_copy_it(
    scheduler: gridengine.Scheduler,
) -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="read-only") as caught:
        gridengine.map(set_all, [array], scheduler=scheduler)
    assert "array.copy()" in "".join(caught.value.__notes__)
