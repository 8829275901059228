"""The messages between a user's process and the one that speaks DRMAA, over a stream socket.

Each is four bytes of length (big endian) and JSON. A request is `[number, operation, arguments]`;
an answer is `[number, result, failure, remaining]`. A failure is null or `{"kind", "words"}`, the
kind being the name of the exception in the `drmaa` package; `remaining` is how many cluster tasks
are still to be deleted.
"""

from __future__ import annotations

import json
import math
import socket
import time
from typing import Any

HEADER_BYTES = 4


def write_message(channel: socket.socket, message: Any) -> None:
    """Write a message.

    Raises:
        OSError: the other end is gone, or does not read in the socket's timeout.
    """
    content = json.dumps(message).encode()
    channel.sendall(len(content).to_bytes(HEADER_BYTES, "big") + content)


def read_size(channel: socket.socket, until: float = math.inf) -> int:
    """Wait for a message until this monotonic time; return the size of what follows.

    Raises:
        OSError: none came, or the other end is gone.
    """
    return int.from_bytes(_read(channel, HEADER_BYTES, until), "big")


def read_content(channel: socket.socket, size: int, until: float = math.inf) -> Any:
    """Read the rest of a message.

    Raises:
        OSError, ValueError: it did not come in time, or is none.
    """
    return json.loads(_read(channel, size, until))


def _read(channel: socket.socket, size: int, until: float) -> bytes:
    block = bytearray()
    while len(block) < size:
        if until < math.inf:
            channel.settimeout(max(0.01, until - time.monotonic()))
        piece = channel.recv(size - len(block))
        if not piece:
            raise ConnectionResetError
        block += piece
    return bytes(block)
