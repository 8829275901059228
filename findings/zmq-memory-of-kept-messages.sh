#!/bin/sh
# libzmq 4.3.5 (in pyzmq 27.3.0): a small message that came over TCP keeps libzmq's whole reading
# buffer of 8 KB for as long as it waits in a socket, or as a Frame of recv(copy=False) in a program,
# unless other messages came in the same read. A server that is busy for a while takes many times what
# its peers have sent. The context's option ZMQ_ZERO_COPY_RECV, for which pyzmq has no name, has each
# message copied. Bytes for each of 2,000 kept messages of 100 bytes, seen:
#
#     as it is: 8441
#     copied: 421
set -u
python=$(command -v python3) || exit 77
[ -r /proc/self/statm ] || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 77
"$python" -m venv env && env/bin/python -m pip install --quiet pyzmq==27.3.0 || exit 77

cat >kept.py <<'PY'
import sys

import zmq

COUNT, MESSAGE, ZERO_COPY_RECV = 2000, bytes(100), 10


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def each_takes(*, copied):
    with zmq.Context() as context:
        if copied:
            context.set(ZERO_COPY_RECV, 0)
        with context.socket(zmq.PULL) as server, context.socket(zmq.PUSH) as peer:
            peer.connect(f"tcp://127.0.0.1:{server.bind_to_random_port('tcp://127.0.0.1')}")
            kept, before = [], resident()
            for _ in range(COUNT):  # one at a time: each is read by itself
                peer.send(MESSAGE)
                kept.append(server.recv(copy=False))
            return (resident() - before) // COUNT


copied, as_it_is = each_takes(copied=True), each_takes(copied=False)
print(f"as it is: {as_it_is}")
print(f"copied: {copied}")
sys.exit(as_it_is < 10 * max(copied, 100))
PY
env/bin/python kept.py
