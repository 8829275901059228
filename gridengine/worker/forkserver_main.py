"""Start a fork server in a fresh process: `python -P -m gridengine.worker.forkserver_main
DESCRIPTOR`. Used for the agent in a dispatcher's own process.

The dispatcher's process may have threads and sockets, or be a notebook. So its fork server is not
forked from it.
"""

from __future__ import annotations

import gc
import os
import socket
import sys

if __name__ == "__main__":
    gc.disable()  # while importing, which makes no garbage: saves 5 of 30 ms
    from functools import partial

    from gridengine.wire.connection_file import KEPT
    from gridengine.worker import runner
    from gridengine.worker.environment import Site
    from gridengine.worker.forkserver import be_fork_server

    site = Site.here(local=True) if KEPT in os.environ else None
    main = partial(runner.main, site=site)
    be_fork_server(socket.socket(fileno=int(sys.argv[1])), main, gc.enable)
