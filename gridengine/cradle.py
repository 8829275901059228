"""A nursery started by itself: `python -P -m gridengine.cradle DESCRIPTOR`, for the agent in a dispatcher's own process.

That process may be anything: many threads, sockets, a notebook. So the nursery is not forked from it but started afresh.
"""

from __future__ import annotations

import socket
import sys

from gridengine import runner
from gridengine.nursery import be_nursery

if __name__ == "__main__":
    be_nursery(socket.socket(fileno=int(sys.argv[1])), runner.main)
