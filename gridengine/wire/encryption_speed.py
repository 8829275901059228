"""Measure how fast this installation's ZeroMQ encrypts. Some builds take ten times as long, and
nothing else reveals it.
"""

from __future__ import annotations

import time

import zmq

PIECE_BYTES = 2**20
WAIT_SECONDS = 30.0


def encrypted_bytes_per_second(total_bytes: int = 8 * PIECE_BYTES) -> float:
    """Send this many bytes between two sockets of this process by TCP with CURVE. Return bytes for
    each second of processor time, of both ends together, so that other load on the machine hardly
    matters.

    Raises:
        zmq.ZMQError: this ZeroMQ has no CURVE, there is no loopback network, or nothing arrives for
        `WAIT_SECONDS`.
    """
    public, secret = zmq.curve_keypair()
    with (
        zmq.Context() as context,
        context.socket(zmq.PULL) as receiver,
        context.socket(zmq.PUSH) as sender,
    ):
        receiver.curve_server = True
        receiver.curve_publickey, receiver.curve_secretkey = public, secret
        receiver.rcvtimeo = round(1000 * WAIT_SECONDS)
        sender.curve_publickey, sender.curve_secretkey = zmq.curve_keypair()
        sender.curve_serverkey = public
        sender.linger = 0
        port = receiver.bind_to_random_port("tcp://127.0.0.1")
        sender.connect(f"tcp://127.0.0.1:{port}")
        sender.send(b"the handshake is not measured")
        receiver.recv()
        pieces, piece = max(1, total_bytes // PIECE_BYTES), bytes(PIECE_BYTES)
        begin = time.process_time()
        for _ in range(pieces):
            sender.send(piece, copy=False)
        for _ in range(pieces):
            receiver.recv()
        return pieces * PIECE_BYTES / (time.process_time() - begin)
