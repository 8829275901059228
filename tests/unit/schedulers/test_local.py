"""Workers of this machine, without any."""

from __future__ import annotations

import pytest

from gridengine.schedulers import ProcessScheduler
from gridengine.schedulers.local import FORK_SERVER
from gridengine.schedulers.worker_command import interpreter_flags

pytestmark = pytest.mark.usefixtures("here")


def test_a_dry_run_of_processes_shows_their_command_line() -> None:
    (argv,) = ProcessScheduler(2).dry_run().request.values()
    assert isinstance(argv, list)
    assert argv[1:] == [
        *interpreter_flags(),
        "-P",
        "-c",
        FORK_SERVER,
        "SOCKET",
    ]
