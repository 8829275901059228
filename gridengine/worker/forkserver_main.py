"""A fork server started by itself: `python -P -m gridengine.worker.forkserver_main DESCRIPTOR`, for
the agent in a dispatcher's own process.

That process may be anything: many threads, sockets, a notebook. So the fork server is not forked
from it but started afresh.
"""

from __future__ import annotations

import gc
import os
import socket
import sys

if __name__ == "__main__":
    gc.disable()  # until all is imported: none of it is garbage
    from functools import partial

    from gridengine.wire.connection_file import KEPT
    from gridengine.worker import runner
    from gridengine.worker.environment import Site
    from gridengine.worker.forkserver_process import be_fork_server

    site = Site.here(local=True) if KEPT in os.environ else None
    main = partial(runner.main, site=site)
    be_fork_server(socket.socket(fileno=int(sys.argv[1])), main, gc.enable)
