"""Open files only if nobody but this user or root can have written them, or put them where they
are.

Anything else in a shared folder (a pipe, a link, an unreadable file) is looked at and not opened.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from pathlib import Path

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
        descriptor = os.open(name, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=folder)
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
            target = _link_target(entry, facts, links)
            folder = open_only("/") if target.startswith("/") else folder
            names.extendleft(reversed([part for part in target.split("/") if part] or ["."]))
        elif names:
            folder = entry
        else:
            return folder, name, facts


def _link_target(link: int, facts: os.stat_result, links: int) -> str:
    """Return the target of a link, the `links`-th on the way."""
    if facts.st_uid not in (os.getuid(), 0):
        raise Untrusted("it is a link of another user")
    if links > MOST_LINKS:
        raise Untrusted("it is a link that leads in a circle")
    return os.readlink("", dir_fd=link)


def why_untrusted(facts: os.stat_result, folder: os.stat_result) -> str:
    """Return why somebody other than this user or root may have written a file in this folder;
    empty when nobody can have.
    """
    if not stat.S_ISREG(facts.st_mode):
        return "it is no regular file"
    if facts.st_uid not in (os.getuid(), 0):
        return "it belongs to another user"
    if facts.st_mode & stat.S_IWOTH or (facts.st_mode & stat.S_IWGRP and not _is_own_group(facts)):
        return "others may write to it"
    if facts.st_nlink > 1 and (
        folder.st_uid not in (os.getuid(), 0) or folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        return "it has other names, and others may write to its folder"
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
