"""`LocalDispatcher`: a stand-alone dispatcher with workers on this machine, for as long as a block
of code runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from gridengine.dispatcher import background
from gridengine.dispatcher.dispatcher_folder import (
    DispatcherFolder,
    StartOptions,
    working_directory,
)
from gridengine.errors import trimmed
from gridengine.resources.units import whole

END_SECONDS = 30.0


class LocalDispatcher:
    """Starts a dispatcher in a process of its own, with workers on this machine; leaving its `with`
    ends it, and so does the end of this process, however it comes.

        with gridengine.LocalDispatcher(n_workers=10) as dispatcher:
            client = gridengine.Client(dispatcher.address)

    Args:
        n_workers: how many calls run at a time (default: as many as there are processors).

    Raises:
        TypeError, ConfigurationError: `n_workers` is no positive whole number.
        ClusterError: it does not start; the text holds its own words.
    """

    @trimmed
    def __init__(self, n_workers: int | None = None) -> None:
        arguments = {} if n_workers is None else {"max_workers": whole("n_workers", n_workers)}
        options = StartOptions(
            "processes", arguments, directory=working_directory(), temporary=True
        )
        self._folder = DispatcherFolder(Path(tempfile.mkdtemp(prefix="gridengine-dispatcher-")))
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, self._folder.path, ignore_errors=True)
            background.keep_options(self._folder, options)
            lock = self._folder.take_lock()
            theirs, self._ours = os.pipe()
            try:
                self._process = background.start(self._folder, lock, parent=theirs)
            except BaseException:
                os.close(self._ours)
                raise
            finally:
                os.close(theirs)
                lock.close()
            undo.pop_all()

    def __repr__(self) -> str:
        return f"LocalDispatcher({self.address!r})"

    @property
    def address(self) -> str:
        """The path of its connection file, which `Client` takes."""
        return str(self._folder.client_file)

    def close(self) -> None:
        """End the dispatcher and its workers; calls that have not ended are cancelled. May be
        called twice.
        """
        process, self._process = self._process, None
        if process is None:
            return
        os.close(self._ours)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(self._folder.path, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
