"""A plugin for pytest: it decides where the calls of a test run, and checks that they leave nothing
behind.

pytest loads it through the entry point `pytest11`, in every session. Therefore it imports nothing
else of the package before a test uses the fixture: `docs/testing.md`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import psutil

    from gridengine.schedulers.base import Scheduler

INLINE, PROCESSES, TCP = "inline", "processes", "tcp"
WORKERS = 2
"""How many calls run at a time: the same on each machine, and enough that two can meet."""
MARK = "GRIDENGINE_TEST_MARK"
"""The environment variable by which the processes of a test's workers are recognised, also those
that have lost their parents.
"""
LEAVE_SECONDS = 5.0
"""How long processes may take to end after their scheduler is closed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    words = (
        f"where calls run in tests that use the fixture gridengine_scheduler: {INLINE} (the "
        f"default: in the test's own thread), {PROCESSES} (of this machine), {TCP} (a stand-alone "
        "dispatcher with workers on this machine), or the name of another scheduler, such as slurm"
    )
    group = parser.getgroup("gridengine")
    group.addoption("--gridengine", metavar="WHERE", default=None, help=words)
    parser.addini("gridengine", f"{words}; the option --gridengine comes first", default=INLINE)


def pytest_configure(config: pytest.Config) -> None:
    """Check the option before any test runs.

    Raises:
        pytest.UsageError: there is no such scheduler.
    """
    where = _where(config)
    if where in (INLINE, PROCESSES, TCP):
        return
    from gridengine.errors import ConfigurationError
    from gridengine.schedulers.registry import BY_NAME, entry_of

    try:
        entry_of(where)
    except ConfigurationError as error:
        names = ", ".join([TCP, *BY_NAME])
        raise pytest.UsageError(f"--gridengine: {error.message}; there are {names}") from None


def _where(config: pytest.Config) -> str:
    said: str | None = config.getoption("--gridengine")
    return said or config.getini("gridengine") or INLINE


@pytest.fixture
def gridengine_scheduler(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    """A scheduler for this test, which `--gridengine` or the ini value `gridengine` names. Calls of
    the test that name no scheduler run on it too. After the test it is closed, and the test has an
    error when a process or file of its workers is left.
    """
    where, mark = _where(request.config), f"{os.getpid()}-{os.urandom(8).hex()}"
    with contextlib.ExitStack() as stack:
        scheduler, folder = _open(stack, where, mark)
        from gridengine.schedulers.default import default_in_block

        stack.enter_context(default_in_block(scheduler, PROCESSES if where == TCP else where))
        yield scheduler
    if where in (PROCESSES, TCP) and (left := _left(mark, folder)):
        pytest.fail(
            f"of the workers of gridengine_scheduler ({where}) there are left: {'; '.join(left)}\n"
            "  try: end in the test what its calls start, and kill no process of the scheduler's",
            pytrace=False,
        )


def _open(stack: contextlib.ExitStack, where: str, mark: str) -> tuple[Scheduler, Path | None]:
    """Return a scheduler, which the stack closes, and the folder that must not exist afterwards."""
    from gridengine.schedulers.registry import entry_of

    if where == TCP:
        return _open_dispatcher(stack, mark)
    if where == PROCESSES:
        scheduler = entry_of(where).make(max_workers=WORKERS, environment={MARK: mark})
    else:
        scheduler = entry_of(where).make()
    stack.callback(scheduler.close)
    return scheduler, None


def _open_dispatcher(stack: contextlib.ExitStack, mark: str) -> tuple[Scheduler, Path]:
    from gridengine.api.client import Client
    from gridengine.api.local_dispatcher import LocalDispatcher

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, mark)
        dispatcher = stack.enter_context(LocalDispatcher(WORKERS))
    client = Client(dispatcher.address)
    stack.callback(client.close)
    return client, Path(dispatcher.address).parent


def _left(mark: str, folder: Path | None) -> list[str]:
    """Return, in words, the processes and the folder that workers with this mark have left behind
    after some time to leave.
    """
    import psutil

    _, processes = psutil.wait_procs(_marked(mark), LEAVE_SECONDS)
    left = []
    for process in processes:
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            left.append(f"the process {process.pid} ({shlex.join(process.cmdline())})")
    return left + ([f"the folder {folder}"] if folder is not None and folder.exists() else [])


def _marked(mark: str) -> list[psutil.Process]:
    """Return all processes with this mark in the environment that they were started with. Those of
    other users cannot be read, and zombies have none.
    """
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found
