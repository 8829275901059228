"""A real fork server, driven without an agent."""

from __future__ import annotations

import os
import select
import threading

from gridengine.worker.forkserver import Exited, Forked, ForkServer, RunnerDescriptors

RUNNERS = 1000


def test_a_thousand_commands_are_taken_while_nobody_reads_their_results() -> None:
    fork_server = ForkServer.fork_off(lambda ends: os._exit(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    ends = RunnerDescriptors(channel=nothing, stdout=nothing, stderr=nothing, words=nothing)
    commanding = threading.Thread(
        target=lambda: [fork_server.fork(number, ends) for number in range(RUNNERS)], daemon=True
    )
    commanding.start()
    commanding.join(200)
    assert not commanding.is_alive(), "it waits for a fork server that waits for it"
    events: list[object] = []
    while sum(isinstance(event, Exited) for event in events) < RUNNERS:
        assert select.select([fork_server], [], [], 200)[0]
        events += fork_server.receive()
    assert [event.runner for event in events if isinstance(event, Forked)] == list(range(RUNNERS))
    assert {event.runner for event in events if isinstance(event, Exited)} == set(range(RUNNERS))
    fork_server.close()
    os.close(nothing)
