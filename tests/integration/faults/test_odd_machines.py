"""Machines and accounts that lack what is nearly always there: each says so in one line, with the
remedy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import pytest

from tests.support.processes import completed

SCRIPT = """
import os, resource, sys
from gridengine import GridEngineError, ProcessScheduler, map
{before}
try:
    with ProcessScheduler(max_workers=2) as scheduler:
        print(map(abs, [-1], scheduler=scheduler))
except GridEngineError as error:
    print(type(error).__name__, error)
"""


def said(before: str, *, around: Sequence[str] = ()) -> str:
    """Return what a script prints that runs one call after this preparation."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*around, sys.executable, "-c", SCRIPT.format(before=before)]
    done = completed(command, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become a user of whom nothing runs yet")
def test_the_error_of_too_few_processes_has_the_limit() -> None:
    # that user may not be able to read it
    load = "with ProcessScheduler(max_workers=1) as scheduler: map(abs, [-1], scheduler=scheduler)"
    become = "os.setresgid(64123, 64123, 64123); os.setresuid(64123, 64123, 64123)"
    words = said(f"{load}\nresource.setrlimit(resource.RLIMIT_NPROC, (1, 1)); {become}")
    assert "ConfigurationError this process may not start 4 more threads" in words
    assert "no more than 1" in words
    assert "ulimit -u" in words


def test_the_error_of_too_few_addresses_for_threads_has_the_limit() -> None:
    # Each thread reserves addresses for its stack: there is room for three more.
    full = (
        "import re, threading; import gridengine.api.map, gridengine.dispatcher.io_thread\n"
        "threading.stack_size(1 << 30)\n"
        "size = 1024 * int(re.search(r'VmSize:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "limit = size + (7 << 29)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))"
    )
    words = said(full)
    assert "ConfigurationError this process may not start 4 more threads" in words
    assert "`ulimit -v`" in words
