"""A stand-alone dispatcher whose workers connect over TCP, as a cluster's do:
python -m tests.support.tcp_standalone NAME --max-workers N
"""

from __future__ import annotations

import signal
import sys
import threading

from gridengine.dispatcher.standalone import serve
from gridengine.dispatcher.standalone_files import folder_of
from gridengine.settings.values import settings
from tests.support.tcp_scheduler import TcpScheduler

if __name__ == "__main__":
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with TcpScheduler(max_workers=int(sys.argv[3])) as scheduler:
        serve(folder_of(sys.argv[1], settings()), scheduler, settings(), stopped=stopped)
