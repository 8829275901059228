"""Shared by the translations of `grid_engine.options` and `slurm.options`: kinds of a user's own,
templates in settings, and the check that nothing is requested twice.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource
from gridengine.settings.values import said_by


def check_no_conflict(
    part: Resource, named: Iterable[str], own: Mapping[str, tuple[str, str]]
) -> None:
    """Raise unless the scheduler's own words are on other things than those that a part of a call's
    request says.

    `own` has the value of each thing, and the argument that says it.

    Raises:
        ConfigurationError: both say something of a thing; the text names both.
    """
    both = next((name for name in named if name in own), None)
    if both is not None:
        raise ConfigurationError(
            f"{part!r} of a call and {own[both][1]} of the scheduler both say {both}",
            hint="say it in one of the two places",
        )


def split_words(options: str) -> list[str]:
    """Return the words of options, quotes taken off: in these there may be blanks, as in a shell.

    Raises:
        ConfigurationError: a quote is not closed.
    """
    try:
        return shlex.split(options)
    except ValueError as error:
        raise ConfigurationError(f"the options {options!r} cannot be read: {error}") from error


def check_not_ours(names: Iterable[str], ours: Container[str]) -> None:
    """Raise unless users may set all options of these names.

    Raises:
        ConfigurationError: one of them would be replaced by our own; the text names it.
    """
    for name in names:
        if name in ours:
            raise ConfigurationError(
                f"{name} is not for users to set: workers need their own",
                hint="leave it out; name= of the scheduler names its jobs, and logs are below the "
                "run directory",
            )


def native_options(part: Resource, system: str) -> list[str]:
    """Return the options of a user's own kind.

    Raises:
        TypeError, ConfigurationError: it gives something else than options.
    """
    words: Any = part._native(system)
    if (
        isinstance(words, str)
        or not isinstance(words, Sequence)
        or not all(isinstance(word, str) for word in words)
    ):
        raise TypeError(
            f"_native({system!r}) of {part!r} must return a list of texts, not {words!r}"
        )
    if any(re.search(r"[\s'\"\0]", word) or not word for word in words):
        raise ConfigurationError(
            f"_native({system!r}) of {part!r} returns {words!r}, in which a word is empty or holds "
            "a blank or a quote"
        )
    return list(words)


def fill_template(setting: str, template: str, **values: object) -> str:
    """Return a setting's text with the values in their places.

    Raises:
        ConfigurationError: it has other places.
    """
    try:
        return template.format(**values)
    except (KeyError, ValueError, IndexError, AttributeError, TypeError) as error:
        places = ", ".join(f"{{{name}}}" for name in values)
        raise ConfigurationError(
            f"the setting {setting} = {template!r} may hold {places} and no other braces",
            hint=f"it is said by {said_by(setting)}",
        ) from error
