"""How workers get results from each other: the ROUTER of a worker that has results, and the DEALER
of one that needs them. Both keys of each connection are checked, as between workers and their
dispatcher.

There is no session: nothing is sent again. A result that does not arrive is asked of the dispatcher
instead.

    Beat        ----- to each address ----->
                <------------- Beat --------   the first address to answer is used
    Fetch       --------------------------->
                <------------- Part --------   each of some pieces
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import zmq

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer, Payload
from gridengine.system.polling import Poller
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.framing import SMALL, decode, encode
from gridengine.wire.messages import Beat, Fetch, Part
from gridengine.wire.session import PIECE
from gridengine.wire.sockets import KeyCheck, PolledSocket, bind_to_any, buffers_of, secure

PIECES = 16
"""A part of a result has at most so many pieces, so that its arrival is seen."""
MOST_BUFFERS = 1000
"""A result of more buffers than this goes through the dispatcher: each part lists all sizes."""


class ResultServer:
    """Sends other workers of the same dispatcher the results that this one has. All methods are for
    one thread.

    Args:
        context: of no other server; the caller terminates it after `close`.
        poller: calls `answer`.
        keys: the server's own pair, and the public key of its peers.
        ports: the ports to choose from (default: any).
        payload_of: returns a result by its name, None if it is not here.

    Raises:
        ConfigurationError: no port can be listened at.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        poller: Poller,
        keys: ServerKeys,
        ports: Sequence[int],
        payload_of: Callable[[bytes], Payload | None],
    ) -> None:
        self._payload_of = payload_of
        KeyCheck(context, keys)
        self._poller = poller
        self._polled = PolledSocket(context.socket(zmq.ROUTER))
        poller.register(self._polled.fd, self.answer)
        socket = self._polled.socket
        secure(socket, keys)
        try:
            self.port = bind_to_any(socket, ports)
        except BaseException:
            self.close()
            raise

    def answer(self) -> None:
        """Answer all requests that have arrived; also to be called before each wait, see
        `PolledSocket`. Malformed ones are dropped.
        """
        while frames := self._polled.receive():
            peer, *request = buffers_of(frames)
            try:
                message, _ = decode(request)
            except ProtocolError:
                continue
            if isinstance(message, Beat):
                self._polled.send([peer, *encode(message)])
            elif isinstance(message, Fetch):
                for name in message.names:
                    for part in parts_of(name, self._payload_of(name)):
                        self._polled.send([peer, *part])

    def close(self) -> None:
        """Close the socket at once. May be called twice."""
        _close(self._poller, self._polled)


def _close(poller: Poller, polled: PolledSocket) -> None:
    poller.unregister(polled.fd)
    polled.socket.close(linger=0)


def parts_of(name: bytes, payload: Payload | None) -> Iterator[list[Buffer]]:
    """Yield the messages, in frames, by which a result travels; without a payload, the one that
    says so. No frame is longer than a piece, and a little.
    """
    if payload is None or len(payload) > MOST_BUFFERS:
        yield encode(Part(name))
        return
    views = [memoryview(buffer).cast("B") for buffer in payload]
    sizes, start, part, small = [view.nbytes for view in views], 0, list[Buffer](), 0
    for piece in (view[at : at + PIECE] for view in views for at in range(0, len(view), PIECE)):
        if len(part) == PIECES or small > PIECE - SMALL:
            yield encode(Part(name, sizes, start, len(part)), part)
            start, part, small = start + sum(map(len, part)), [], 0
        part.append(piece)
        small += len(piece) if len(piece) <= SMALL else 0  # these have one frame together
    yield encode(Part(name, sizes, start, len(part)), part)


class IncomingResult:
    """A result that arrives in parts, which come in order."""

    def __init__(self) -> None:
        self._pieces: list[Buffer] = []
        self._size = 0

    def add(self, part: Part, pieces: Sequence[Buffer]) -> Payload | None:
        """Take in a part. Return the whole payload once it is there.

        Raises:
            ProtocolError: it is not the next part, or does not fit.
        """
        if part.start != self._size:
            raise ProtocolError("a part of a result is missing")
        self._pieces += pieces
        self._size += sum(map(len, pieces))
        if self._size < sum(part.sizes):
            return None
        left, payload = iter(self._pieces), list[Buffer]()
        for size in part.sizes:
            own, there = list[Buffer](), 0
            while there < size and (piece := next(left, None)) is not None:
                own.append(piece)
                there += len(piece)
            if there != size:
                raise ProtocolError("the parts of a result do not agree with its sizes")
            payload.append(own[0] if len(own) == 1 else b"".join(own))
        if next(left, None) is not None:
            raise ProtocolError("a result is longer than it announced")
        return payload


class ResultClient:
    """A connection to a worker that has results. All methods are for one thread.

    Args:
        poller: wakes the thread, which calls `receive` before each wait.
        addresses: where that worker may listen: the first to answer is used.
        key: its public key. pair: the public and the secret key of this end.

    Raises:
        zmq.ZMQError: an address or the key is none, or no descriptor is left.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        poller: Poller,
        addresses: Sequence[str],
        key: str,
        pair: tuple[str, str],
    ) -> None:
        self._poller = poller
        self.is_connected = False
        self._wanted: list[bytes] = []
        self._incoming: dict[bytes, IncomingResult] = {}
        self._sockets: list[PolledSocket] = []
        try:
            for address in addresses:
                polled = PolledSocket(context.socket(zmq.DEALER))
                self._sockets.append(polled)
                poller.register(polled.fd, lambda: None)
                socket = polled.socket
                socket.curve_serverkey = key.encode()
                socket.curve_publickey, socket.curve_secretkey = map(str.encode, pair)
                socket.connect(address)
                polled.send(encode(Beat()))
        except BaseException:
            self.close()
            raise

    def fetch(self, name: bytes) -> None:
        """Ask for a result."""
        self._incoming[name] = IncomingResult()
        if self.is_connected:
            self.send(encode(Fetch([name])))
        else:
            self._wanted.append(name)

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send these frames to the address that has answered."""
        self._sockets[0].send(frames)

    def give_up(self, name: bytes) -> None:
        """Take in no more of a result."""
        self._incoming.pop(name, None)
        if name in self._wanted:
            self._wanted.remove(name)

    def receive(self) -> Iterator[tuple[bytes, Payload | None]]:
        """Yield (name, payload) of each result that has come whole; the payload is None if that
        worker does not have it. For each other sign of life yield an empty name.

        Raises:
            ProtocolError: the other end sends what fits nothing.
        """
        for polled in self._sockets:
            while frames := polled.receive():
                message, buffers = decode(buffers_of(frames))
                if not self.is_connected:
                    self._use(polled)
                yield self._take(message, buffers) if isinstance(message, Part) else (b"", None)
            if self.is_connected:
                return

    def _use(self, polled: PolledSocket) -> None:
        """Use this socket alone, whose address has answered first."""
        self.is_connected = True
        for other in self._sockets:
            if other is not polled:
                _close(self._poller, other)
        self._sockets = [polled]
        if self._wanted:
            self.send(encode(Fetch(self._wanted)))

    def _take(self, part: Part, pieces: Sequence[Buffer]) -> tuple[bytes, Payload | None]:
        incoming = self._incoming.get(part.name)
        if incoming is None:  # it was given up
            return b"", None
        payload = incoming.add(part, pieces) if part.sizes else None
        if part.sizes and payload is None:
            return b"", None
        del self._incoming[part.name]
        return part.name, payload

    def close(self) -> None:
        """Close the sockets at once."""
        for polled in self._sockets:
            _close(self._poller, polled)
