"""An agent keeps large buffers in blocks, and a runner maps them."""

from __future__ import annotations

import functools
import os
import socket

from gridengine.serialize import pickling
from gridengine.serialize.shared_memory import LARGE, StoredPayload
from gridengine.wire.messages import Define, Forget
from gridengine.worker.agent import Agent
from tests.unit.serialize.test_shared_memory import PAYLOAD, Array, first, open_blocks
from tests.unit.worker.test_runner import Stage


class NoForkServer:
    """A fork server that forks nothing."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        self.questions, self._theirs = socket.socketpair()

    def fileno(self) -> int:
        return self._reading

    def close(self) -> None:
        for fd in (self._reading, self._writing):
            os.close(fd)
        self.questions.close()
        self._theirs.close()


def test_an_agent_holds_what_comes_off_the_wire_in_a_block_until_it_is_forgotten() -> None:
    agent = Agent(
        lambda message, buffers: None,
        NoForkServer(),
        slots=1,
        grace_seconds=1.0,
        output_bytes=0,
        outlets=None,
    )  # type: ignore[arg-type]
    agent.handle(Define(b"f", [], b"/", len(PAYLOAD)), PAYLOAD)
    assert open_blocks() != []
    agent.handle(Forget([b"f"]))
    assert open_blocks() == []
    agent.close()


def test_a_runner_takes_large_buffers_from_the_block_and_keeps_what_it_writes_to_itself() -> None:
    stage = Stage()
    digest, payload = pickling.dump_function(
        functools.partial(first, Array(bytearray(b"x" * LARGE)))
    )
    assert isinstance(payload, StoredPayload)
    others = payload.others()
    define = Define(digest, [], os.getcwdb(), len(others), payload.block.path, payload.places)  # noqa: PTH109
    stage.assign(functools.partial(first, Array(bytearray(b"x" * LARGE))), [ord("y")])
    stage.channel.coming[0] = define, others
    stage.play()
    assert stage.values() == [ord("y")]
    assert memoryview(payload[1])[0] == ord("x")
