"""How others find a dispatcher: its addresses and keys, in a private file (mode 0600 whatever the
umask), and the private folder with the sockets by which this user's dispatchers on this machine are
watched.

Secrets are stored in such files only: never in arguments or environment variables, which batch
systems print.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from gridengine._version import __version__
from gridengine.errors import UNREACHABLE, ConfigurationError, VersionMismatch
from gridengine.wire.processes import has_ended

T = TypeVar("T")
IPC = "ipc://"
"""Stands before the path in the address of a Unix socket, such as a tunnel's."""


class ServerKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The CURVE keys (in Z85) of a server: its own pair, and the pair that all peers use. `port` is
    the port that it listens at, 0 for any free one. Watchers, if allowed, have a pair of their own.
    """

    public: str
    secret: str
    peer_public: str
    peer_secret: str
    port: int = 0
    watcher_public: str = ""
    watcher_secret: str = ""


class Connection(msgspec.Struct, frozen=True):
    """The facts that a worker needs to connect to its dispatcher; stored in the connection file. A
    field of another version is passed over: that the versions differ is told by the dispatcher.

    The keys are CURVE keys in Z85: the dispatcher's public key, and the pair that all workers of
    this run use. With `returns`, a worker comes back to a dispatcher that was killed and started
    again. `resources` overrides the resources that the worker announces in `Hello`; the file leaves
    it empty. `scheduler` is the name of the scheduler that starts its workers, empty for none.
    `ports` are the first and the last port at which workers may listen; 0 and 0 for any.
    """

    run_id: str
    addresses: tuple[str, ...]
    slots: int
    version: str
    python: str
    beat_seconds: float
    lease_seconds: float
    start_seconds: float
    grace_seconds: float
    output_bytes: int
    server_key: str
    worker_public: str
    worker_secret: str
    log_bytes: int = 10_000_000
    kept_bytes: int = 0
    checkpoint_seconds: float = 20.0
    returns: bool = False
    resources: list[tuple[str, list[Any]]] = []
    scheduler: str = ""
    ports: tuple[int, int] = (0, 0)

    role: ClassVar[str] = "worker"
    hint: ClassVar[str] = UNREACHABLE

    def save(self, path: Path) -> None:
        """Write the connection file, readable by this user alone."""
        write_private(path, to_json(self))

    @property
    def pair(self) -> tuple[str, str]:
        """The public and the secret key that a worker uses."""
        return self.worker_public, self.worker_secret

    @classmethod
    def load(cls, path: Path) -> Connection:
        """Read a connection file.

        Raises:
            ConfigurationError: it is missing, not this user's, open to others, or not a connection
            file.
        """
        return load_private(path, cls)


class ClientConnection(msgspec.Struct, frozen=True):
    """The facts that a client needs to connect to a dispatcher; the keys are as in `Connection`.

    `pid` is the dispatcher's process on the machine `host`; `machine` and `started` identify that
    process, see `wire.processes`. A dispatcher without `returns` is never started again.
    """

    name: str
    addresses: tuple[str, ...]
    version: str
    host: str
    pid: int
    beat_seconds: float
    server_key: str
    client_public: str
    client_secret: str
    machine: str = ""
    started: int = 0
    returns: bool = True

    role: ClassVar[str] = "client"
    start_seconds: ClassVar[float] = 60.0
    lease_seconds: ClassVar[float] = 10.0
    """For how many seconds a client tries to connect for the first time."""

    @property
    def pair(self) -> tuple[str, str]:
        """The public and the secret key that a client uses."""
        return self.client_public, self.client_secret

    @property
    def hint(self) -> str:
        """The remedy when nobody answers."""
        if self.addresses[0].startswith(IPC):
            return f"open its tunnel again: gridengine dispatcher connect {self.name}"
        return (
            "see that it runs (gridengine dispatcher list) and that no firewall is between; where "
            "it was killed, start it again; a copy of its file may be old: copy it again"
        )

    def is_gone_for_good(self) -> bool:
        """Return whether the dispatcher's process is seen to have ended, and no other process will
        replace it.
        """
        return not self.returns and has_ended(self.machine, self.pid, self.started)


def to_json(facts: msgspec.Struct) -> bytes:
    """Return the contents of a private file with these facts."""
    return msgspec.json.format(msgspec.json.encode(facts), indent=1)


def load_private(path: Path, kind: type[T]) -> T:
    """Return the decoded contents of a private file.

    Raises:
        ConfigurationError: the file is missing, not this user's, open to others, or not a `kind`.
        VersionMismatch: another version wrote it, and it is not a `kind` for that reason.
    """
    try:
        with open(open_regular(path), "rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077:
                raise ConfigurationError(
                    f"{path} must belong to this user and be closed to others (mode 0600)"
                )
            content = file.read()
            return msgspec.json.decode(content, type=kind)
    except ConfigurationError:
        raise
    except msgspec.ValidationError as error:
        raise _not_understood(path, content, error) from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} is not a connection file: {error}") from error


def _not_understood(path: Path, content: bytes, error: Exception) -> ConfigurationError:
    """Return the error for a private file without the fields that this version needs."""
    try:
        written = msgspec.json.decode(content, type=dict[str, Any]).get("version", __version__)
    except msgspec.ValidationError:
        written = __version__
    if written == __version__:
        return ConfigurationError(f"{path} is not a connection file: {error}")
    return VersionMismatch(
        f"{path} is of gridengine {written}, and this is {__version__}: {error}",
        hint="have the same gridengine on both sides, and start the dispatcher again",
    )


def why_unreachable(address: str, seconds: float) -> str:
    """Return why no process accepts connections at an address of the form `tcp://host:port` or
    `ipc://path`; empty when one does. Waits at most this many seconds.
    """
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    try:
        if address.startswith(IPC):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(seconds)
                sock.connect(address.removeprefix(IPC))
        else:
            socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def folder_at(address: str) -> Path | None:
    """Return the exchange folder at an address, as `Path.as_uri` writes it; None at others."""
    if not address.startswith("file:"):
        return None
    from urllib.parse import unquote_to_bytes  # most addresses are others

    return Path(os.fsdecode(unquote_to_bytes(address.removeprefix("file://"))))


def open_regular(path: str | Path) -> int:
    """Open a regular file for reading and return its descriptor. Never waits, even when the path
    names a pipe or device.

    Raises:
        OSError: the file is missing, not a regular file, or not readable, or the path is
        impossible.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError as error:  # a NUL in the path
        raise OSError(errno.EINVAL, str(error)) from error
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file")


def write_private(path: Path, content: bytes) -> None:
    """Write a new file of mode 0600, whole or not at all. The file must not exist yet."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def replace_private(path: Path, content: bytes) -> None:
    """Write a file of mode 0600, whole or not at all, in place of an existing one."""
    new = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    write_private(new, content)
    new.replace(path)


def make_private_folder(path: Path) -> Path:
    """Make a folder of mode 0700, with its missing parents, and return it.

    Raises:
        ConfigurationError: the folder cannot be made, or others can replace it or a parent of it;
        the text names the folder.
    """
    hint = "set GRIDENGINE_RUN_DIRECTORY to a folder that you, and not everybody, may write to"
    try:
        exposed = _open_to_all(next(folder for folder in path.parents if folder.exists()))
        if exposed is not None:
            raise ConfigurationError(
                f"everybody may replace files in {exposed}, and thus {path}", hint=hint
            )
        for folder in (*reversed(path.parents), path):
            # Not `mkdir(parents=True)`: that makes the parents with the mode that the umask leaves.
            # Another process may be making the same folders now, hence `exist_ok`.
            if folder == path or not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=folder != path)
                folder.chmod(0o700)
    except OSError as error:
        from gridengine.settings.values import said_by  # here, since workers read no settings

        raise ConfigurationError(
            f"cannot make the folder {path} (run_directory is set by {said_by('run_directory')}): "
            f"{error.strerror}",
            hint=hint,
        ) from None
    return path


def _open_to_all(folder: Path) -> Path | None:
    """Return the first of this folder and its parents in which everybody can rename and replace
    others' files; None when there is none.
    """
    open_to_all = (
        one
        for one in (folder, *folder.parents)
        if one.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH
    )
    return next(open_to_all, None)


SOCKET = ".sock"
"""The suffix of the sockets' names; the process id and a unique text stand before it."""
RECORD = ".json"
"""The suffix of the file beside a socket that tells whose it is; it outlives a killed process."""


def runtime_folders(environment: Mapping[str, str], given: Path) -> Iterator[Path]:
    """Yield the places where the folder may be, best first. A watcher may have another environment
    than the script, as in a cron job, and therefore looks in all of them. A folder `given` in the
    settings is the only one.
    """
    if given != Path():
        yield given.expanduser()
        return
    user, said = os.getuid(), environment.get("XDG_RUNTIME_DIR", "")
    places = [Path(said)] if said.startswith("/") else []
    for place in dict.fromkeys((*places, Path(f"/run/user/{user}"))):
        if is_private(place):
            yield place / "gridengine"
    yield Path(f"/tmp/gridengine-{user}")


def is_private(folder: Path) -> bool:
    """Return whether this is a folder, not a link, that belongs to this user and that nobody else
    may enter.
    """
    try:
        facts = folder.lstat()
    except OSError:
        return False
    mine = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid()
    return mine and not stat.S_IMODE(facts.st_mode) & 0o077


def make_runtime_folder(environment: Mapping[str, str], given: Path) -> Path:
    """Return the folder; make it if it is missing.

    Raises:
        FileExistsError: something else has the name of the last place.
        OSError: no private folder exists, and none can be made.
    """
    for folder in runtime_folders(environment, given):
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
        except OSError:
            continue
        if is_private(folder):
            return folder
    if os.path.lexists(folder):
        raise FileExistsError(_blocked(folder))
    whose = "nor any other" if given == Path() else "and the setting watch_directory names it"
    raise OSError(f"{folder} cannot be a folder of this user's alone (mode 0700), {whose}")


def blocked_runtime_folder(environment: Mapping[str, str], given: Path) -> str:
    """Return what blocks the folder, in words; empty if the folder is there or can be made."""
    folders = list(runtime_folders(environment, given))
    if any(map(is_private, folders)) or not os.path.lexists(folders[-1]):
        return ""
    return _blocked(folders[-1])


def _blocked(folder: Path) -> str:
    return (
        f"{folder} is there, and is not a folder of this user's alone (mode 0700): remove it, or "
        "name another folder by the setting watch_directory (GRIDENGINE_WATCH_DIRECTORY)"
    )
