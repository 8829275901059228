"""This package's dispatcher in a process of its own, as a client has it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil

import gridengine
from benchmarks.peers.base import Call
from benchmarks.peers.ours import Ours
from gridengine.dispatcher.standalone import background


class OurClient(Ours):
    """`Client` of a `LocalDispatcher`, over TCP."""

    def make_scheduler(self) -> gridengine.schedulers.Scheduler:
        self.dispatcher = gridengine.LocalDispatcher(n_workers=self.workers)
        file = Path(self.dispatcher.address)
        # Its clients are to wait for the next one, as those of `gridengine dispatcher start` do.
        file.write_text(json.dumps({**json.loads(file.read_text()), "returns": True}))
        return gridengine.Client(self.dispatcher.address)

    @property
    def process(self) -> psutil.Process:
        """The dispatcher's."""
        return psutil.Process(json.loads(Path(self.dispatcher.address).read_text())["pid"])

    def hand_in(self, f: Call, xs: Sequence[object]) -> list[object]:
        """Return the futures of calls that the dispatcher has on disk."""
        futures = [self.submit(f, x) for x in xs]
        assert isinstance(self.scheduler, gridengine.Client)
        assert self.scheduler.flush(), "the dispatcher has no journal"
        return futures

    def close(self) -> None:
        super().close()
        self.dispatcher.close()


class OurClientOfTen(OurClient):
    """The same with ten workers."""

    def __init__(self, workers: int) -> None:
        super().__init__(10)


def start_again(dispatcher: gridengine.LocalDispatcher) -> None:
    """Kill a dispatcher, and start the next of its folder."""
    folder = dispatcher._folder
    pid = json.loads(folder.client_file.read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    assert dispatcher._process is not None
    dispatcher._process.wait()
    with contextlib.closing(folder.take_lock()) as lock:
        dispatcher._process = background.start(folder, lock)
