"""`DispatcherFolder`: where a stand-alone dispatcher of a name keeps its files, whether it runs,
and who may start it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from gridengine.dispatcher.run_directory import CLIENT, DISPATCHERS, SERVER, WORKER, folder_of
from gridengine.errors import ConfigurationError
from gridengine.journal.lock_file import (
    SILENT_SECONDS,
    Holder,
    LockFile,
    is_locked,
    is_shown,
    read_holder,
)
from gridengine.settings.values import settings
from gridengine.wire.connection_file import make_private_folder, why_unreachable

ANSWER_SECONDS = 2.0
OPTIONS = "options.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def is_name(text: str) -> bool:
    """Return whether a dispatcher can be called so."""
    return bool(_NAME.fullmatch(text))


class State(enum.Enum):
    """How a stand-alone dispatcher is: it runs, has ended in order, or was killed."""

    RUNNING = "running"
    ENDED = "ended"
    DIED = "died"


class StartOptions(msgspec.Struct, frozen=True):
    """How a dispatcher was started, which `restart` does again.

    scheduler: its name in the registry. arguments: keyword arguments of its class. resources: what
    each worker holds, as `encode_demand` has it. restarts: whether it is started
    again when it was killed. directory: the working directory it was started in, which says the
    project's settings. temporary: whether its folder is removed when it ends.
    """

    scheduler: str
    arguments: Mapping[str, Any] = {}
    resources: list[tuple[str, list[Any]]] = []
    restarts: bool = False
    directory: str = "/"
    temporary: bool = False


def working_directory() -> str:
    """Return this process's, or the root where that has been deleted."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return "/"


class _Addresses(msgspec.Struct):
    """What every client may know of `client.json`."""

    addresses: tuple[str, ...] = ()


class _PublicKey(msgspec.Struct, frozen=True):
    public: str = ""


class _Run(msgspec.Struct):
    """What may be told of `server.json`."""

    run_id: str = ""
    clients: _PublicKey = _PublicKey()


class DispatcherFolder(NamedTuple):
    """The folder of one dispatcher, which may not be there yet."""

    path: Path

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the folder of a name.

        Raises:
            ConfigurationError: nothing can be called so.
        """
        if not is_name(name):
            raise ConfigurationError(
                f"{name!r} is no name for a dispatcher",
                hint="up to 64 letters, digits, dots, hyphens and underscores, a letter or digit "
                "first",
            )
        return cls(folder_of(name, settings()))

    @classmethod
    def all(cls) -> list[Self]:
        """Return those that there are, by name."""
        folder = settings().runs / DISPATCHERS
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(cls(path) for path in found if (path / OPTIONS).exists())

    @property
    def name(self) -> str:
        """What the dispatcher is called."""
        return self.path.name

    @property
    def lock(self) -> Path:
        """The file that says who runs it."""
        return self.path / "lock"

    @property
    def log(self) -> Path:
        """What it says when it runs in the background."""
        return self.path / "dispatcher.log"

    @property
    def options_file(self) -> Path:
        """How it was started."""
        return self.path / OPTIONS

    @property
    def client_file(self) -> Path:
        """What clients load."""
        return self.path / CLIENT

    @property
    def worker_file(self) -> Path:
        """What workers load."""
        return self.path / WORKER

    def make(self) -> None:
        """Make the folder, closed to others, unless it is there.

        Raises:
            ConfigurationError: it cannot be made, or others may put what they like in its place.
        """
        if not self.path.is_dir():
            make_private_folder(self.path)

    def holder(self) -> Holder | None:
        """Return who runs it, or ran it until it was killed."""
        return read_holder(self.lock)

    def state(self) -> State:
        """Return how the dispatcher is. One on another machine, whose locks may not be seen here,
        runs when it shows so.
        """
        holder = self.holder()
        if is_locked(self.lock) or (holder and self._runs_elsewhere(holder)):
            return State.RUNNING
        return State.ENDED if holder is None else State.DIED

    def addresses(self) -> tuple[str, ...]:
        """Return where clients connect to it; none when it has never run."""
        try:
            return msgspec.json.decode(self.client_file.read_bytes(), type=_Addresses).addresses
        except (OSError, msgspec.DecodeError):
            return ()

    def run_id(self) -> str:
        """Return the number that it keeps over restarts; empty when it has never run."""
        return self._kept().run_id

    def server_key(self) -> str:
        """Return the public key by which clients know it, which it keeps over restarts; empty when
        it has never run.
        """
        return self._kept().clients.public

    def _kept(self) -> _Run:
        try:
            return msgspec.json.decode((self.path / SERVER).read_bytes(), type=_Run)
        except (OSError, msgspec.DecodeError):
            return _Run()

    def answers(self) -> bool:
        """Return whether somebody takes connections where it was last."""
        return any(not why_unreachable(one, ANSWER_SECONDS) for one in self.addresses())

    def _runs_elsewhere(self, holder: Holder) -> bool:
        return not holder.is_here and (is_shown(self.lock) or self.answers())

    def options(self) -> StartOptions:
        """Return how it was started.

        Raises:
            ConfigurationError: there is no such dispatcher.
        """
        try:
            return msgspec.json.decode(self.options_file.read_bytes(), type=StartOptions)
        except FileNotFoundError:
            raise ConfigurationError(
                f"there is no dispatcher {self.name!r}",
                hint=f"start one: gridengine dispatcher start {self.name}",
            ) from None
        except msgspec.DecodeError as error:
            raise ConfigurationError(f"{self.options_file} cannot be read: {error}") from None

    def take_lock(self) -> LockFile:
        """Return the lock, with which a process of this machine may run this dispatcher. That of a
        process that was killed, or of a machine where nobody answers, nor has shown for a minute
        that it is held, is taken over.

        Raises:
            ConfigurationError: it runs already; the text says who runs it.
        """
        holder = self.holder()
        if holder is not None and self._runs_elsewhere(holder):
            raise self.taken(holder)
        lock = LockFile.take(self.lock)
        if lock is None and holder is not None and not holder.is_here:
            # That machine is gone for good, and its lock with it may not be for long.
            self.lock.unlink(missing_ok=True)
            lock = LockFile.take(self.lock)
        if lock is None:
            raise self.taken(self.holder())
        return lock

    def not_running(self) -> ConfigurationError:
        """Return what to raise where it would have to run."""
        return ConfigurationError(
            f"the dispatcher {self.name!r} does not run",
            hint=f"start it: gridengine dispatcher start {self.name}",
        )

    def taken(self, holder: Holder | None) -> ConfigurationError:
        """Return what to raise where another process runs this dispatcher."""
        who = "another process, which has yet to say who it is" if holder is None else str(holder)
        hint = f"use it, or end it: gridengine dispatcher stop {self.name}"
        if holder is not None and not holder.is_here:
            hint += f"; if that machine is down, start it here {SILENT_SECONDS:g} s after that"
        return ConfigurationError(f"the dispatcher {self.name!r} runs already: {who}", hint=hint)
