"""A dispatcher's end of the sessions with workers whose messages travel as files."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from gridengine.errors import ClusterError, ConfigurationError
from gridengine.serialize.payload import Buffer
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.exchange_folder import ALIVE, DISPATCHER, make_folder
from gridengine.wire.file_socket import FileSocket
from gridengine.wire.messages import Hello
from gridengine.wire.session import Frames
from gridengine.wire.session_server import SessionServer

_WORKER = re.compile("(?:[0-9a-f]{2}){1,64}")


class FileServer(SessionServer):
    """A dispatcher's end of an exchange folder. All methods are for one thread.

    Args:
        exchange: the exchange folder, which `open` makes.
        keys: the keys to use (default: a new one).
        epoch: as `SessionServer`. Workers of an earlier epoch find the folder again.
    """

    def __init__(
        self,
        exchange: Path,
        *,
        keys: ServerKeys | None = None,
        epoch: int = 0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(keys or ServerKeys("", "", "", secrets.token_hex(32)), Hello, epoch, clock)
        self.addresses = (exchange.as_uri(),)
        self._exchange = exchange
        self._socket: FileSocket | None = None

    def open(self) -> None:
        """Make the folder, and begin to look for messages.

        Raises:
            ConfigurationError: it cannot be made, or others may look into it.
        """
        exchange = self._exchange
        try:
            make_folder(exchange)
            make_folder(exchange / DISPATCHER)
            (exchange / ALIVE).touch(mode=0o600)
            left = [one.name for one in exchange.iterdir() if _WORKER.fullmatch(one.name)]
        except OSError as error:
            raise ConfigurationError(
                f"cannot make the folder {exchange}: {error.strerror}",
                hint="set GRIDENGINE_RUN_DIRECTORY to another folder, which the nodes see too",
            ) from error
        # Of two processes that are one dispatcher, the later one comes later in order, too.
        sender = f"{DISPATCHER}-{self._epoch:08}"
        key = self.keys.peer_secret.encode()
        self._socket = FileSocket(exchange, DISPATCHER, sender, key, clock=self._clock)
        self.fd = self._socket.fd
        for name in left:  # folders of an earlier epoch's workers, who write soon if they live
            self._socket.forget(name)

    @property
    def pending(self) -> bool:
        return self._socket is not None and self._socket.pending

    def _arrived(self, most: int) -> Iterator[tuple[bytes, Sequence[Buffer], Sequence[Buffer]]]:
        assert self._socket is not None
        while most and (came := self._socket.receive()) is not None:
            sender, frames = came
            if _WORKER.fullmatch(sender):
                most -= 1
                yield bytes.fromhex(sender), frames, ()
        if most and self._socket.is_gone:
            raise ClusterError(
                f"somebody has removed {self._exchange}, through which workers exchange messages",
                hint="leave run directories alone while their scripts run",
            )

    def _may_only_look(self, raw: Sequence[Buffer]) -> bool:
        return False

    def _send_frames(self, peer: bytes, frames: Frames) -> None:
        assert self._socket is not None
        self._socket.send(peer.hex(), frames)

    def forget(self, peer: bytes) -> None:
        super().forget(peer)
        if self._socket is not None:
            self._socket.forget(peer.hex())

    def close(self, linger_seconds: float = 0.5) -> None:
        """Write the queued envelopes, and remove the mark that the dispatcher is alive. With an
        epoch the folder stays for the next process; otherwise it is removed, and its workers leave.
        May be called twice.
        """
        if self._socket is not None:
            self._socket.close(linger_seconds)
            with contextlib.suppress(OSError):  # it is out of date soon
                (self._exchange / ALIVE).unlink()
            if not self._epoch:
                shutil.rmtree(self._exchange, ignore_errors=True)
