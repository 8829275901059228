"""A worker's end of the session with its dispatcher, where messages travel as files."""

from __future__ import annotations

import secrets
import shutil
import socket
from pathlib import Path

from gridengine.errors import UNSHARED, ConfigurationError
from gridengine.serialize.payload import Buffer
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import Connection
from gridengine.wire.exchange_folder import DISPATCHER, make_folder
from gridengine.wire.file_socket import FileSocket
from gridengine.wire.messages import Message, Refuse
from gridengine.wire.session import Frames
from gridengine.wire.session_client import SessionClient


class FileConnection(SessionClient):
    """A worker's end of an exchange folder, in which it makes a folder of its own. All methods are
    for one thread.

    Args:
        exchange: the exchange folder.

    Raises:
        ConfigurationError: the worker cannot write there.
    """

    def __init__(
        self,
        connection: Connection,
        exchange: Path,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(connection.beat_seconds, clock)
        name = secrets.token_hex(16)
        self._folder = exchange / name
        try:
            make_folder(self._folder)
        except OSError as error:
            raise ConfigurationError(
                f"the worker on {socket.gethostname()} gets no answer of its dispatcher: "
                f"{exchange.as_uri()} ({error.strerror})",
                hint=UNSHARED,
            ) from error
        key = connection.worker_secret.encode()
        self._socket = FileSocket(exchange, name, name, key, clock=clock)
        self.fd = self._socket.fd

    @property
    def pending(self) -> bool:
        return self._socket.pending

    def receive(self) -> list[tuple[Message, list[Buffer]]]:
        """Return all messages that have arrived; a refusal when this worker's folder is gone, since
        its dispatcher removes it at its end.
        """
        messages = super().receive()
        if self._socket.is_gone and not messages:
            return [(Refuse("its dispatcher has ended, or has given this worker up"), [])]
        return messages

    def _next(self) -> Frames:
        came = self._socket.receive()
        return [] if came is None else came[1]

    def _send_frames(self, frames: Frames) -> None:
        self._socket.send(DISPATCHER, frames)

    def _connect_locally(self) -> None:
        """Workers have none."""

    def _is_away(self) -> bool:
        return self._socket.is_gone

    def _close(self) -> None:
        self._socket.close(0.5)
        shutil.rmtree(self._folder, ignore_errors=True)
