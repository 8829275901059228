"""How workers get results from each other: the ROUTER of a worker that has results, and the DEALER
of one that needs them. Both keys of each connection are checked, as between workers and their
dispatcher.

There is no session: nothing is sent again. A result that does not arrive is asked of the dispatcher
instead.

    Beat        ----- to each address ----->
                <------------- Beat --------   the first address to answer is used
    Pull        --------------------------->   for each result
                <------------- Part --------   each of some pieces
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import zmq

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer, Payload
from gridengine.serialize.shared_memory import LARGE
from gridengine.system.polling import Poller
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.framing import SMALL, decode, encode
from gridengine.wire.messages import Beat, Part, Pull
from gridengine.wire.session import PIECE
from gridengine.wire.sockets import KeyCheck, PolledSocket, bind_to_any, buffers_of, secure

PIECES = PIECE // SMALL
"""A part has at most this many pieces, so that the small ones fit into one frame. Each part that
arrives shows that its sender goes on.
"""
MOST_BUFFERS = 1000
"""A result of more buffers than this goes through the dispatcher: each part lists all sizes."""
CONNECT_SECONDS, SILENT_SECONDS, IDLE_SECONDS = 5.0, 15.0, 60.0
"""The longest time until an address answers; between two parts of results; without a request."""


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
            elif isinstance(message, Pull):
                for part in parts_of(message.number, self._payload_of(message.name)):
                    self._polled.send([peer, *part])

    def close(self) -> None:
        """Close the socket at once. May be called twice."""
        _close(self._poller, self._polled)


def _close(poller: Poller, polled: PolledSocket) -> None:
    poller.unregister(polled.fd)
    polled.socket.close(linger=0)


def parts_of(number: int, payload: Payload | None) -> Iterator[list[Buffer]]:
    """Yield the messages, in frames, by which a result travels; without a payload, the one that
    says so. No frame is longer than a piece, and a little.
    """
    if payload is None or len(payload) > MOST_BUFFERS:
        yield encode(Part(number))
        return
    views = [memoryview(buffer).cast("B") for buffer in payload]
    sizes, start = [view.nbytes for view in views], 0
    pieces = (view[at : at + PIECE] for view in views for at in range(0, len(view), PIECE))
    while True:
        part: list[Buffer] = list(itertools.islice(pieces, PIECES))
        yield encode(Part(number, sizes, start, len(part)), part)
        start += sum(map(len, part))
        if start == sum(sizes):
            return


class IncomingResult:
    """A result that arrives in parts.

    Args:
        pull: the request that the parts answer.
    """

    def __init__(self, pull: Pull) -> None:
        self.pull = pull
        self._pieces: list[Buffer] = []
        self._size = 0

    def add(self, part: Part, pieces: Sequence[Buffer]) -> Payload | None:
        """Take in the next part. Return the whole payload once it is there.

        Raises:
            ProtocolError: it is not the next part, or does not fit.
        """
        if part.start != self._size:
            raise ProtocolError("a part of a result is missing")
        self._pieces += pieces
        self._size += sum(map(len, pieces))
        total = sum(part.sizes)
        if self._size < total:
            return None
        if self._size > total:
            raise ProtocolError("a result is longer than it announced")
        whole = memoryview(b"".join(self._pieces))
        self._pieces.clear()
        ends = itertools.accumulate(part.sizes)
        views = (whole[end - size : end] for end, size in zip(ends, part.sizes, strict=True))
        # A view keeps the memory of the whole result: large buffers soon have blocks of their own.
        return [view if len(view) >= LARGE else bytes(view) for view in views]


class ResultClient:
    """A connection to a worker that has results. All methods are for one thread.

    Args:
        poller: wakes the thread, which calls `receive` before each wait.
        addresses: where that worker may listen: the first to answer is used.
        key: its public key. pair: the public and the secret key of this end.

    Raises:
        zmq.ZMQError: an address or the key is invalid, or no descriptor is left.
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
        self.incoming: dict[int, IncomingResult] = {}
        """The results that were asked for, by number and in this order, in which they also come."""
        self._heard_at = 0.0
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

    def fetch(self, pull: Pull, now: float) -> None:
        """Ask for a result."""
        if not self.incoming:
            self._heard_at = now
        self.incoming[pull.number] = IncomingResult(pull)
        if self.is_connected:
            self._ask(pull)

    def _ask(self, pull: Pull) -> None:
        self.send(encode(Pull(pull.name, pull.number)))

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send these frames to the address that has answered."""
        self._sockets[0].send(frames)

    def give_up(self, pull: Pull) -> None:
        """Ignore a result from here on, if it has been asked for."""
        self.incoming.pop(pull.number, None)

    def receive(self, now: float) -> Iterator[tuple[Pull, Payload | None]]:
        """Yield each result that has come whole, with its request; None in its place if that worker
        does not have it, or if it was lost on the way.

        Raises:
            ProtocolError: the other end breaks the protocol.
        """
        for polled in self._sockets:
            while frames := polled.receive():
                message, buffers = decode(buffers_of(frames))
                self._heard_at = now
                if not self.is_connected:
                    self._use(polled)
                if isinstance(message, Part) and message.number in self.incoming:
                    yield from self._take(message, buffers)
            if self.is_connected:
                return

    def _use(self, polled: PolledSocket) -> None:
        """Use this socket alone, whose address has answered first."""
        self.is_connected = True
        for other in self._sockets:
            if other is not polled:
                _close(self._poller, other)
        self._sockets = [polled]
        for incoming in self.incoming.values():
            self._ask(incoming.pull)

    def _take(self, part: Part, pieces: Sequence[Buffer]) -> Iterator[tuple[Pull, Payload | None]]:
        for number in list(itertools.takewhile(part.number.__ne__, self.incoming)):
            yield self.incoming.pop(number).pull, None  # it was lost: ZeroMQ has connected anew
        incoming = self.incoming[part.number]
        payload = incoming.add(part, pieces) if part.sizes else None
        if payload is not None or not part.sizes:
            del self.incoming[part.number]
            yield incoming.pull, payload

    def seconds_left(self, now: float) -> float:
        """Return after how many seconds this connection is to be closed, unless `receive` or
        `fetch` is called meanwhile with success.
        """
        if not self.incoming:
            seconds = IDLE_SECONDS
        else:
            seconds = SILENT_SECONDS if self.is_connected else CONNECT_SECONDS
        return self._heard_at + seconds - now

    def close(self) -> None:
        """Close the sockets at once."""
        for polled in self._sockets:
            _close(self._poller, polled)
