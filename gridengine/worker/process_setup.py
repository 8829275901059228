"""Sets up a runner's process for calls: standard streams, working directory, module search path,
and the processors and GPUs of its allocation.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
from typing import TYPE_CHECKING, NoReturn

from gridengine.call_context.environment import NONE_GIVEN, Variables
from gridengine.call_context.process_resources import bind_process
from gridengine.errors import ConfigurationError
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.kinds import Cores, GPUs
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.system import processors
from gridengine.wire.messages import Allocate

if TYPE_CHECKING:
    from gridengine.worker.forkserver import RunnerDescriptors


class AllocatedResources:
    """The resources of the present allocation; none at first."""

    def __init__(self) -> None:
        self._message = Allocate(0)
        self._allowed = processors()
        self._payload: Payload = ()
        self.present: Resource | None = ZERO
        """The resources that calls get; None until `get` has determined them or failed."""
        self._unfit: ConfigurationError | None = None
        self.variables: Variables = NONE_GIVEN
        """The environment variables of the allocation; one object for as long as it stays."""

    def allocate(self, message: Allocate, buffers: Payload) -> None:
        """Switch to another allocation."""
        self._message, self._payload = message, buffers
        self.present, self._unfit = None if message.allocation else ZERO, None
        self.variables = NONE_GIVEN
        try:
            self.variables = bind_process(message, self._allowed) or NONE_GIVEN
        except ConfigurationError as error:
            self.present, self._unfit = None, error

    def get(self) -> Resource:
        """Return the resources that calls get, with this machine's own numbers.

        Raises:
            Exception: there are none to give, or their class cannot be loaded here.
        """
        if self._unfit is not None:
            raise self._unfit
        if self.present is None:
            if self._message.failed:
                raise pickling.load_exception(self._payload)
            from gridengine.resources.demand import replaced  # few calls request resources

            given, cores, gpus = (
                pickling.load(self._payload),
                self._message.cores,
                self._message.gpus,
            )
            if cores is not None:
                given = replaced(given, Cores, lambda part: Cores(len(cores), cores))
            if gpus is not None:
                given = replaced(given, GPUs, lambda part: GPUs(len(gpus), gpus))
            self.present = given
        return self.present


def seed_by_chance() -> None:
    """Seed the hidden generators that the fork server had imported before it forked this process:
    all its forks would draw the same numbers. `random` does so by itself.
    """
    if (numpy := sys.modules.get("numpy.random.mtrand")) is not None:
        vars(numpy)["_rand"].seed()
    if (torch := sys.modules.get("torch")) is not None:
        vars(torch)["seed"]()


def redirect_streams(descriptors: RunnerDescriptors) -> None:
    """Make the pipes that a runner was given its standard output and error."""
    for fd, number in ((descriptors.stdout, 1), (descriptors.stderr, 2)):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = open(  # noqa: SIM115
            number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def exit_process(status: int) -> NoReturn:
    """End this process after its exit handlers: those that calls have registered, and those that
    were registered before the package was loaded, such as coverage's. Modules are not torn down,
    as at the end of a script, which takes long.
    """
    atexit._run_exitfuncs()
    _exit(status)


def _exit(status: int) -> NoReturn:
    flush_output()
    os._exit(status)


def exit_forked(error: BaseException | None) -> NoReturn:
    """End a process that user code forked, as it would have ended at the end of a script, but
    without exit handlers: those that it inherited are its parent's.
    """
    status = int(error is not None)
    try:
        if not isinstance(error, SystemExit):
            if error is not None:
                sys.excepthook(type(error), error, error.__traceback__)
        elif error.code is None or isinstance(error.code, int):
            status = (error.code or 0) & 0xFF
        else:
            sys.stderr.write(f"{error.code}\n")
    finally:  # even if user code broke any of these: the process must not go on as a runner
        _exit(status)


def flush_output() -> None:
    """Write out the buffers of Python's standard output and error. User code may have closed or
    replaced the streams.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()


def set_path_and_directory(path: list[str], directory: str) -> None:
    """Set the module search path and the working directory to the caller's. The previous call may
    have changed them.

    Raises:
        ConfigurationError: this machine does not have the directory.
    """
    if sys.path != path:
        sys.path[:] = path
    try:
        here = os.getcwd()  # noqa: PTH109 - compared with the caller's own, as text
    except OSError:  # a call has removed the directory it was in
        here = ""
    if here == directory:
        return
    try:
        os.chdir(directory)
    except OSError as error:
        raise ConfigurationError(
            f"the working directory {directory} cannot be entered on {socket.gethostname()}: "
            f"{error.strerror}",
            hint="run from a folder that every node has; where nodes share no files with this "
            "machine: shared_files=False, or gridengine worker --no-shared-files",
        ) from error
