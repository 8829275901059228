"""Envelopes that travel as files, where nodes cannot reach the submitting machine: the exchange
folder of a run, and the two ends of each way through it. No thread, and no clock: see
`file_socket`.

    run directory/exchange/dispatcher/     files for the dispatcher, from all workers
    run directory/exchange/WORKER/         files for one worker
    run directory/exchange/alive           touched by the dispatcher now and then

A file holds one or more envelopes of a session, as msgpack. Its name is the sender's and a number
that counts from 1. The sender writes it under a name that begins with a dot, closes it, and renames
it; the receiver reads files in order and removes each. A file may be lost or read twice all the
same, by a crash or where NFS repeats a request: the session above notices both.

Why this works on NFS (nfs(5), "Data and metadata coherence"; fs/nfs/dir.c):

- A client caches what a folder holds for up to a minute (`acdirmax`). Only *opening* the folder has
  it ask the server whether the folder has changed. So each look opens the folder by its path; a
  descriptor that stays open would show old lists.
- A client caches that a name does not exist, too. So a name is never tried before a list has shown
  it, although the next name is known.
- A client sends what was written, at the latest, when the file is closed, and only that close may
  say that the disk is full. So a file is renamed after it was closed without an error.
- Two changes within the same tick of the server's clock may look like one to NFS 3, and a list may
  miss the second until the next change. Removing what was read is such a change, and so is the next
  beat of any worker.
- The clocks of two machines are never compared; `is_attended` compares two times of the server.

The folders are this user's alone (0700), so a file needs no encryption: who can read it can read
the key in the connection file beside it. Each file carries a keyed hash of its name and content
all the same. It costs a nanosecond a byte, and finds a file that is torn, or was left there by
something else.

Rejected:

- A folder for each worker on the way to the dispatcher, too. The dispatcher would look into a
  thousand folders to find out that nothing is new.
- One file that both ends append to. Appending is not atomic on NFS.
- Locks. On NFS they need a daemon that not every site runs.
- `inotify`. It tells nothing of changes that other machines make.
- To synchronise each file to the disk. A crashed machine loses its sessions anyway.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from bisect import bisect
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from gridengine.display import log
from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer
from gridengine.system.machine import file_age
from gridengine.wire.connection_file import folder_at, is_private, why_unreachable
from gridengine.wire.session import Frames

DISPATCHER = "dispatcher"
"""The name of the dispatcher's folder in the exchange folder."""
ALIVE = "alive"
ALIVE_SECONDS = 30.0
"""A dispatcher that has not touched its mark for so long is taken to be gone."""
FILE_BYTES = 4 * 2**20
"""A file is closed once it has this many bytes."""
LARGEST = 2 * FILE_BYTES
"""No file is larger: an envelope holds one piece of a message at most."""
MOST_FILES, MOST_BYTES = 16, 8 * FILE_BYTES
"""How much one sender may have unread in a receiver's folder. The rest waits in its memory, where
the session keeps it until it is acknowledged anyway.
"""
NUMBERED = re.compile(r"([0-9a-z-]+)\.(\d{12})")
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class Gone(Exception):
    """The folder does not exist any more."""


def is_attended(exchange: Path) -> bool:
    """Return whether a dispatcher has touched its mark in this folder lately, by the clock of the
    file system. Where that cannot be found out, because nothing can be written, return True.
    """
    try:
        return file_age(exchange / ALIVE) < ALIVE_SECONDS
    except OSError:
        return True


def make_folder(folder: Path) -> None:
    """Make a folder of mode 0700, if it is missing.

    Raises:
        OSError: it cannot be made, or is not this user's alone.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        folder.chmod(0o700)
    if not is_private(folder):
        raise PermissionError(errno.EPERM, "it is not a folder of this user alone (mode 0700)")


class Outbox:
    """Writes envelopes for one receiver.

    Args:
        folder: the receiver's.
        sender: the name of this end, for the names of files.
        key: the run's.
    """

    def __init__(self, folder: Path, sender: str, key: bytes) -> None:
        self._folder, self._sender, self._key = folder, sender, key
        self._queue = deque[Frames]()
        self._next: list[Frames] = []
        """The envelopes that the next file gets; they stay here until it is written."""
        self._number = 0
        self._unread = deque[tuple[str, int]]()
        """Names and sizes of files that were written and may not have been read."""

    @property
    def is_empty(self) -> bool:
        """Whether all envelopes have been written."""
        return not (self._queue or self._next)

    def put(self, frames: Frames) -> None:
        """Queue an envelope."""
        self._queue.append(frames)

    def clear(self) -> None:
        """Drop all envelopes that are not written. The numbers of files go on."""
        self._queue.clear()
        self._next.clear()

    def flush(self) -> bool:
        """Write files until nothing is left, or the receiver's folder has as many as it may. Return
        whether nothing is left.

        Raises:
            Gone: the receiver has removed its folder.
            OSError: a file cannot be written; nothing is lost, and the next call tries again.
        """
        while not self.is_empty:
            if not self._has_room():
                return False
            size = sum(len(frame) for frames in self._next for frame in frames)
            while self._queue and size < FILE_BYTES:
                self._next.append(self._queue.popleft())
                size += sum(map(len, self._next[-1]))
            with _noticing_end():
                self._write()
            self._next = []
        return True

    def _has_room(self) -> bool:
        """Return whether one more file may be written. To see which files were read, the folder is
        listed, but only when the bounds are reached.
        """
        if self._is_within_bounds():
            return True
        with _noticing_end(), opened_folder(self._folder) as fd:
            names = set(_names(fd))
        self._unread = deque(one for one in self._unread if one[0] in names)
        return self._is_within_bounds()

    def _is_within_bounds(self) -> bool:
        unread = self._unread
        return len(unread) < MOST_FILES and sum(size for _, size in unread) < MOST_BYTES

    def _write(self) -> None:
        name = f"{self._sender}.{self._number + 1:012}"
        parts = encode_file(f"{self._folder.name}/{name}", self._next, self._key)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        temporary = self._folder / f".{name}"
        try:
            with open(os.open(temporary, flags, 0o600), "wb") as file:
                file.writelines(parts)
            self._rename(temporary, name)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._number += 1
        self._unread.append((name, sum(map(len, parts))))

    def _rename(self, temporary: Path, name: str) -> None:
        try:
            temporary.rename(self._folder / name)
        except FileNotFoundError:
            # A file server that gets the request twice says so after it has done it.
            if not self._folder.is_dir():
                raise


class Inbox:
    """Reads the files in one receiver's folder, those of each sender in order.

    Args:
        folder: the receiver's.
        key: the run's.
    """

    def __init__(self, folder: Path, key: bytes) -> None:
        self._folder, self._key = folder, key
        self._expected: dict[str, int] = {}
        """The number of each sender's next file; 1 of one that is not in it."""
        self._awaited = set[str]()
        """The senders whose next file was missing at the last look though later ones were there.
        A list that is made while files come may miss one. At the next look it is there, or lost.
        """
        self._last = ""

    def forget(self, sender: str) -> None:
        """Forget a sender that is gone."""
        self._expected.pop(sender, None)
        self._awaited.discard(sender)

    def take(self, most: int = MOST_BYTES) -> list[tuple[str, Frames]]:
        """Read and remove files, until `most` bytes have been read. Return their envelopes, each
        with its sender. Files that are none of ours are told and removed.

        Raises:
            Gone: the folder has been removed.
            OSError: the folder cannot be read now, or is not this user's alone.
        """
        envelopes: list[tuple[str, Frames]] = []
        with _noticing_end(), opened_folder(self._folder) as fd:
            for name in self._due(fd):
                try:
                    data = _read(fd, name)
                    frames = decode_file(f"{self._folder.name}/{name}", data, self._key)
                except ProtocolError as error:
                    log().warning(
                        "dropped the file %s in %s: %s", name, self._folder, error.message
                    )
                    frames, data = [], b""
                except FileNotFoundError:  # the list was older than the folder
                    continue
                except OSError:
                    if envelopes:  # their files are removed; the next look fails again
                        break
                    raise
                _remove(fd, name)
                sender, _, number = name.partition(".")
                self._expected[sender], self._last = int(number) + 1, sender
                envelopes += ((sender, one) for one in frames)
                most -= len(data)
                if most <= 0:
                    break
        return envelopes

    def _due(self, fd: int) -> Iterator[str]:
        """Yield the names of files to read. The first sender is the one after the last that was
        read, so that no sender keeps the others waiting.
        """
        numbers: dict[str, list[int]] = {}
        for name in _names(fd):
            if matched := NUMBERED.fullmatch(name):
                numbers.setdefault(matched[1], []).append(int(matched[2]))
        senders = sorted(numbers)
        first = bisect(senders, self._last)
        for sender in senders[first:] + senders[:first]:
            for number in sorted(numbers[sender]):
                name, expected = f"{sender}.{number:012}", self._expected.get(sender, 1)
                if number < expected:
                    _remove(fd, name)  # it was read, and could not be removed then
                    continue
                if number > expected and sender not in self._awaited:
                    self._awaited.add(sender)
                    break
                self._awaited.discard(sender)
                yield name


_MAGIC, _HASH_BYTES = b"GEf\x02", 16
_SMALL = 16 * 1024
"""Frames up to this size are copied, so that they do not keep the whole file in memory."""


def encode_file(place: str, envelopes: Sequence[Frames], key: bytes) -> list[Buffer]:
    """Return the content of a file, in parts. `place` is its folder and name."""
    body = msgspec.msgpack.encode(envelopes)
    return [_head(place, body, key), body]


def decode_file(place: str, data: Buffer, key: bytes) -> list[Frames]:
    """Return the envelopes in a file.

    Raises:
        ProtocolError: it is not whole, or was written without the key or for another place.
    """
    begin = len(_MAGIC) + _HASH_BYTES
    head, body = bytes(data[:begin]), memoryview(data)[begin:]
    if not secrets.compare_digest(head, _head(place, body, key)):
        raise ProtocolError("it is not whole, or none of this run")
    try:
        envelopes = msgspec.msgpack.decode(body, type=list[list[memoryview]])
    except msgspec.DecodeError as error:
        raise ProtocolError(f"it has no envelopes: {error}") from None
    return [[bytes(one) if len(one) <= _SMALL else one for one in each] for each in envelopes]


def _head(place: str, body: Buffer, key: bytes) -> bytes:
    """Return the first bytes of a file: the magic, and a keyed hash of its place and content."""
    made = hashlib.blake2b(f"{place}\n".encode(), key=key[:64], digest_size=_HASH_BYTES)
    made.update(body)
    return _MAGIC + made.digest()


@contextlib.contextmanager
def opened_folder(folder: Path) -> Iterator[int]:
    """Open a folder, which has a file server asked for its present content, and yield its
    descriptor.

    Raises:
        OSError: it cannot be opened, is a link, or is not this user's alone.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(fd)
        if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
            raise PermissionError(errno.EPERM, f"{folder} is not this user's alone (mode 0700)")
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _noticing_end() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _GONE:
            raise Gone from error
        raise


def _names(folder: int) -> list[str]:
    return os.listdir(folder)


def _remove(folder: int, name: str) -> None:
    """Remove a file; one that stays is passed over by its number."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _read(folder: int, name: str) -> bytes:
    """Return the content of a file of this user's.

    Raises:
        ProtocolError: it is no file of this user's alone, or too large.
        OSError: it cannot be read now.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EACCES):
            raise ProtocolError(f"it cannot be opened: {error.strerror}") from None
        raise
    with open(fd, "rb", buffering=0) as file:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
            raise ProtocolError("it is not a file of this user")
        if facts.st_size > LARGEST:
            raise ProtocolError(f"it has {facts.st_size:,} bytes")
        return file.readall()


LISTEN_SECONDS = 0.5


def is_listening(address: str) -> bool:
    """Return whether a process accepts connections at an address of the form `tcp://host:port`, or
    looks for files in the folder at `file:///path`.
    """
    exchange = folder_at(address)
    if exchange is not None:
        return is_attended(exchange)
    return not why_unreachable(address, LISTEN_SECONDS)
