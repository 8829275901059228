"""Messages between dispatcher, worker and runner, and what carries them.

In and out: messages with their buffers, at both ends. Read `messages` first, then `framing` (how
they become bytes). `channel` carries them between a worker's agent and its runners over a socket
pair, `transport` between dispatcher and workers over ZeroMQ, where `session` has each arrive once
and in order. `connection` is the file with a run's addresses and keys; `open_files` checks limits
of this process, `encryption_speed` measures this installation.
"""
