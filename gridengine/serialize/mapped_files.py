"""Arrays that are mapped from a file and may be written to (`numpy.memmap`, modes r+ and w+).

A call opens the file again, so that the caller sees what the call writes. By value, the call would
write to a copy. Imported only where there is such an array; then numpy is imported too.
"""

from __future__ import annotations

import importlib
import mmap
import os
import socket
from typing import Any

from gridengine.errors import PicklingError


def reduction(array: Any) -> Any:
    """Return the file of an array and the array's place in the file. Return `NotImplemented` for an
    array that cannot be written to, or that has no file, such as the sum of two arrays.
    """
    mapping: Any = getattr(array, "_mmap", None)
    if (
        not type(array).__module__.startswith("numpy")
        or mapping is None
        or array.mode not in ("r+", "w+")
        or not array.flags.writeable
        or not isinstance(array.filename, (str, os.PathLike))
        or array.size == 0
    ):
        return NotImplemented
    numpy: Any = importlib.import_module("numpy")  # type checkers may not find it
    # A view has the offset of its whole array, whose mapping begins at a whole page.
    begin = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    place = begin + array.ctypes.data - numpy.frombuffer(mapping, numpy.uint8).ctypes.data
    path = os.fspath(array.filename)  # numpy has made it absolute
    return open_again, (path, place, array.dtype, array.shape, array.strides)


def open_again(
    path: str, place: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Any:
    """Map an array at this place of a file, in bytes.

    Raises:
        PicklingError: the file cannot be opened on this machine.
    """
    numpy: Any = importlib.import_module("numpy")
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    before = -sum(step for step in steps if step < 0)
    length = before + sum(step for step in steps if step > 0) + dtype.itemsize
    try:
        whole: Any = numpy.memmap(path, numpy.uint8, "r+", place - before, (length,))
    except (OSError, ValueError) as error:
        raise PicklingError(
            f"the file {path} of a numpy.memmap cannot be opened on {socket.gethostname()}: "
            f"{error}",
            hint="put it into a folder that all machines share; or hand over an array that is "
            "opened with mode='r' or 'c', whose content travels",
        ) from error
    array: Any = numpy.ndarray(shape, dtype, whole, before, strides).view(numpy.memmap)
    array._mmap, array.filename = whole._mmap, whole.filename
    array.offset, array.mode = whole.offset, whole.mode
    return array
