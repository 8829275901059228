#!/bin/sh
# libzmq 4.3.5 (in pyzmq 27.3.0): a message takes the longer the more peers have heartbeats
# (ZMQ_HEARTBEAT_IVL with ZMQ_HEARTBEAT_TTL). With 100 peers the server's processor time for a
# message and its answer is the same with and without; with 2,000 peers it is ten times as long. The
# timers of all connections of an I/O thread are in one table by due time, which is searched from
# its beginning for each timer that a message makes void. Microseconds of a processor, seen:
#
#     100 peers: 11.8 without, 10.9 with heartbeats
#     2000 peers: 18.2 without, 237.8 with heartbeats
set -u
python=$(command -v python3) || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 77
ulimit -n 5000 || exit 77
"$python" -m venv env && env/bin/python -m pip install --quiet pyzmq==27.3.0 || exit 77

cat >peers.py <<'PY'
import resource
import subprocess
import sys

import zmq

COUNT, ROUNDS, HEARTBEATS = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "with"


def new_socket(context, kind):
    socket = context.socket(kind)
    if HEARTBEATS:
        socket.setsockopt(zmq.HEARTBEAT_IVL, 1000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 60000)
        socket.setsockopt(zmq.HEARTBEAT_TTL, 60000)
    return socket


def peers(port):
    context = zmq.Context()
    context.max_sockets = COUNT + 10
    sockets = []
    for _ in range(COUNT):
        socket = new_socket(context, zmq.DEALER)
        socket.connect(f"tcp://127.0.0.1:{port}")
        sockets.append(socket)
    for _ in range(1 + ROUNDS):
        for socket in sockets:
            socket.send(b"message")
        for socket in sockets:
            socket.recv()
    context.destroy(linger=0)


def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def server():
    socket = new_socket(zmq.Context(), zmq.ROUTER)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    child = subprocess.Popen([sys.executable, __file__, str(port), *sys.argv[2:]])
    connected = [socket.recv_multipart()[0] for _ in range(COUNT)]
    for peer in connected:
        socket.send_multipart([peer, b"answer"])
    begin = spent()
    for _ in range(ROUNDS * COUNT):
        socket.send_multipart([socket.recv_multipart()[0], b"answer"])
    print(f"{1e6 * (spent() - begin) / (ROUNDS * COUNT):.1f}")
    child.wait()


server() if sys.argv[1] == "server" else peers(sys.argv[1])
PY

measure() { # measure PEERS ROUNDS
    without=$(env/bin/python peers.py server "$1" "$2" without) || exit 77
    with=$(env/bin/python peers.py server "$1" "$2" with) || exit 77
    echo "$1 peers: $without without, $with with heartbeats"
}
more() { # more TIMES: whether heartbeats take at least so many times as long
    env/bin/python -c "import sys; sys.exit($with < $1 * $without)"
}
measure 100 200
more 3 && exit 1
measure 2000 10
more 3 || exit 1
