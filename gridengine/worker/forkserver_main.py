"""A fork server started by itself: `python -P -m gridengine.worker.forkserver_main DESCRIPTOR`, for
the agent in a dispatcher's own process.

That process may be anything: many threads, sockets, a notebook. So the fork server is not forked
from it but started afresh.
"""

from __future__ import annotations

import gc
import socket
import sys

if __name__ == "__main__":
    gc.disable()  # until all is imported: none of it is garbage
    from gridengine.worker import runner
    from gridengine.worker.forkserver_process import be_fork_server

    be_fork_server(socket.socket(fileno=int(sys.argv[1])), runner.main, gc.enable)
