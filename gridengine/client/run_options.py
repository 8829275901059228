"""What users say of a run with a name. Imports little: maps without one need no more."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, TypeAlias, TypedDict

from msgspec import Struct

from gridengine.errors import ConfigurationError
from gridengine.resources.units import flag

Resume: TypeAlias = bool | Literal["anyway"]


class RunKeywords(TypedDict, total=False):
    """What all that make many calls take as keywords for a run with a name."""

    name: str | None
    journal: str | os.PathLike[str] | None
    resume: Resume
    retry_failed: bool
    wait: bool


class RunOptions(Struct, frozen=True):
    """`RunKeywords`, checked: see `docs/runs.md`.

    Raises:
        TypeError, ConfigurationError: one of them is none of what it may be.
    """

    name: str
    journal: str | os.PathLike[str] | None = None
    resume: Resume = True
    retry_failed: bool = True
    wait: bool = False
    places: tuple[tuple[int, int], ...] | None = None
    """Of calls that are made again, where they are kept: the block, and the number there."""

    def __post_init__(self) -> None:
        if not (isinstance(self.resume, bool) or self.resume == "anyway"):  # 0 would be False
            raise ConfigurationError(f'resume must be True, False or "anyway", not {self.resume!r}')
        flag("retry_failed", self.retry_failed)
        flag("wait", self.wait)


def run_options(keywords: RunKeywords, called: Callable[..., object]) -> RunOptions | None:
    """Return what these keywords, which `called` was given, say; None without a name.

    Raises:
        TypeError, ConfigurationError: as `RunOptions`; or they say more, without a name.
    """
    for unknown in keywords.keys() - RunKeywords.__annotations__.keys():
        import inspect

        from gridengine.client.options import unexpected_keyword

        known = [*inspect.signature(called).parameters, *RunKeywords.__annotations__]
        listed = f"help(gridengine.{called.__name__}) lists what it takes"
        raise unexpected_keyword(called.__name__, unknown, known, listed)
    if keywords.get("name") is not None:
        return RunOptions(**keywords)  # type: ignore[arg-type]
    if said := [word for word, value in keywords.items() if value is not None]:
        raise ConfigurationError(
            f"{said[0]}= is about a run with a name, and there is none", hint="give it name="
        )
    return None
