"""What becomes of a runner's runs, by what it sends."""

from __future__ import annotations

import errno
import io
import signal
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from gridengine.call_context.status_block import BARRED_TO, HOLD, INDEX, RUN
from gridengine.errors import CallError
from gridengine.serialize import pickling
from gridengine.serialize.payload import SINGLE, Buffer, Payload
from gridengine.serialize.shared_memory import LARGE, ResultBlocks, adopt, block_of, new_block
from gridengine.wire.messages import (
    CANCELLED,
    OUT_OF_MEMORY,
    RAISED,
    VALUES,
    Assign,
    Assignment,
    Cancel,
    Crashed,
    Define,
    Deliver,
    Fetch,
    Fetched,
    Forget,
    Keep,
    Message,
    Recall,
    Result,
    Results,
    Returned,
    Saved,
    Serves,
    Shortened,
    Started,
    Stop,
    Waits,
    input_name,
)
from gridengine.worker.runner_output import Relay
from tests.support.agent_driver import NotingForkServer, played_agent


class Slot:
    """An agent with one runner, which is only played: in run 1, with runs 2 and 3 ahead."""

    def __init__(self, **options: Any) -> None:
        self.sent: list[Message] = []
        self.agent = played_agent(lambda message, _: self.sent.append(message), **options)
        self.agent.handle(Define(b"f", [], b"/"), [b""])
        for runs in ([1], [2, 3]):
            assignments = [Assignment(run, 7, b"f", 0, 1, 0, SINGLE, buffers=0) for run in runs]
            self.agent.handle(Assign(assignments))
        (self.runner,) = self.agent.pool.runners.values()
        self.runner.status.words[RUN] = 1

    def receive(self, message: Message, buffers: Payload = ()) -> None:
        buffers = list(buffers) or [b""] * message.count_buffers()
        self.runner.channel.poll = lambda: [(message, buffers)]  # type: ignore[method-assign]
        self.agent._runner_messages.handle_runner(self.runner)


class MovingWords:
    """The words of a runner that ends its run just when the agent writes one of them."""

    def __init__(self, words: Any, written: int = BARRED_TO) -> None:
        self._words = words
        self._written = written

    def __getitem__(self, index: int) -> int:
        return self._words[index]  # type: ignore[no-any-return]

    def __setitem__(self, index: int, value: int) -> None:
        self._words[index] = value
        if index == self._written:
            self._words[RUN] = 0


@pytest.fixture
def slot() -> Iterator[Slot]:
    one = Slot()
    yield one
    one.agent.close()


def test_output_of_a_call_out_of_memory_is_logged_before_its_error(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    messages = slot.agent._runner_messages
    monkeypatch.setattr(slot.runner, "take_output", lambda: done.append("read"))
    monkeypatch.setattr(messages, "_flush_log", lambda: done.append("flushed"))
    monkeypatch.setattr(messages, "_send", lambda *_: done.append("sent"))
    slot.receive(Results([Result(1, 0, 1, OUT_OF_MEMORY, 0.1)]))
    assert done == ["read", "flushed", "sent"]


def answer(*runs: int) -> Results:
    return Results([Result(run, 0, 1, VALUES, 0.0, buffers=0) for run in runs])


@pytest.mark.linux
@pytest.mark.parametrize("sent_blocks", [None, ResultBlocks()])
def test_large_results_have_their_descriptors_only_where_clients_may_be_sent_these(
    sent_blocks: ResultBlocks | None,
) -> None:
    slot = Slot(sent_blocks=sent_blocks)
    buffer = adopt(new_block(bytes(LARGE)), LARGE)
    slot.receive(Results([Result(1, 0, 1, VALUES, 0.0)]), [buffer])
    assert (block_of(buffer) is None) == (sent_blocks is None)
    slot.agent.close()


def test_a_run_ends_with_its_last_result(slot: Slot) -> None:
    slot.receive(answer(1))
    assert list(slot.runner.given) == [2, 3]
    slot.receive(answer(2, 3))
    assert slot.sent == [answer(1), answer(2, 3)]
    assert slot.agent.pool.idle == [slot.runner]


@pytest.mark.parametrize(
    "message",
    [answer(4), Crashed(4, -1, -15, CANCELLED, 0), Saved(4, 0, 0), Stop()],
    ids=lambda one: type(one).__name__,
)
def test_a_runner_with_a_false_message_is_killed(
    message: Message,
) -> None:
    server = NotingForkServer()
    slot = Slot(server=server)
    slot.receive(message)
    assert server.signals[0][1] == signal.SIGKILL
    assert slot.runner.channel.ended
    assert not any(isinstance(one, type(message)) for one in slot.sent)
    slot.agent.close()


def test_an_agent_is_closed_once_the_output_of_its_runners_is_in_the_log() -> None:
    class Streams(list[io.BytesIO]):
        flushed = False

        def flush(self, seconds: float) -> None:
            self.flushed = True

    streams = Streams([io.BytesIO(), io.BytesIO()])
    played_agent(streams=streams, relay=Relay(lambda *_: None)).close()
    assert streams.flushed


def test_the_beginning_of_a_run_is_passed_on(slot: Slot) -> None:
    slot.receive(Started(1, 4711))
    assert slot.sent == [Started(1, 4711)]


def test_a_runner_says_which_runs_have_not_begun(slot: Slot) -> None:
    slot.runner.status.words = MovingWords(slot.runner.status.words)  # type: ignore[assignment]
    slot.agent.handle(Recall([2]))
    assert slot.sent == []
    for run in (2, 3):
        slot.receive(Returned([run]))
    assert slot.sent == [Returned([2])]
    slot.receive(answer(1))
    assert list(slot.runner.given) == [3]  # which nobody wanted back


@pytest.mark.parametrize("index", [0, 20, 198])
def test_calls_behind_the_present_one_can_be_taken_back(index: int, slot: Slot) -> None:
    slot.receive(answer(1))
    slot.receive(answer(2, 3))
    slot.agent.handle(Assign([Assignment(4, 7, b"f", 0, 200, 0, SINGLE, buffers=0)]))
    slot.runner.status.words[INDEX], slot.runner.status.words[RUN] = index, 4
    slot.agent.handle(Recall([4]))
    assert slot.sent[-1] == Shortened(4, index + 1)


def test_a_run_that_was_cancelled_when_its_runner_had_just_skipped_it_begins_nowhere(
    slot: Slot,
) -> None:
    slot.runner.status.words = MovingWords(slot.runner.status.words)  # type: ignore[assignment]
    slot.agent.handle(Recall([2]))
    slot.agent.handle(Cancel([3], signal.SIGTERM))
    for run in (2, 3):
        slot.receive(Returned([run]))
    assert slot.sent == [Returned([2]), Crashed(3, -1, -signal.SIGTERM, CANCELLED, 0)]
    slot.receive(answer(1))
    assert slot.runner.given == {}


def test_a_runner_that_leaves_a_cancelled_run_just_then_is_not_ended_in_another(slot: Slot) -> None:
    slot.agent.handle(Cancel([2], signal.SIGTERM))
    slot.runner.status.words[RUN] = 2  # as while it looks whether it is to begin that
    slot.runner.status.words = MovingWords(slot.runner.status.words, HOLD)  # type: ignore[assignment]
    slot.agent.tick(0.0)
    assert slot.runner.ending is None
    assert slot.runner.status.words[HOLD] == 2


LARGE_PAYLOAD = [b"pickle", b"x" * LARGE]


class Holder(Slot):
    """An agent where large results stay; with the buffers of what it sent."""

    def __init__(self) -> None:
        super().__init__()
        self.agent._runner_messages.holds_results = True
        self.agent._send = self.agent._runner_messages._send = self.send  # type: ignore[method-assign]
        self.buffers: list[list[Buffer]] = []

    def send(self, message: Message, buffers: Payload) -> None:
        self.sent.append(message)
        self.buffers.append(list(buffers))

    def returns(self, run: int, payload: Payload) -> None:
        self.receive(Results([Result(run, 0, 1, VALUES, 0.0, buffers=len(payload))]), payload)

    def change(self, run: int, **changes: object) -> None:
        given = self.runner.given
        given[run] = msgspec.structs.replace(given[run], **changes)


@pytest.fixture
def holder() -> Iterator[Holder]:
    one = Holder()
    yield one
    one.agent.close()


def held(run: int, reference: int) -> Results:
    size = len(LARGE_PAYLOAD[0]) + LARGE
    return Results([Result(run, 0, 1, VALUES, 0.0, buffers=0, held=(reference, size))])


def test_a_large_result_that_others_need_stays_until_it_is_asked_for(holder: Holder) -> None:
    holder.change(1, kept=[(0, 7)])
    holder.returns(1, LARGE_PAYLOAD)
    assert (holder.sent, holder.buffers) == ([held(1, 7)], [[]])
    for count in (2, 0):  # the second time it lies there, too
        holder.agent.handle(Fetch([input_name(7)]))
        assert holder.sent[-1] == Fetched(input_name(7), count)
        assert holder.buffers[-1] == LARGE_PAYLOAD[: count or 0]


def test_others_can_get_a_result_before_the_dispatcher_knows_where_it_is(holder: Holder) -> None:
    serves = Serves(["tcp://host:1"], "key")
    holder.agent._definitions.when_held = lambda: holder.send(serves, [])
    holder.change(1, kept=[(0, 7)])
    holder.returns(1, LARGE_PAYLOAD)
    assert holder.sent == [serves, held(1, 7)]


def test_a_result_wanted_after_its_assignment_stays(holder: Holder) -> None:
    holder.agent.handle(Keep(1, 0, 7))
    holder.returns(1, LARGE_PAYLOAD)
    assert holder.sent == [held(1, 7)]
    holder.agent.handle(Keep(2, 0, 8))
    holder.returns(2, [b"find_class", b"x" * LARGE])  # which the caller alone can load
    assert holder.buffers[-1] == [b"find_class", b"x" * LARGE]


def test_small_and_single_run_results_go_on_at_once(holder: Holder) -> None:
    holder.change(1, kept=[(0, 7)])
    holder.change(2, kept=[(0, 8)], once=True)
    holder.returns(1, [b"small"])
    holder.returns(2, LARGE_PAYLOAD)
    assert holder.buffers == [[b"small"], LARGE_PAYLOAD]


def test_a_leaving_worker_hands_over_its_results_and_keeps_no_more(holder: Holder) -> None:
    for run, reference in ((1, 7), (2, 8), (3, 9)):
        holder.change(run, kept=[(0, reference)])
    holder.returns(1, LARGE_PAYLOAD)
    holder.returns(2, LARGE_PAYLOAD)
    holder.agent.handle(Forget([input_name(8)]))
    holder.agent.hand_over()
    assert holder.sent[-1] == Fetched(input_name(7), 2)
    holder.returns(3, LARGE_PAYLOAD)
    assert holder.buffers[-1] == LARGE_PAYLOAD


def test_a_full_store_is_an_error_of_the_call(
    holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(ResultBlocks, "keep", Mock(side_effect=full))
    holder.change(1, kept=[(0, 7)])
    holder.returns(1, LARGE_PAYLOAD)
    [message], [payload] = holder.sent, holder.buffers
    assert isinstance(message, Results)
    assert message.results[0].status == RAISED
    error = pickling.load_exception(payload)
    assert isinstance(error, CallError)
    assert "No space left on device" in error.message


def test_a_message_for_a_run_goes_to_its_runner_alone() -> None:
    slot = Slot()
    slot.runner.channel.send = Mock(return_value=True)  # type: ignore[method-assign]
    slot.agent.handle(Deliver(9, 1), [b"for a run that has ended"])
    slot.agent.handle(Deliver(1, 2), [b"head", b"rest"])
    slot.runner.channel.send.assert_called_once_with(Deliver(1, 2), [b"head", b"rest"])


def test_a_runner_may_give_back_the_slot_of_its_run_without_having_made_calls() -> None:
    slot = Slot()
    slot.receive(Waits(slot.runner.id, 1))
    slot.receive(Waits(slot.runner.id, 1))
    assert [one for one in slot.sent if isinstance(one, Waits)] == [Waits(slot.runner.id, 1)]
    assert slot.runner.waits_in == 1
    slot.runner.kill = Mock()  # type: ignore[method-assign]
    slot.receive(Waits(slot.runner.id + 1, 1))
    slot.runner.kill.assert_called_once_with()
