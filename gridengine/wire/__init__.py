"""Messages between dispatcher, worker and runner, and what carries them.

In and out: messages with their buffers, at both ends. Read `messages` first, then `framing` (how
they become bytes). `channel` carries them between a worker's agent and its runners over a socket
pair; `server` (a dispatcher's end) and `client` (a worker's, or client's) do so over ZeroMQ, where
`session` has each arrive once and in order. `connection_file` has a run's addresses and keys;
`open_files` checks limits of this process, `encryption_speed` measures this installation.
"""
