"""A stand-alone dispatcher in this process."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import gridengine
from gridengine.dispatcher.io_loop import IOLoop
from gridengine.dispatcher.standalone.serve import serve
from gridengine.errors import GridEngineError
from gridengine.settings.values import settings
from tests.support.waiting import wait_until


def test_a_dispatcher_whose_thread_fails_ends_so_that_it_can_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(loop: IOLoop) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(IOLoop, "run", fail)
    with (
        gridengine.ProcessScheduler(max_workers=1) as scheduler,
        pytest.raises(GridEngineError, match="a fault of ours"),
    ):
        serve(tmp_path / "night", scheduler, settings())
    assert not (tmp_path / "night" / "client.json").exists()


@pytest.fixture
def stopped() -> Iterator[threading.Event]:
    """What a signal sets."""
    event = threading.Event()
    before = signal.signal(signal.SIGUSR2, lambda *_: event.set())
    yield event
    signal.signal(signal.SIGUSR2, before)


def test_a_signal_that_another_thread_is_given_ends_it(
    tmp_path: Path, stopped: threading.Event
) -> None:
    main, in_time = threading.get_ident(), list[bool]()

    def send() -> None:
        wait_until(lambda: sys._current_frames()[main].f_code.co_name == "wait")
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)
        in_time.append(stopped.wait(60))
        stopped.set()

    sender = threading.Thread(target=send)
    with gridengine.ProcessScheduler(max_workers=1) as scheduler:
        serve(tmp_path / "night", scheduler, settings(), stopped=stopped, ready=sender.start)
    sender.join()
    assert in_time == [True]
