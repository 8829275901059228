"""Functions as they travel: pickled, with the path and the folder that their calls run in."""

from __future__ import annotations

import functools
import hashlib
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from gridengine.dispatcher.core.tasks import Function
from gridengine.errors import ConfigurationError
from gridengine.serialize import pickling
from gridengine.serialize.module_changes import own_modules
from gridengine.serialize.shared_objects import needs_of

Surroundings: TypeAlias = tuple[bytes, tuple[bytes, ...], bytes]


def make_function(
    f: Callable[..., Any],
    retry_on: tuple[type[BaseException], ...] = (),
    *,
    most_digested: float = math.inf,
) -> Function:
    """Return a callable as it travels: pickled, with what has its calls made again, this process's
    `sys.path` and working directory.

    most_digested: see `pickling.dump_function`.

    Raises:
        PicklingError: it cannot travel.
        ConfigurationError: the working directory is gone.
    """
    own_modules().check()
    digest, payload = pickling.dump_function(f, retry_on, most_digested=most_digested)
    directory, path, text = surroundings()
    name = getattr(f, "__qualname__", None) or getattr(f, "__name__", None) or type(f).__name__
    # The same function in another folder, or with another path, may do something else.
    digest = hashlib.blake2b(text, key=digest, digest_size=16).digest()
    return Function(digest, payload, path, directory, str(name), needs_of(payload))


def surroundings() -> Surroundings:
    """Return the working directory, `sys.path` with absolute entries, and both as one text.

    Raises:
        ConfigurationError: the working directory is gone.
    """
    try:
        return _surroundings(os.getcwd(), tuple(sys.path))  # noqa: PTH109 - paid for each map
    except OSError as error:
        hint = "os.chdir() to a folder that exists: calls run in the one that you are in"
        raise ConfigurationError(
            f"there is no working directory: {error.strerror}; it has been removed, perhaps",
            hint=hint,
        ) from error


@functools.lru_cache(maxsize=1)
def _surroundings(directory: str, entries: tuple[Any, ...]) -> Surroundings:
    path = tuple(os.fsencode(Path(directory, entry)) for entry in entries)
    return os.fsencode(directory), path, b"\0".join([os.fsencode(directory), *path])
