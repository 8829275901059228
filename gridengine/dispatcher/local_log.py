"""The log of those workers of a stand-alone dispatcher that are on its own machine."""

from __future__ import annotations

import os
from pathlib import Path

from gridengine.dispatcher.old_runs import LOGS
from gridengine.errors import ConfigurationError
from gridengine.settings.values import Settings
from gridengine.worker.log_limit import LogLimit

NAME = "local-workers.log"


class LocalLog:
    """A file beside the logs of other workers, kept within the setting `log_bytes`; a process that
    goes on with the dispatcher goes on with it.

    Raises:
        ConfigurationError: it cannot be written.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.path = folder / LOGS / NAME
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self.fd = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write {self.path}: {error.strerror}",
                hint="free space there, or set GRIDENGINE_RUN_DIRECTORY to another folder",
            ) from error
        self._limit = LogLimit(self.fd, settings.log_bytes)

    def check(self) -> None:
        """Keep it within its bounds."""
        self._limit.check()

    def close(self) -> None:
        """Close it, once nobody writes to it any more. May be called twice."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
