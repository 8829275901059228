"""`LocalDispatcher`: a stand-alone dispatcher with workers here, within a block of code."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

from gridengine.arguments import whole
from gridengine.dispatcher.standalone import background
from gridengine.dispatcher.standalone.dispatcher_folder import (
    DispatcherFolder,
    StartOptions,
    working_directory,
)
from gridengine.errors import trimmed
from gridengine.output.stream_writer import PATIENCE_SECONDS, StandardStreams, StreamWriter
from gridengine.threads import Closing

END_SECONDS = 30.0
READ_BYTES = 64 * 1024


class OutputPipe:
    """A pipe that another process writes to at its end `fd`. A thread reads it and writes to a
    stream of this process, as fast as the stream takes it. The caller closes `fd` once it has
    handed it on.
    """

    def __init__(self, stream: StreamWriter) -> None:
        self._stream = stream
        self._reading, self.fd = os.pipe()
        self._thread = threading.Thread(target=self._pass_on, name="gridengine-output", daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        with open(self._reading, "rb", buffering=0) as pipe:
            while data := pipe.read(READ_BYTES):
                self._stream.write(data)
                self._stream.wait(self._stream.accepted, None)

    def close(self) -> None:
        """After the other process has ended, wait until the stream has everything that it wrote. A
        stream that takes nothing for `PATIENCE_SECONDS` is not waited for.
        """
        before = -1
        while self._thread.is_alive() and self._stream.passed > before:
            before = self._stream.passed
            self._thread.join(PATIENCE_SECONDS)
        self._stream.close()


class LocalDispatcher(Closing):
    """Starts a dispatcher in a process of its own, with workers on this machine. It ends when its
    `with` is left, or when this process ends in any way. Whatever calls print goes to this
    process's standard output and error.

        with gridengine.LocalDispatcher(n_workers=10) as dispatcher:
            client = gridengine.Client(dispatcher.address)

    Args:
        n_workers: how many calls run at a time (default: as many as there are processors).

    Raises:
        TypeError, ConfigurationError: `n_workers` is not a positive whole number.
        ClusterError: the dispatcher does not start; the text holds its own words.
    """

    @trimmed
    def __init__(self, n_workers: int | None = None) -> None:
        arguments = {} if n_workers is None else {"max_workers": whole("n_workers", n_workers)}
        options = StartOptions(
            "processes", arguments, directory=working_directory(), temporary=True
        )
        self._folder = DispatcherFolder(Path(tempfile.mkdtemp(prefix="gridengine-dispatcher-")))
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, self._folder.path, ignore_errors=True)
            background.write_options(self._folder, options)
            lock = self._folder.take_lock()
            theirs, self._ours = os.pipe()
            self._output = [OutputPipe(stream) for stream in StandardStreams(lambda: None)]
            stdout, stderr = [pipe.fd for pipe in self._output]
            try:
                self._process = background.start(
                    self._folder, lock, parent=theirs, output=(stdout, stderr)
                )
            except BaseException:
                os.close(self._ours)
                raise
            finally:
                for descriptor in (theirs, stdout, stderr):
                    os.close(descriptor)
                lock.close()
            undo.pop_all()
        atexit.register(self.close)

    def __repr__(self) -> str:
        return f"LocalDispatcher({self.address!r})"

    @property
    def address(self) -> str:
        """The path of its connection file, for `Client`."""
        return str(self._folder.client_file)

    def close(self) -> None:
        """End the dispatcher and its workers, and cancel unfinished calls. May be called twice."""
        if os.getpid() != self._pid:
            return
        process, self._process = self._process, None
        if process is None:
            return
        atexit.unregister(self.close)
        os.close(self._ours)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in self._output:
            pipe.close()
        shutil.rmtree(self._folder.path, ignore_errors=True)
