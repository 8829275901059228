"""What scripts of the tests do at Ctrl-C, however the tests were started."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.interrupts import take_interrupts


@pytest.fixture
def ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ignored")
def test_a_script_ends_at_ctrl_c_though_the_tests_were_started_with_sigint_ignored() -> None:
    take_interrupts()
    code = "import signal; signal.raise_signal(signal.SIGINT)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGINT
