"""Messages between dispatcher, worker, client and runner, and the transports that carry them.

Read `messages` first, then `framing`, which turns messages into frames and back.

    caller's objects -> payloads (serialize)                      opaque from here on
    message + buffers -> framing.encode -> frames
    frames -> session.number -> numbered envelopes -> ZeroMQ (TCP, CURVE)    other machines
                                numbered envelopes -> exchange_folder -> files  where no node
                                connects
    message + buffers -> framing.encode_stream -> channel -> socket pair     agent and runner
    numbered envelopes -> local_connection -> packet_socket -> Unix socket   clients on this machine
    large buffers beside them -> block_socket -> Unix socket

There is one state machine: `session.Session`, one at each end. It numbers every message, keeps each
until the other end acknowledges it, drops duplicates, and asks for missing numbers. ZeroMQ
reconnects by itself but loses the messages that were under way; files may be lost or read twice.
Therefore an envelope may travel any way: a session with a client of this machine goes over to a
local connection, and back to TCP when that has ended.

Keep in step:

- `messages` and their two ends; `VERSION` in `messages.common` rises with every incompatible
  change. Then run `tools/protocol_vectors.py`.
- `Server.hold_acknowledgements` and the journal: with a journal, a message is acknowledged only
  when its effects are durable.
- A client connects to `local_connection` before each greeting, because the server accepts when it
  is greeted. A buffer is sent before its message, so the receiver never waits for it.
- `PolledSocket.pending` is asked before every wait, because ZeroMQ's descriptor signals an edge,
  not a level.

Rejected:

- `struct`, JSON or pickle for headers. `struct` needs a parser of our own, JSON has no bytes, and
  pickle must not be used before a peer has proved its identity. msgspec has one declaration for the
  type, the validation and the encoding.
- ZeroMQ's linger at close. It ends when the kernel has the data and reads nothing meanwhile, and a
  close with unread bytes resets the connection. A worker instead waits until the session's numbers
  say that everything has arrived, or until it is refused or nobody listens.
- A fixed limit for the length of a message. It would refuse honest large results. A message may be
  as long as its first frame announces, and no longer than this machine's memory.
- Acknowledging a first message piece by piece. An incomplete first message is dropped after a
  minute and sent again as a whole, so the new session must get every piece.
- A list of frames on a runner's channel, as a ZeroMQ message has. The header already holds the
  sizes of the buffers.
- `zmq.Poller`. It makes five system calls for each wait; asking pyzmq whether a message has arrived
  takes one and 2 microseconds. A `PolledSocket` that had nothing is not asked again before its
  descriptor polls or it is used. Frames are received one by one, because each frame says whether
  another follows. A call of a client over TCP and back thus makes 45 system calls at each end in
  the place of 56 and 77.
- pyzmq before 27.3. Those wheels carry a libsodium that encrypts 30 MB for each second of processor
  time; the wheel of 27.3 encrypts 400 MB. A build from source may be either, so
  `gridengine doctor` measures it (`sockets`).

Other modules: `session_server` and `session_client` (what both ends do, whatever carries their
messages), `server` (a dispatcher's end over TCP, and the addresses of this machine),
`dispatcher_connection` (the end of a worker or client over TCP), `file_server` and
`file_connection` (both ends by files, which `file_socket` writes and reads), `agent_requests` (a
runner's requests to its agent), `sockets` (options, polling and keys that both ends over TCP
share), `connection_file` (how others find a dispatcher), `clock`, `processes` (whether others still
run; the limits of this one).
"""
