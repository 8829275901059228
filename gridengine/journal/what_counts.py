"""A user's wishes for the keys of calls: values that count beside function and arguments
(`depends=`), and arguments that do not count (`ignore=`).
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

from gridengine.call_context.coroutines import Synchronous
from gridengine.call_context.random_streams import Seeded, takes_number
from gridengine.errors import ConfigurationError, safe_repr
from gridengine.serialize.payload import FULL, STAR
from gridengine.serialize.unpicklable import name_of
from gridengine.serialize.users_modules import is_own_module


def dependencies(depends: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield a name for each of the things that results depend on, and the object that counts for
    it: the digest of a file, the version of a package, else the object itself.

    Raises:
        ConfigurationError: there is no such file, or a package does not tell its version.
    """
    for number, one in enumerate(depends):
        if isinstance(one, str | os.PathLike):
            yield f"depends on {os.fspath(one)}", _of_path(Path(one))
        elif isinstance(one, types.ModuleType) and not is_own_module(one):
            yield f"depends on {one.__name__}", _version(one)
        else:
            yield f"depends on {getattr(one, '__name__', f'value {number + 1}')}", one


def _of_path(path: Path) -> Any:
    if path.is_dir():
        files = sorted(one for one in path.rglob("*") if one.is_file())
        return [(str(one.relative_to(path)), _of_file(one)) for one in files]
    return _of_file(path)


def _of_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file_digest(file, blake2b).digest()
    except OSError as error:
        raise ConfigurationError(
            f"depends= names the file {str(path)!r}, which cannot be read: {error.strerror}",
            hint="a text is the path of a file or folder; give another value in a tuple or dict, "
            'depends=[("version", "2")]',
        ) from None


def _version(module: types.ModuleType) -> str:
    version = getattr(module, "__version__", None)
    if version is None:
        raise ConfigurationError(
            f"depends= names the module {module.__name__}, which tells no __version__",
            hint='give its version in a tuple, depends=[("version", "2")]',
        )
    return str(version)


class IgnoredArguments:
    """Leaves the arguments for some parameters of a function out of its calls."""

    def __init__(self, f: Callable[..., Any], names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._places = _places(f, self._names)
        self._has_numbers = takes_number(f)

    def counted(self, call: Any, form: int) -> Any:
        """Return what counts of a call. The number of a call with a seed always does."""
        if form == FULL:
            positional, named = call
            left = {name: value for name, value in named.items() if name not in self._names}
            return self._positional(positional), left
        if form == STAR:
            return self._positional(call)
        return None if 0 in self._places and not self._has_numbers else call

    def _positional(self, given: Sequence[Any]) -> tuple[Any, ...]:
        if self._has_numbers:
            *given, number = given
            return *self._left(given), number
        return self._left(given)

    def _left(self, given: Sequence[Any]) -> tuple[Any, ...]:
        left = [None if at in self._places else one for at, one in enumerate(given)]
        while len(left) - 1 in self._places:
            left.pop()
        return tuple(left)


def counted_function(f: Callable[..., Any], names: Iterable[str]) -> Callable[..., Any]:
    """Return a function without the arguments for these parameters that a partial has given it."""
    if isinstance(f, Seeded):
        return Seeded(counted_function(f._function, names), f._seed)
    if type(f) is not functools.partial:
        return f
    positional, named = IgnoredArguments(f.func, names).counted((f.args, f.keywords), FULL)
    return functools.partial(f.func, *positional, **named)


def check_ignored(f: Callable[..., Any], names: Iterable[str]) -> None:
    """Check that a function has these parameters.

    Raises:
        ConfigurationError: it has not; the text names them.
    """
    if not names:
        return
    known = _parameters(f)
    if known is None:
        raise ConfigurationError(
            f"ignore= is given, and the parameters of {name_of(f)} cannot be known",
            hint="write a function around it",
        )
    several = any(one.kind is one.VAR_KEYWORD for one in known)
    single = [one.name for one in known if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    for name in names:
        if name not in single and not several:
            raise ConfigurationError(
                f"ignore= names {safe_repr(name)}, which is no parameter of {name_of(f)}",
                hint=f"it has: {', '.join(single) or 'none'}",
            )


def _parameters(f: Callable[..., Any]) -> Sequence[Any] | None:
    import inspect  # few need it

    while isinstance(f, Seeded | Synchronous):
        f = f._function
    try:
        return [*inspect.signature(f).parameters.values()]
    except (TypeError, ValueError):  # some functions of C code tell none
        return None


def _places(f: Callable[..., Any], names: frozenset[str]) -> frozenset[int]:
    """Return the indices of the parameters with these names that take positional arguments."""
    parameters = _parameters(f) or ()
    kinds = "POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD"
    by_place = [one for one in parameters if one.kind.name in kinds]
    return frozenset(at for at, one in enumerate(by_place) if one.name in names)
