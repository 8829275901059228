"""Functions as they travel: pickled, with the path and the folder that their calls run in."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gridengine.dispatcher.core.tasks import Function
from gridengine.errors import ConfigurationError
from gridengine.serialize import pickling
from gridengine.serialize.module_changes import own_modules
from gridengine.serialize.shared_objects import needs_of


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
    own_modules().look()
    digest, payload = pickling.dump_function(f, retry_on, most_digested=most_digested)
    try:
        directory = Path.cwd()
    except OSError as error:
        hint = "os.chdir() to a folder that exists: calls run in the one that you are in"
        raise ConfigurationError(
            f"there is no working directory: {error.strerror}; it has been removed, perhaps",
            hint=hint,
        ) from error
    path = tuple(str(Path(directory, entry)) for entry in sys.path)
    name = getattr(f, "__qualname__", None) or getattr(f, "__name__", None) or type(f).__name__
    # The same function in another folder, or with another path, may do something else.
    digest = hashlib.blake2b(
        "\0".join([str(directory), *path]).encode(errors="surrogateescape"),
        key=digest,
        digest_size=16,
    ).digest()
    return Function(digest, payload, path, str(directory), str(name), needs_of(payload))
