"""`Tunnel`: the dispatcher of another machine, reached through ssh, as if it were one of this
machine.

Its folder has what the folder of every stand-alone dispatcher has for clients and watchers, with
the address of the forwarded socket in place of the dispatcher's own; and `tunnel.json`, which says
where the tunnel leads. The process that keeps the tunnel open holds the lock. So a name, `list`,
`status`, `top` and `stop` find this dispatcher as they find any other.

The link breaks when the network is away or the laptop sleeps. It is opened again, and clients go on
by the same sessions: they read the folder again while they hear nothing. Each link has a socket of
its own. The former one could still be held by the user's `ControlMaster`, at a path that is gone.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec
from msgspec.structs import replace

from gridengine.dispatcher.run_directory import CLIENT, SERVER, WATCHER
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, FarMachine
from gridengine.dispatcher.standalone.ssh_link import (
    DIED,
    ENDED,
    MOVED,
    Facts,
    SshLink,
    check_forwarded,
)
from gridengine.errors import ClusterError, ConfigurationError
from gridengine.journal.lock_file import LockFile
from gridengine.settings.values import settings
from gridengine.system.machine import MOST_SOCKET_PATH
from gridengine.wire.connection_file import IPC, make_runtime_folder, replace_private, to_json

MOST_TRIES = 3
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0


def socket_path(name: str) -> Path:
    """Return a new path for the socket of a tunnel.

    Raises:
        ConfigurationError: no private folder can be made for it, or its path is too long, or has a
            colon, which ssh would take for the end of the path.
    """
    hint = "set GRIDENGINE_WATCH_DIRECTORY to a folder with a short path"
    try:
        folder = make_runtime_folder(os.environ, settings().watch_directory)
    except OSError as error:
        raise ConfigurationError(f"there is no place for a socket: {error}", hint=hint) from error
    path = folder / f"{name}-{os.urandom(3).hex()}.tunnel"
    if len(os.fsencode(path)) > MOST_SOCKET_PATH or ":" in str(path):
        words = (
            f"{path} cannot be a socket: it must have no colon and at most {MOST_SOCKET_PATH} bytes"
        )
        raise ConfigurationError(words, hint=hint)
    return path


class Tunnel:
    """The tunnel to a dispatcher. Open it, keep it, and close it, or use it in a `with`.

    Args:
        folder: the dispatcher's folder on this machine.
        far: where the tunnel leads.

    Raises:
        ConfigurationError: another process keeps this tunnel, a dispatcher of this machine has the
            name, or there is no place for a socket.
    """

    def __init__(self, folder: DispatcherFolder, far: FarMachine) -> None:
        self._folder = folder
        self._far = far
        if folder.options_file.exists() and not folder.tunnel_file.exists():
            raise ConfigurationError(
                f"a dispatcher of this machine is called {folder.name!r}",
                hint=f"choose another name; or, if that one is not needed, remove {folder.path}",
            )
        sockets = socket_path(folder.name).parent  # raises before anything is started elsewhere
        folder.make()
        lock = LockFile.take(folder.lock)
        if lock is None:
            raise ConfigurationError(
                f"another process keeps the tunnel to {folder.name!r} open",
                hint="use it, or end it",
            )
        for left in sockets.glob(f"{folder.name}-??????.tunnel"):  # by a process that was killed
            left.unlink()
        self._lock = lock
        self._link: SshLink | None = None
        self._socket: Path | None = None
        self._target = ""
        """Where the dispatcher was reached last, from the far end's machine."""
        # Before the far end is asked: one that sees this file has the same folder, see `far_end`.
        replace_private(folder.tunnel_file, to_json(far))

    def open(self, words: tuple[str, ...] = ()) -> Facts:
        """Open the tunnel, and return the facts about the dispatcher.

        words: the arguments of `gridengine dispatcher start` there; empty if it runs already.

        Raises:
            ClusterError: ssh has failed, and may succeed later.
            ConfigurationError: the far machine lacks a requirement, or forwards nothing.
        """
        for _ in range(MOST_TRIES):
            self._close_link()
            path, target = socket_path(self._folder.name), self._target
            forward = f"{path}:{target}" if target else ""
            self._socket = path
            self._link = link = SshLink(self._far, self._folder.name, words, forward=forward)
            words, facts = (), link.facts
            self._target = facts.target
            if facts.target == target:
                check_forwarded(path, target, self._far.ssh)
                self._publish(facts, path)
                return facts
        # Each link may reach another machine, where a name stands for several.
        raise ClusterError(
            f"{self._far.ssh} leads to another machine each time",
            hint=f"name one of these machines: --ssh {facts.holder.host}",
        )

    def _publish(self, facts: Facts, path: Path) -> None:
        """Write the files by which the dispatcher is found here."""
        folder, addresses = self._folder.path, (f"{IPC}{path}",)
        public = {"run_id": facts.run_id, "clients": {"public": facts.client.server_key}}
        replace_private(self._folder.options_file, to_json(facts.options))
        replace_private(folder / SERVER, msgspec.json.encode(public))
        for name, connection in ((CLIENT, facts.client), (WATCHER, facts.watcher)):
            replace_private(folder / name, to_json(replace(connection, addresses=addresses)))
        self._lock.write(facts.holder)

    def keep(self, tell: Callable[[str], object]) -> str:
        """Keep the tunnel open until the dispatcher has ended, and return in words how it ended. A
        broken link is reported by `tell`, and opened again.

        Raises:
            ClusterError: no link could be opened for the setting `client_lease`, after which
                clients take the dispatcher for gone.
            ConfigurationError: see `open`.
        """
        name, host = self._folder.name, self._far.ssh
        while self._link is not None:
            status = self._link.wait()
            if status == ENDED:
                return f"dispatcher {name} has ended"
            if status == DIED:
                start = f"gridengine dispatcher start {name} --ssh {host}"
                return f"dispatcher {name} was killed; `{start}` goes on with its calls"
            again = f"dispatcher {name} was started again; the link to it is opened again"
            broken = f"the link to {host} is broken, and is opened again; calls go on meanwhile"
            tell(again if status == MOVED else broken)
            self._open_again(tell)
        raise AssertionError("the tunnel is not open")

    def _open_again(self, tell: Callable[[str], object]) -> None:
        pause, seconds = threading.Event(), FIRST_PAUSE_SECONDS
        end = time.monotonic() + settings().client_lease
        while True:
            pause.wait(seconds)
            try:
                self.open()
            except ClusterError as error:
                if time.monotonic() > end:
                    raise
                seconds = min(2 * seconds, LONGEST_PAUSE_SECONDS)
                tell(f"{error.message}; it is tried again in {seconds:g} s")
            else:
                tell(f"the link to {self._far.ssh} is open again")
                return

    def _close_link(self) -> None:
        if self._link is not None:
            self._link.close()
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the tunnel; the dispatcher goes on. A tunnel that was never open leaves nothing."""
        self._close_link()
        if self._folder.options_file.exists():
            for name in (CLIENT, WATCHER):
                (self._folder.path / name).unlink(missing_ok=True)
            self._lock.write(None)
        else:
            shutil.rmtree(self._folder.path, ignore_errors=True)
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
