"""Settings files: the user's, then the project's. Where they are, whom they are believed from, what
they say in which line.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from gridengine.errors import ConfigurationError, safe_repr
from gridengine.resources.units import SHOWN
from gridengine.settings.schema import Said, checked, known
from gridengine.settings.trusted_files import Doubtful, open_trusted

logger = logging.getLogger("gridengine")

USERS = Path("gridengine", "settings.toml")
PROJECTS = "gridengine.toml"
CODE = "drmaa_library"
"""The setting that names code: whoever works in a folder has not thereby chosen to run what lies in
it.
"""
MOST_BYTES = 1_000_000
_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = re.compile(rf"\s*({_KEY}(?:\s*\.\s*{_KEY})*)\s*")

Lines: TypeAlias = Mapping[tuple[str, ...], int]
"""The number of the line of each key, by the key's path."""


def layers(environment: Mapping[str, str]) -> list[dict[str, Said]]:
    """Return what each settings file says, the one that has the last word last. Others' files are
    left out, with a warning.

    Raises:
        ConfigurationError: a file cannot be read or says something wrong; the text names the file
        and the line.
    """
    found = []
    for path in (users_file(environment), projects_file(environment)):
        if path is not None and (text := _believed(path)) is not None:
            found.append(parsed(path, text))
            if path.name == PROJECTS and CODE in found[-1]:
                raise ConfigurationError(
                    f"{found[-1][CODE].by}: {CODE} is not believed from a project's file: it names "
                    "code that is loaded",
                    hint=f"say it in {users_file(environment)}, in GRIDENGINE_DRMAA_LIBRARY or as "
                    "an argument",
                )
    return found


def _home(environment: Mapping[str, str]) -> Path | None:
    try:
        return Path(environment["HOME"]) if environment.get("HOME") else Path.home()
    except RuntimeError:  # a user without a home
        return None


def users_file(environment: Mapping[str, str]) -> Path | None:
    """Return where the user's own settings are, if anywhere: `~/.config/gridengine/settings.toml`,
    or below `XDG_CONFIG_HOME`.
    """
    given, home = environment.get("XDG_CONFIG_HOME", ""), _home(environment)
    if given.startswith("/"):  # others are to be ignored, says the XDG Base Directory Specification
        return Path(given) / USERS
    return home / ".config" / USERS if home is not None else None


def projects_file(environment: Mapping[str, str]) -> Path | None:
    """Return the `gridengine.toml` of the working directory, or of the nearest folder above it that
    has one.

    Nobody looks above a repository (a folder with `.git`) or above the home folder.
    """
    try:
        here = Path.cwd()
    except OSError:  # it has been deleted
        return None
    home = _home(environment)
    for folder in (here, *here.parents):
        if os.path.lexists(folder / PROJECTS):
            return folder / PROJECTS
        if folder == home or os.path.lexists(folder / ".git"):
            return None
    return None


def _believed(path: Path) -> str | None:
    """Return a file's text; None when there is none, or when others may have to do with it: its
    words become options of what is submitted.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        with open(open_trusted(path), "rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode()
    except FileNotFoundError:
        return None
    except Doubtful as doubt:
        logger.warning(
            "the settings in %s are left out: %s; to have them, put a copy of your own in its "
            "place",
            path,
            doubt,
        )
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"cannot read the settings in {path}: {error}", hint="a settings file is TOML, in UTF-8"
        ) from error
    if len(content) > MOST_BYTES:
        raise ConfigurationError(f"{path} is no settings file: it has more than {MOST_BYTES} bytes")
    return text


def told(path: Path | None) -> str:
    """Return where a settings file is, for people, with why it is left out if it is."""
    if path is None:
        return "none"
    try:
        os.close(open_trusted(path))
    except FileNotFoundError:
        return f"{path} (not there)"
    except (Doubtful, OSError) as error:
        return f"{path} (left out: {error})"
    return str(path)


def parsed(path: Path, text: str) -> dict[str, Said]:
    """Return what a settings file says, by full names.

    Raises:
        ConfigurationError: it is no TOML, or a key or a value is wrong; the text names the line,
        the hint a key that is like it.
    """
    import tomllib

    try:
        content = tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # numbers of thousands of digits, and brackets in brackets, are no TOMLDecodeError
        line = re.search(r"at line (\d+)", str(error))
        at = f":{line[1]}" if line else ""
        raise ConfigurationError(
            f"{path}{at}: {error}", hint="a settings file is TOML: see https://toml.io"
        ) from error
    lines, kinds = lines_of(text), known()
    said = {}
    for keys, value in _flat(content, kinds):
        name, place = ".".join(keys), f"{path}{_at(lines, keys)}"
        if name not in kinds:
            raise _unknown(place, name, kinds)
        try:
            said[name] = Said(checked(kinds[name], value), place)
        except ValueError as error:
            raise ConfigurationError(
                f"{place}: {name} = {safe_repr(value, most=SHOWN)} is not {error}"
            ) from None
    return said


def _flat(
    content: Mapping[str, Any], kinds: Mapping[str, type]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all settings of a file, known or not; the tables that hold settings are taken apart."""
    tables = {name.partition(".")[0] for name in kinds if "." in name}
    for name, value in content.items():
        if name in tables and isinstance(value, dict):
            yield from (((name, key), one) for key, one in value.items())
        else:
            yield (name,), value


def _unknown(place: str, name: str, kinds: Mapping[str, type]) -> ConfigurationError:
    import difflib

    tables = {one.partition(".")[0] for one in kinds if "." in one}
    if name in tables:
        return ConfigurationError(
            f"{place}: {name} is a table", hint=f"write [{name}], and what it holds in lines below"
        )
    # The right word in the wrong table is as near as a misspelt one.
    last = name.rpartition(".")[2]
    near = [one for one in kinds if one.rpartition(".")[2] == last] + difflib.get_close_matches(
        name, [*kinds, *tables], cutoff=0.5
    )
    hint = f"{near[0]!r} is one" if near else f"there are: {', '.join(kinds)}"
    return ConfigurationError(f"{place}: there is no setting {name!r}", hint=hint)


def _at(lines: Lines, keys: tuple[str, ...]) -> str:
    """Return `:line` of the key, or of the table that it is in."""
    known = next(
        (keys[:length] for length in range(len(keys), 0, -1) if keys[:length] in lines), None
    )
    return "" if known is None else f":{lines[known]}"


def lines_of(text: str) -> Lines:
    """Return in which line each key of a TOML text stands. tomllib does not tell; of texts over
    several lines this may see too much.
    """
    table: tuple[str, ...] = ()
    lines: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        is_header = line.lstrip().startswith("[")
        found = _DOTTED.match(line.lstrip(" \t["))
        if found is None or not (is_header or line.lstrip(" \t[")[found.end() :].startswith("=")):
            continue
        keys = tuple(key.strip("\"'") for key in re.findall(_KEY, found[1]))
        table = keys if is_header else table
        path = keys if is_header else table + keys
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], number)
    return lines
