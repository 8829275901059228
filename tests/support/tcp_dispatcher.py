"""A stand-alone dispatcher whose workers, processes of this machine, call over TCP or by files, and
outlive it.

python -m tests.support.tcp_dispatcher NAME [--files]
"""

from __future__ import annotations

import signal
import sys
import threading

from gridengine.dispatcher.run_directory import folder_of
from gridengine.dispatcher.standalone.serve import serve
from gridengine.settings.values import settings
from tests.support.tcp_scheduler import FilesScheduler, TcpScheduler


def main() -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    scheduler = FilesScheduler(2) if "--files" in sys.argv else TcpScheduler(2)
    scheduler.log = "logs"
    serve(folder_of(sys.argv[1], settings()), scheduler, settings(), stopped=stopped)


if __name__ == "__main__":
    main()
