"""Results on their way to the agent: whose they are, and when they are pickled."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gridengine.wire.messages import Results
from gridengine.worker import result_buffer
from gridengine.worker.result_buffer import ResultBuffer
from tests.support.runner_driver import ScriptedChannel


class WatchedList(list[object]):
    """Values that, when some are taken out, have another thread go on for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.taken_out, self.gone_on = threading.Event(), threading.Event()

    def __delitem__(self, index: Any) -> None:
        super().__delitem__(index)
        self.taken_out.set()
        self.gone_on.wait(0.2)  # in vain, where the other waits for the lock, as it should


def spans(channel: ScriptedChannel) -> list[tuple[int, int, int]]:
    return [
        (result.run, result.start, result.stop)
        for message, _ in channel.sent
        if isinstance(message, Results)
        for result in message.results
    ]


def test_values_that_the_backstop_takes_are_those_of_their_own_run() -> None:
    channel = ScriptedChannel()
    buffer = ResultBuffer(channel)  # type: ignore[arg-type]
    buffer.values = values = WatchedList()

    def take() -> None:
        with buffer._lock:
            buffer._send_for_a_long_call()

    buffer.begin(1, 0)
    values.append("of run 1")
    backstop = threading.Thread(target=take)
    backstop.start()
    assert values.taken_out.wait(30)
    buffer.end()
    buffer.begin(2, 7)
    values.gone_on.set()
    backstop.join()
    values.append("of run 2")
    buffer.end()
    buffer.flush()
    assert spans(channel) == [(1, 0, 1), (2, 7, 8)]


@pytest.mark.parametrize("take", ["end", "_send_for_a_long_call"])
def test_values_that_are_pickled_apart_share_the_time_that_they_took(
    take: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = ScriptedChannel()
    buffer = ResultBuffer(channel)  # type: ignore[arg-type]
    buffer.begin(1, 0, apart=True)
    began = buffer.ended
    buffer.values += ["a", "b", "c", "d"]
    monkeypatch.setattr(result_buffer, "monotonic", lambda: began + 4.0)
    buffer.ended = began + 4.0
    getattr(buffer, take)()
    buffer.flush()
    [(message, _)] = channel.sent
    assert isinstance(message, Results)
    assert [one.seconds for one in message.results] == pytest.approx([1.0] * 4)


def test_the_rest_of_a_run_is_sent_with_the_next_message() -> None:
    channel = ScriptedChannel()
    buffer = ResultBuffer(channel)  # type: ignore[arg-type]
    for run in (1, 2, 3):
        buffer.begin(run, 0)
        buffer.values.append(run)
        buffer.end()
    assert spans(channel) == []
    buffer.flush()
    assert len(channel.sent) == 1
    assert spans(channel) == [(1, 0, 1), (2, 0, 1), (3, 0, 1)]


def test_the_backstop_calls_the_stride_to_look_during_a_batch() -> None:
    looked = threading.Event()
    buffer = ResultBuffer(ScriptedChannel(), looked.set)  # type: ignore[arg-type]
    buffer.begin_batch()
    assert looked.wait(30)
    buffer.end_batch()
