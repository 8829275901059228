"""What calls find around them as their caller has it: the working directory, `sys.path`, the
environment, `sys.argv`, the state of the interpreter, and the umask.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
from pathlib import Path
from typing import Any, TypeAlias

from gridengine.errors import ConfigurationError
from gridengine.serialize.users_modules import own_modules
from gridengine.worker.call_context import GVAR
from gridengine.worker.environment import Variables, own_variables, present_state

Surroundings: TypeAlias = tuple[bytes, tuple[bytes, ...], bytes, tuple[bytes, ...], bytes, bytes]
"""The working directory, `sys.path` with absolute entries, the environment, `sys.argv`, the state
of the interpreter, and a digest of them all, of the process and of its own modules as they are now:
workers that stay load functions of another anew, and with them what was edited.
"""


def surroundings() -> Surroundings:
    """Return what calls that are submitted now find around them.

    Raises:
        ConfigurationError: the working directory is gone.
    """
    try:
        directory = os.getcwd()  # noqa: PTH109 - paid for each map
        variables, generation = _environment(), own_modules().generation
        state = present_state()
        return _surroundings(
            directory, tuple(sys.path), tuple(sys.argv), variables, state, generation
        )
    except OSError as error:
        hint = "os.chdir() to a folder that exists: calls run in the one that you are in"
        raise ConfigurationError(
            f"there is no working directory: {error.strerror}; it has been removed, perhaps",
            hint=hint,
        ) from error


@functools.lru_cache(maxsize=1)
def _surroundings(
    directory: str,
    entries: tuple[Any, ...],
    argv: tuple[Any, ...],
    variables: bytes,
    state: bytes,
    generation: int,
) -> Surroundings:
    path = tuple(os.fsencode(Path(directory, entry)) for entry in entries)
    arguments = tuple(os.fsencode(str(one)) for one in argv)
    parts = [os.fsencode(directory), *path, b"", *arguments, b"", variables, state]
    if not GVAR.in_runner:  # modules may have been edited since a process before this one
        parts += [_this_process(), b"%d" % generation]
    digest = hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()
    return os.fsencode(directory), path, variables, arguments, state, digest


@functools.cache
def _this_process() -> bytes:
    return os.urandom(16)


def _environment() -> bytes:
    """Return the environment as /proc/self/environ would have it; the same object as long as
    nothing of it changes. What a call was allocated does not go on to the calls that it makes.
    """
    before, text = _last_environment().get(None, (None, b""))
    present = own_variables()
    if GVAR.given:
        instead = {
            name: otherwise
            for name, (value, otherwise) in GVAR.given.items()
            if present.get(name) == value
        }
        merged = {**present, **instead}
        present = {name: value for name, value in merged.items() if value is not None}
    if before != present:
        before = dict(present)
        text = b"\0".join(b"%s=%s" % entry for entry in before.items())
        _last_environment()[None] = before, text
    return text


@functools.cache
def _last_environment() -> dict[None, tuple[Variables, bytes]]:
    """Return what the environment was when it was last looked at, and as one text."""
    return {}


def present_umask() -> int:
    """Return this process's umask. The system call would set it, and other threads make files."""
    said = b""
    with contextlib.suppress(FileNotFoundError):  # there is no /proc
        descriptor = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            said = os.read(descriptor, 256).partition(b"\nUmask:")[2]
        finally:
            os.close(descriptor)
    if said:
        return int(said.split()[0], 8)
    umask = os.umask(0o077)  # nothing else tells it there, nor on Linux before 4.7
    os.umask(umask)
    return umask
