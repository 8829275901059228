"""`DispatcherFolder`: the files of a stand-alone dispatcher, whether it runs, and the lock that
allows a process to run it.
"""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from gridengine.dispatcher.run_directory import CLIENT, DISPATCHERS, SERVER, folder_of
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
from gridengine.wire.connection_file import load_private, make_private_folder, why_unreachable

ANSWER_SECONDS = 2.0
OPTIONS = "options.json"
TUNNEL = "tunnel.json"
"""The file of a folder whose dispatcher runs on another machine, and is reached by a tunnel."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a dispatcher."""
    return bool(_NAME.fullmatch(text))


class DispatcherState(enum.Enum):
    """The state of a stand-alone dispatcher: it runs, has ended in order, or was killed. One that
    is reached by a tunnel is disconnected while the tunnel is closed: its state is not known here.
    """

    RUNNING = "running"
    ENDED = "ended"
    DIED = "died"
    DISCONNECTED = "disconnected"


class FarMachine(msgspec.Struct, frozen=True):
    """The machine at the other end of a tunnel, by its name for `ssh`, and the Python there, by its
    name for that machine's shell.
    """

    ssh: str
    python: str = "python3"

    def command(self, *words: str) -> str:
        """Return what a user types here to run a module of these words there. The Python is quoted,
        since this machine's shell would put another home in the place of `~`.
        """
        return f"ssh {self.ssh} {shlex.quote(' '.join([self.python, '-m', *words]))}"


class StartOptions(msgspec.Struct, frozen=True):
    """The options of a dispatcher's start, which `restart` uses again.

    scheduler: its name in the registry.
    arguments: keyword arguments of the scheduler's class.
    resources: the resources of each worker, in the form of `encode_demand`.
    restarts: whether the dispatcher is started again when it is killed.
    directory: the working directory of the start, which determines the project's settings.
    temporary: whether the folder is removed when the dispatcher ends.
    """

    scheduler: str
    arguments: Mapping[str, Any] = {}
    resources: list[tuple[str, list[Any]]] = []
    restarts: bool = False
    directory: str = "/"
    temporary: bool = False


def working_directory() -> str:
    """Return this process's working directory, or the root if that has been deleted."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return "/"


class _PublicKey(msgspec.Struct, frozen=True):
    public: str = ""


class _PublicParts(msgspec.Struct):
    """The parts of `client.json` and `server.json` that may be shown."""

    addresses: tuple[str, ...] = ()
    run_id: str = ""
    clients: _PublicKey = _PublicKey()


class DispatcherFolder(NamedTuple):
    """The folder of one dispatcher, which may not exist yet."""

    path: Path

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the folder of a name.

        Raises:
            ConfigurationError: the text cannot be a name.
        """
        if not is_name(name):
            raise ConfigurationError(
                f"{name!r} is not a name for a dispatcher",
                hint="up to 64 letters, digits, dots, hyphens and underscores, a letter or digit "
                "first",
            )
        return cls(folder_of(name, settings()))

    @classmethod
    def all(cls) -> list[Self]:
        """Return the folders of all dispatchers, by name."""
        folder = settings().runs / DISPATCHERS
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(cls(path) for path in found if (path / OPTIONS).exists())

    @property
    def name(self) -> str:
        """The dispatcher's name."""
        return self.path.name

    @property
    def lock(self) -> Path:
        """The lock file, which names the process that runs the dispatcher."""
        return self.path / "lock"

    @property
    def log(self) -> Path:
        """The log of a dispatcher in the background."""
        return self.path / "dispatcher.log"

    @property
    def options_file(self) -> Path:
        """The file with the options of its start."""
        return self.path / OPTIONS

    @property
    def client_file(self) -> Path:
        """The file by which clients connect."""
        return self.path / CLIENT

    def make(self) -> None:
        """Make the folder, closed to other users, unless it exists.

        Raises:
            ConfigurationError: it cannot be made, or other users could replace it.
        """
        if not self.path.is_dir():
            make_private_folder(self.path)

    def holder(self) -> Holder | None:
        """Return the process that runs the dispatcher, or that ran it until it was killed."""
        return read_holder(self.lock)

    @property
    def tunnel_file(self) -> Path:
        """The file that says which machine a tunnel leads to."""
        return self.path / TUNNEL

    def far_machine(self) -> FarMachine | None:
        """Return the machine that a tunnel leads to; None for a dispatcher without one.

        Raises:
            ConfigurationError: the file cannot be read.
        """
        if not self.tunnel_file.exists():
            return None
        return load_private(self.tunnel_file, FarMachine)

    def state(self) -> DispatcherState:
        """Return the dispatcher's state. A dispatcher on another machine, whose locks may be
        invisible here, runs if its lock file or its addresses show signs of life. A tunnel's lock
        is held while the tunnel is kept open.
        """
        holder = self.holder()
        if is_locked(self.lock):
            return DispatcherState.RUNNING
        if self.tunnel_file.exists():
            return DispatcherState.DISCONNECTED
        if holder and self._runs_elsewhere(holder):
            return DispatcherState.RUNNING
        return DispatcherState.ENDED if holder is None else DispatcherState.DIED

    def addresses(self) -> tuple[str, ...]:
        """Return the addresses where clients connect; none if it has ended in order."""
        return self._shown(CLIENT).addresses

    def run_id(self) -> str:
        """Return the run id, which survives restarts; empty if the dispatcher has never run."""
        return self._shown(SERVER).run_id

    def server_key(self) -> str:
        """Return the public key by which clients know it, which it keeps over restarts; empty when
        it has never run.
        """
        return self._shown(SERVER).clients.public

    def _shown(self, file: str) -> _PublicParts:
        try:
            return msgspec.json.decode((self.path / file).read_bytes(), type=_PublicParts)
        except (OSError, msgspec.DecodeError):
            return _PublicParts()

    def answers(self) -> bool:
        """Return whether somebody accepts connections at the dispatcher's latest addresses."""
        return any(not why_unreachable(one, ANSWER_SECONDS) for one in self.addresses())

    def _runs_elsewhere(self, holder: Holder) -> bool:
        return not holder.is_here and (is_shown(self.lock) or self.answers())

    def options(self) -> StartOptions:
        """Return the options of the dispatcher's start.

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
        """Take the lock, with which a process of this machine may run this dispatcher. The lock of
        a killed process is taken over; so is the lock of another machine, if nobody answers there
        and it has shown no sign of life for a minute.

        Raises:
            ConfigurationError: the dispatcher runs already; the text says where.
        """
        holder = self.holder()
        if holder is not None and self._runs_elsewhere(holder):
            raise self.taken(holder)
        lock = LockFile.take(self.lock)
        if lock is None and holder is not None and not holder.is_here:
            # That machine is gone for good; its lock on a network file system may remain for a long
            # time.
            self.lock.unlink(missing_ok=True)
            lock = LockFile.take(self.lock)
        if lock is None:
            raise self.taken(self.holder())
        return lock

    def how_to_start(self) -> str:
        """Return the command that starts the dispatcher, or opens the tunnel to it."""
        verb = "connect" if self.tunnel_file.exists() else "start"
        return f"gridengine dispatcher {verb} {self.name}"

    def not_running(self) -> ConfigurationError:
        """Return the error for acts that need a running dispatcher."""
        far, command = self.far_machine(), self.how_to_start()
        if far is not None:
            words = f"no tunnel to the dispatcher {self.name!r} at {far.ssh} is open"
            return ConfigurationError(words, hint=f"open it: {command}")
        words = f"the dispatcher {self.name!r} does not run"
        return ConfigurationError(words, hint=f"start it: {command}")

    def check_here(self, *words: str) -> None:
        """Check that a command of these words can be performed here.

        Raises:
            ConfigurationError: the dispatcher is reached by a tunnel, and its machine alone can.
        """
        far = self.far_machine()
        if far is not None:
            raise ConfigurationError(
                f"the dispatcher {self.name!r} is reached by a tunnel to {far.ssh}",
                hint=f"do it there: {far.command('gridengine', *words)}",
            )

    def taken(self, holder: Holder | None) -> ConfigurationError:
        """Return the error for a dispatcher that another process runs."""
        who = "another process, which has yet to say who it is" if holder is None else str(holder)
        hint = f"use it, or end it: gridengine dispatcher stop {self.name}"
        if holder is not None and not holder.is_here:
            hint += f"; if that machine is down, start it here {SILENT_SECONDS:g} s after that"
        return ConfigurationError(f"the dispatcher {self.name!r} runs already: {who}", hint=hint)
