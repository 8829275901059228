"""The user's and the project's settings files: which are trusted, and the settings in them.

A file is opened only if nobody but this user or root can have written it, or put it where it is.

Anything else in a shared folder (a pipe, a link, an unreadable file) is looked at and not opened.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from gridengine.arguments import SHOWN
from gridengine.errors import ConfigurationError, safe_repr
from gridengine.settings.locations import PROJECTS, projects_file, users_file
from gridengine.settings.schema import TABLES, Setting, choices, convert, from_text, setting_types
from gridengine.system.machine import OPEN_ONLY, target_of

logger = logging.getLogger("gridengine")

CODE = "drmaa_library", "notify"
"""The settings that name code. A user who works in a project's folder has not thereby chosen to run
code that lies in it.
"""
MOST_BYTES = 1_000_000
GRID_ENGINES = re.compile(r"\A(?:[su]?ge|grid.?engine|drmaa)(?![a-z])")
"""Other names of Grid Engine, in place of `grid_engine`."""
_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = re.compile(rf"\s*({_KEY}(?:\s*\.\s*{_KEY})*)\s*")

Lines: TypeAlias = Mapping[tuple[str, ...], int]
"""The line number of each key, by the key's path."""


def read_files(environment: Mapping[str, str]) -> list[dict[str, Setting]]:
    """Return the settings of each settings file, the file that wins last. Files that others may
    have written are ignored, with a warning.

    Raises:
        ConfigurationError: a file cannot be read or has an error; the text names the file and the
        line.
    """
    found = []
    for path in (users_file(environment), projects_file(environment)):
        if path is not None and (text := _read(path)) is not None:
            said = parse(path, text)
            found.append(said)
            for name in CODE if path.name == PROJECTS else ():
                if name in said:
                    raise ConfigurationError(
                        f"{said[name].by}: {name} is not read from a project's file: it names "
                        "code that is run",
                        hint=f"say it in {users_file(environment)}, in GRIDENGINE_{name.upper()} "
                        "or as an argument",
                    )
    return found


def _read(path: Path) -> str | None:
    """Return a file's text. Return None if there is no file, or if it is not trusted, because its
    words become options of submissions.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        with open(open_trusted(path), "rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode()
    except FileNotFoundError:
        return None
    except Untrusted as reason:
        logger.warning(
            "the settings in %s are left out: %s; to have them, put a copy of your own in its "
            "place",
            path,
            reason,
        )
        return None
    except (OSError, UnicodeDecodeError) as error:
        said, hint = (
            (error.strerror, "see that you may read it, or move it away")
            if isinstance(error, OSError)
            else (error, "a settings file is TOML, in UTF-8")
        )
        raise ConfigurationError(
            f"cannot read the settings in {path}: {said}", hint=hint
        ) from error
    if len(content) > MOST_BYTES:
        raise ConfigurationError(
            f"{path} is not a settings file: it has more than {MOST_BYTES} bytes"
        )
    return text


def describe(path: Path | None) -> str:
    """Return the place of a settings file for people, with the reason if it is ignored."""
    if path is None:
        return "none"
    try:
        os.close(open_trusted(path))
    except FileNotFoundError:
        return f"{path} (not there)"
    except (Untrusted, OSError) as error:
        return f"{path} (left out: {error})"
    return str(path)


def parse(path: Path, text: str) -> dict[str, Setting]:
    """Return the settings of a settings file, by full names.

    Raises:
        ConfigurationError: the text is not TOML, or a key or a value is wrong; the text names the
        line, and the hint a similar key.
    """
    import tomllib

    try:
        content = tomllib.loads(text)
    # Numbers of thousands of digits, and deeply nested brackets, raise no TOMLDecodeError.
    except (ValueError, RecursionError) as error:
        reason, _, place = str(error).partition(" (at line ")
        number = place.partition(",")[0]
        raise ConfigurationError(
            f"{path}{number and f':{number}'}: {reason}", hint=_as_toml(text, int(number or 0))
        ) from None
    lines, kinds = lines_of(text), setting_types()
    said = {}
    for keys, value in _flat(content):
        name, place = ".".join(keys), f"{path}{_at(lines, keys)}"
        if name not in kinds:
            raise _unknown(place, name, value)
        try:
            said[name] = Setting(convert(value, kinds[name]), place)
        except ValueError as error:
            raise ConfigurationError(
                f"{place}: {name} = {safe_repr(value, most=SHOWN)} is not {error}",
                hint=_as_meant(name, str(value)),
            ) from None
    return said


def _as_toml(text: str, number: int) -> str:
    """Return, as a hint, the intended TOML for a line of a file that is not TOML."""
    keys = [keys for keys, line in lines_of(text).items() if line == number]
    said = text.splitlines()[number - 1].partition("=")[2].partition("#")[0] if keys else ""
    without_quotes = said.strip() and not re.search("[\"']", said)
    hint = _as_meant(".".join(keys[-1]), said.strip()) if without_quotes else None
    return hint or 'a settings file is TOML, as in queue = "all.q": see https://toml.io'


def _as_meant(name: str, text: str) -> str | None:
    """Return, as a hint, the intended form of a setting's wrong value; None when it is unknown."""
    import json

    kind = setting_types().get(name)
    if kind is None:
        return None
    try:
        value = from_text(text, kind)
    except ValueError:
        value = nearest(text, choices(kind))
    key = name.rpartition(".")[2]
    return None if value is None else f"write {key} = {json.dumps(value, default=str)}"


def _flat(content: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all settings of a file, known or not, including those in tables."""
    for name, value in content.items():
        if name in TABLES and isinstance(value, dict):
            yield from (((name, key), one) for key, one in value.items())
        else:
            yield (name,), value


def _unknown(place: str, name: str, value: Any) -> ConfigurationError:
    if name in TABLES:
        hint = f"write [{name}], and its settings in lines below"
        return ConfigurationError(f"{place}: {name} is a table", hint=hint)
    known = [*setting_types(), *TABLES]
    table, _, key = name.rpartition(".")
    if table in TABLES and all(one.rpartition(".")[2] != key for one in known):
        import difflib

        # A short name of an option resembles many settings a little.
        near = difflib.get_close_matches(key, TABLES[table].__struct_fields__, cutoff=0.7)
        option = f'native = "--{key}={value}"' if table == "slurm" else "native, as it is"
        hint = f"an option of the batch system's own goes into {option}"
        hint = f"{f'{table}.{near[0]}'!r} is one" if near else hint
    else:
        hint = suggestion(name, known, lambda one: f"[{one}]" if one in TABLES else repr(one))
    return ConfigurationError(f"{place}: there is no setting {name!r}", hint=hint)


def suggestion(name: str, known: Iterable[str], shown: Callable[[str], str] = repr) -> str:
    """Return, as a hint, the known name that is nearest to a misspelt one, or all known names."""
    near = nearest(name, known)
    return f"{shown(near)} is one" if near else f"there are: {', '.join(map(shown, known))}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is nearest to a misspelt one; None when none is near."""
    import difflib

    name = GRID_ENGINES.sub("grid_engine", name.lower())
    # The right word in the wrong table counts as near, too.
    last = name.rpartition(".")[2]
    near = [one for one in known if one.rpartition(".")[2] == last]
    # A few letters stand in any word.
    long = [one for one in known if len(one) > 4 or len(name) <= 4]
    near += difflib.get_close_matches(name, long, cutoff=0.5)
    return near[0] if near else None


def _at(lines: Lines, keys: tuple[str, ...]) -> str:
    """Return `:line` of the key, or of the table that contains it."""
    longest_first = (keys[:length] for length in range(len(keys), 0, -1))
    return next((f":{lines[path]}" for path in longest_first if path in lines), "")


def lines_of(text: str) -> Lines:
    """Return the line number of each key of a TOML text, which tomllib does not give. Texts over
    several lines may add wrong keys.
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


MOST_LINKS = 40


class Untrusted(Exception):
    """A file is not trusted; the text says why."""


def open_trusted(path: Path) -> int:
    """Return a descriptor for reading a trusted file. No link of another user is followed, from the
    file's folder on.

    Raises:
        FileNotFoundError: there is no such file.
        Untrusted: somebody else may control the file, or that cannot be determined.
        OSError: the file is this user's own, and cannot be read.
    """
    with contextlib.ExitStack() as descriptors:
        try:
            folder, name, facts = _resolve(path, descriptors)
            reason = why_untrusted(facts, os.fstat(folder))
        except FileNotFoundError:
            if os.path.lexists(path):
                raise Untrusted("it is a link that leads nowhere") from None
            raise
        except OSError as error:
            raise Untrusted(error.strerror) from None
        if reason:
            raise Untrusted(reason)
        try:
            descriptor = os.open(
                name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
            )
        except OSError as error:
            if facts.st_uid == os.getuid():
                raise
            raise Untrusted(error.strerror) from None
        if not os.path.samestat(os.fstat(descriptor), facts):
            os.close(descriptor)
            raise Untrusted("somebody replaced it just now")
        return descriptor


def _resolve(path: Path, descriptors: contextlib.ExitStack) -> tuple[int, str, os.stat_result]:
    """Follow a path link by link. Return the folder (a descriptor), the name and the facts of the
    file that it leads to.
    """

    def open_only(name: str, flags: int = 0, folder: int | None = None) -> int:
        descriptor = os.open(name, OPEN_ONLY | os.O_CLOEXEC | flags, dir_fd=folder)
        descriptors.callback(os.close, descriptor)
        return descriptor

    try:
        folder = open_only(str(path.parent), os.O_DIRECTORY)
    except NotADirectoryError:
        raise FileNotFoundError(path) from None
    names, links = deque([path.name]), 0
    while True:
        name = names.popleft()
        entry = open_only(name, os.O_NOFOLLOW, folder)
        facts = os.fstat(entry)
        if stat.S_ISLNK(facts.st_mode):
            links += 1
            _check_link(facts, links)
            target = target_of(entry, name, folder)
            folder = open_only("/") if target.startswith("/") else folder
            names.extendleft(reversed([part for part in target.split("/") if part] or ["."]))
        elif names:
            folder = entry
        else:
            return folder, name, facts


def _check_link(facts: os.stat_result, links: int) -> None:
    """Check that a link, the `links`-th on the way, may be followed."""
    if facts.st_uid not in (os.getuid(), 0):
        raise Untrusted("it is a link of another user")
    if links > MOST_LINKS:
        raise Untrusted("it is a link that leads in a circle")


def why_untrusted(facts: os.stat_result, folder: os.stat_result) -> str:
    """Return why somebody other than this user or root may have written a file in this folder;
    empty when nobody can have.
    """
    if not stat.S_ISREG(facts.st_mode):
        return "it is no regular file"
    if reason := why_open(facts):
        return reason
    if facts.st_nlink > 1 and (
        folder.st_uid not in (os.getuid(), 0) or folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        return "it has other names, and others may write to its folder"
    return ""


def why_open(facts: os.stat_result) -> str:
    """Return why somebody other than this user or root may write to a file or folder; empty when
    nobody can.
    """
    if facts.st_uid not in (os.getuid(), 0):
        return "it belongs to another user"
    if facts.st_mode & stat.S_IWOTH or (facts.st_mode & stat.S_IWGRP and not _is_own_group(facts)):
        return "others may write to it"
    return ""


def _is_own_group(facts: os.stat_result) -> bool:
    """Return whether the file's group is its owner's private group, which has the owner's name:
    there a umask of 002 is usual.
    """
    import grp
    import pwd

    try:
        return grp.getgrgid(facts.st_gid).gr_name == pwd.getpwuid(facts.st_uid).pw_name
    except KeyError:
        return False
