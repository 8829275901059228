"""The settings of this process: one frozen object, made at its first use from defaults, settings
files and the environment. Later sources override earlier ones.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from typing import Any

from gridengine.arguments import SHOWN
from gridengine.errors import ConfigurationError, safe_repr
from gridengine.settings.files import nearest, read_files, suggestion
from gridengine.settings.locations import PREFIX
from gridengine.settings.schema import (
    BatchSite,
    GridEngineSite,
    Names,
    Setting,
    Settings,
    SlurmSite,
    build,
    choices,
    from_text,
    setting_types,
)

__all__ = ["BatchSite", "GridEngineSite", "Setting", "Settings", "SlurmSite", "settings", "sources"]

OURS = ("JOB_", "NOTICE_", "TEST_", "REQUIRE_", "CHAOS_", "BENCH_")
"""The variables with these words after the prefix are no settings: workers get them, or our tests
read them.
"""


@functools.cache
def settings() -> Settings:
    """Return the settings of this process. The first call reads files and the environment (see
    `sources`).
    """
    return build({name: one.value for name, one in _said(os.environ).items()})


def sources(environment: Mapping[str, str] = os.environ) -> dict[str, Setting]:
    """Return each setting and its source, as files and the environment say now.

    Raises:
        ConfigurationError: a file or the environment has an error; the text names the line or the
        variable.
    """
    default = Settings()
    return {
        name: Setting(getattr(default.sites[table] if table else default, key), "default")
        for name in setting_types()
        for table, _, key in [name.rpartition(".")]
    } | _said(environment)


def said_by(name: str) -> str:
    """Return the source of a setting: a file and its line, an environment variable, or
    "default".
    """
    try:
        return sources()[name].by
    except ConfigurationError:  # the files have changed since; another error is being reported
        return "settings that cannot be read any more"


def said_in(words: str, prefix: str) -> str:
    """Return, for the end of an error's text, the settings with this prefix whose values occur in
    `words`, and the source of each. Empty when there is none, or when the settings can no longer be
    read.
    """
    try:
        said = _said(os.environ)
    except ConfigurationError:
        said = {}
    found = [
        f"{name} = {value!r} is set by {one.by}"
        for name, one in said.items()
        if name.startswith(prefix)
        for value in (one.value.values() if isinstance(one.value, Mapping) else [one.value])
        if isinstance(value, str) and value and _stands_in(words, *value.partition("{")[:2])
    ]
    return f" ({', '.join(found)})" if found else ""


def _stands_in(words: str, start: str, brace: str) -> bool:
    end = "" if brace else r"(?!\w)"
    return re.search(rf"(?<!\w){re.escape(start.strip())}{end}", words) is not None


def _said(environment: Mapping[str, str]) -> dict[str, Setting]:
    """Return all settings that a file or the environment sets."""
    return {
        name: one
        for layer in (*read_files(environment), from_environment(environment))
        for name, one in layer.items()
    }


def from_environment(environment: Mapping[str, str]) -> dict[str, Setting]:
    """Return the settings in `GRIDENGINE_*` variables. A table of names, such as `tokens`, can only
    be set in a file.

    Raises:
        ConfigurationError: a value does not fit its setting's type, or a number is not positive; or
            a
        variable with our prefix is not a setting.
    """
    said = [name for name in environment if name.startswith(PREFIX)]
    if not said:
        return {}  # early, because looking at the types takes time
    names = {name.replace(".", "_"): name for name in setting_types()}
    found = {}
    for variable in said:
        word = variable.removeprefix(PREFIX)
        if word.isupper() and word.lower() in names:
            name = names[word.lower()]
            value = _parsed(variable, setting_types()[name], environment[variable])
            found[name] = Setting(value, variable)
        elif not word.startswith(OURS):
            hint = suggestion(
                word.lower(), setting_types(), lambda name: PREFIX + name.replace(".", "_").upper()
            )
            raise ConfigurationError(
                f"{variable} is not the variable of a setting",
                hint=f"unset it, or correct it: {hint}",
            )
    return found


def _parsed(variable: str, kind: Any, text: str) -> Any:
    if kind is Names:
        raise ConfigurationError(
            f"{variable} cannot be set in the environment", hint="write it into a settings file"
        )
    try:
        return from_text(text, kind)
    except ValueError as error:
        near = nearest(text, choices(kind))
        raise ConfigurationError(
            f"{variable}={safe_repr(text, most=SHOWN)} is not {error}",
            hint=f"{variable}={near}" if near else "change or unset this environment variable",
        ) from None
