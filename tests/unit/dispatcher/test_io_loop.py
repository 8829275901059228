"""What the I/O loop waits for, and in which order it acts; with a core, a clock, and no I/O."""

from __future__ import annotations

import logging
import select
import threading
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.dispatcher import io_loop
from gridengine.dispatcher.core.events import (
    Closing,
    Event,
    Explain,
    Grant,
    Inform,
    Launch,
    Launched,
    Lost,
    ResultFetched,
    ResultStays,
    Send,
    Tick,
    Warn,
    Withdraw,
)
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.io_loop import (
    LEAVE_SECONDS,
    MOST_EVENTS,
    MOST_LINES,
    WATCH_SECONDS,
    EffectPerformer,
    IOLoop,
    PayloadsAtWorkers,
)
from gridengine.dispatcher.serving.clients import Clients
from gridengine.dispatcher.thread_queues import EventQueue
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.errors import Cancelled
from gridengine.requests import (
    CallsFinished,
    Effect,
    ResultData,
    ResultWanted,
    Submitted,
    TaskBegan,
    TaskMessage,
    WantAnswered,
)
from gridengine.resources import Cores, Memory, Ranks
from gridengine.resources.base import Resource
from gridengine.schedulers.launcher import Handle
from gridengine.serialize import pickling
from gridengine.serialize.payload import PayloadAtWorker
from gridengine.wire.messages import VERSION, Allocate, Beat, Goodbye, Hello, Message
from tests.support.core_play import GOOD, SQUARE
from tests.support.manual_clock import PATIENCE, ManualClock
from tests.support.tasks import make_task

LOG = "/runs/x/1.log"
HELLO = Hello(VERSION, "1", "3.11", "run", "node7", 7, 1, LOG)


class World:
    """All that is around the loop. Whenever that waits, the next of `acts` happens; after the last
    the dispatcher is closed.
    """

    def __init__(self) -> None:
        self.clock = ManualClock(100.0)
        self.acts: list[Callable[[], object]] = []
        self.waited: list[float | None] = []
        """For how many seconds it was ready to wait, each time."""
        self.inbox: list[tuple[bytes, Message, tuple[()]]] = []
        self.handled: list[Event] = []
        self.performed: list[Effect] = []
        self.polled: list[tuple[float, int]] = []
        self.watched = 0
        self.deadline = float("inf")
        self.queue = EventQueue[Event]()
        core = StateMachine(Policy(max_workers=2, **GOOD))  # type: ignore[arg-type]
        self.state = core.state
        handle = core.handle

        def noted(event: Event, now: float) -> list[Effect]:
            self.handled.append(event)
            return handle(event, now)

        core.handle = noted  # type: ignore[method-assign]
        effects: Any = SimpleNamespace(perform=self.performed.extend, recent=None, sent={})
        launcher: Any = SimpleNamespace(
            poll=lambda handles: self.polled.append((self.clock.monotonic(), len(handles)))
        )
        link: Any = self
        self.loop = IOLoop(
            core,
            self.queue,
            link,
            launcher,
            effects,
            link,
            5.0,
            self.open_watch,
            clock=self.clock,
        )

    # The link, and its poller

    @property
    def poller(self) -> World:
        return self

    def register(self, fd: int, mask: int) -> None: ...

    def poll(self, milliseconds: int | None = None) -> list[tuple[int, int]]:
        self.waited.append(None if milliseconds is None else milliseconds / 1000)
        act = self.acts.pop(0) if self.acts else self.close
        before = self.queue.sleeping
        act()
        woken = before and not self.queue.sleeping
        return [(self.queue.fd, 1)] if woken else []

    def receive(
        self, ready: Iterable[int], now: float, most: int
    ) -> list[tuple[bytes, Message, tuple[()]]]:
        inbox, self.inbox = self.inbox, []
        return inbox

    def open_watch(self) -> None:
        self.watched += 1

    # What happens

    def close(self) -> None:
        self.queue.post(Closing())
        self.later(LEAVE_SECONDS)

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def say(self, *messages: Message) -> None:
        self.inbox += [(b"w", message, ()) for message in messages]

    def submit(self, *ids: int) -> None:
        for id in ids:
            self.queue.post(Submitted(SQUARE, [make_task(id, (b"calls",))]))

    def run(self, *acts: Callable[[], object]) -> None:
        self.acts = list(acts)
        self.loop.run()

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.handled]


@pytest.fixture
def world() -> World:
    return World()


def test_with_nothing_to_do_it_sleeps_until_it_is_woken(world: World) -> None:
    world.run(lambda: None, lambda: world.later(WATCH_SECONDS))
    assert world.waited == [0, pytest.approx(WATCH_SECONDS), None]
    assert world.watched == 1


def test_while_there_is_something_to_look_after_it_does_so_four_times_a_second(
    world: World,
) -> None:
    world.run(lambda: world.submit(1), lambda: world.later(0.25), lambda: world.later(0.25))
    assert world.waited == [0, 0.25, 0.25, 0.25]
    assert world.kinds()[:4] == ["Submitted", "Tick", "Tick", "Tick"]


def test_the_core_is_told_for_how_long_this_process_was_stopped(world: World) -> None:
    world.run(lambda: world.submit(1), lambda: world.later(1.0), lambda: world.later(600.25))
    ticks = [event.late for event in world.handled if isinstance(event, Tick)]
    assert ticks[:3] == [0.0, 0.0, pytest.approx(600.0)]


def test_the_core_is_told_for_how_long_messages_may_have_waited_unread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def next_second(*messages: Message) -> Callable[[], None]:
        return lambda: (world.later(1.0), world.say(*messages))[0]

    world.run(lambda: world.submit(1), lambda: world.say(HELLO))
    world.state.workers |= dict.fromkeys((b"v", b"u"), world.state.workers[b"w"])
    world.state.closing = False
    monkeypatch.setattr(io_loop, "MOST_MESSAGES", 1)
    world.handled.clear()
    world.run(next_second(), *[next_second(Beat())] * 6, next_second())
    ticks = [event.unread for event in world.handled if isinstance(event, Tick)]
    assert ticks[:8] == [0, 1, 2, 3, 4, 5, 3, 0]


def test_messages_may_wait_unread_though_the_link_has_passed_on_few(world: World) -> None:
    world.run(lambda: world.submit(1), lambda: world.say(HELLO))
    world.state.closing = False
    world.handled.clear()
    world.deadline = 0.0  # it took others itself, such as output, and has more
    world.run(*[lambda: world.later(1.0)] * 3)
    ticks = [event.unread for event in world.handled if isinstance(event, Tick)]
    assert ticks[:3] == [1, 2, 3]


def test_the_links_deadline_is_kept(world: World) -> None:
    world.deadline = 100.125
    world.run(lambda: None)
    assert world.waited[1] == 0.125


def test_posted_events_come_before_messages_and_both_before_time(world: World) -> None:
    def all_at_once() -> None:
        world.submit(1)
        world.say(HELLO)

    world.run(all_at_once)
    assert world.kinds()[:3] == ["Submitted", "Received", "Tick"]


def test_a_few_of_many_submissions_are_handled_before_messages(world: World) -> None:
    done: list[Any] = []

    def all_at_once() -> None:
        world.submit(*range(1, MOST_EVENTS + 2))
        world.say(HELLO)
        done.append(world.queue.barrier())

    world.run(all_at_once, lambda: done.append(done[0].is_set()))
    kinds = world.kinds()
    assert kinds.index("Received") == MOST_EVENTS
    assert kinds.count("Submitted") == MOST_EVENTS + 1
    assert done[1] is False  # not all that was posted before had been handled
    assert done[0].is_set()
    assert world.waited[1] == 0


def test_messages_are_counted_by_kind(world: World) -> None:
    world.run(lambda: world.say(HELLO, Beat(), Beat()))
    assert world.loop.received == {Hello: 1, Beat: 2}


def test_the_launcher_is_asked_for_states_now_and_then(world: World) -> None:
    world.run(
        lambda: world.submit(1),
        lambda: world.queue.post(Launched([Handle("41", LOG)])),
        *[lambda: world.later(1.0)] * 11,
    )
    times = [now - 100.0 for now, _ in world.polled]
    assert times == [0.0, 5.0, 10.0]
    assert world.polled[-1][1] == 1


def test_a_submission_wakes_the_sleeping_loop(world: World) -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(world.loop.snapshot.waiting)

    def submit() -> None:
        look()
        world.submit(1)

    world.run(lambda: None, submit, look)
    assert seen == [0, 1]
    assert world.waited == [0, pytest.approx(WATCH_SECONDS), 0.25, 0.25]
    assert any(isinstance(effect, Launch) for effect in world.performed)


def test_the_loop_ends_once_the_workers_have_left(world: World) -> None:
    world.run(
        lambda: world.say(HELLO),
        lambda: world.queue.post(Closing()),
        lambda: world.say(Goodbye("told to stop", [])),
    )
    assert any(isinstance(effect, Send) for effect in world.performed)
    assert world.clock.monotonic() == 100.0
    assert not world.state.workers


def test_workers_that_do_not_leave_are_not_waited_for(world: World) -> None:
    world.run(
        lambda: world.say(HELLO),
        lambda: world.queue.post(Closing()),
        lambda: world.later(LEAVE_SECONDS / 2),
        lambda: world.later(LEAVE_SECONDS / 2),
    )
    assert world.state.workers
    assert world.acts == []
    assert isinstance(world.handled[-1], Tick)


class Sleeper(World):
    """One whose loop really waits, in a thread of its own."""

    poller = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.poller = select.poll()  # type: ignore[assignment]
        self.due = threading.Event()

    def receive(
        self, ready: Iterable[int], now: float, most: int
    ) -> list[tuple[bytes, Message, tuple[()]]]:
        if now >= self.deadline:
            self.deadline = float("inf")
            self.due.set()
        return []


def test_a_sleeping_loop_does_due_work_once_its_clock_is_advanced() -> None:
    world = Sleeper()
    world.deadline = 100.0 + 24 * 3600.0
    thread = threading.Thread(target=world.loop.run)
    thread.start()
    assert world.queue.barrier().wait(PATIENCE)  # it has begun
    world.clock.advance(24 * 3600.0)
    assert world.due.wait(PATIENCE)
    world.queue.post(Closing())
    thread.join(PATIENCE)
    assert not thread.is_alive()


class Recorder:
    """Takes the place of a link, a launcher and a listener: records what is called."""

    daemon = True

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


def no_clients(recorder: Any) -> Clients:
    """Return the processes whose calls make calls, of which there are none."""
    state, nothing = CoreState(Policy()), UnsettledTasks()
    return Clients(state, recorder.send, recorder.post, nothing, recorder.check, slots=1)


def performer(held: Resource | None = None) -> tuple[EffectPerformer, Recorder, Recorder]:
    recorder: Any = Recorder()
    listener: Any = Recorder()
    unsettled = UnsettledTasks()
    unsettled.add([make_task(1, [], 2)], listener)
    return (
        EffectPerformer(recorder, recorder, unsettled, held, {}, no_clients(recorder), recorder),
        recorder,
        listener,
    )


def test_each_effect_goes_to_its_receiver() -> None:
    one, recorder, listener = performer()
    handle = Handle("4711")
    finished = CallsFinished(1, 0, 1, [])
    started, message = TaskBegan(1, 5, "here", 1), TaskMessage(1, [b"x"])
    one.perform(
        [
            Send(b"a", Beat()),
            Lost(b"a"),
            Launch(3),
            Withdraw([handle]),
            Explain([handle], 2.0),
            started,
            message,
            finished,
        ]
    )
    assert recorder.calls == [
        ("send", b"a", Beat(), ()),
        ("forget", b"a"),
        ("launch", Launch(3)),
        ("cancel", [handle]),
        ("explain", [handle], 2.0),
    ]
    assert listener.calls == [("began", started), ("noted", message), ("settled", finished)]


def test_a_missing_result_is_told_once() -> None:
    recorder: Any = Recorder()
    wanted = {one: (ResultWanted(1, 0, one), partial(recorder.missing, one)) for one in (5, 6)}
    clients = no_clients(recorder)
    one = EffectPerformer(recorder, recorder, UnsettledTasks(), None, wanted, clients, recorder)
    one.perform([WantAnswered(5, missing=True), WantAnswered(6, missing=False)])
    assert recorder.calls == [("missing", 5)]
    assert wanted == {}


def test_messages_about_a_settled_task_are_dropped() -> None:
    one, _, listener = performer()
    one.perform([CallsFinished(1, 0, 2, [], last=True)])
    listener.calls.clear()
    one.perform([TaskBegan(1, 5, "here", 1), TaskMessage(1, []), CallsFinished(1, 0, 2, [])])
    assert listener.calls == []


def test_the_last_lines_of_the_log_are_kept_in_their_order() -> None:
    one = performer()[0]
    one.perform([(Warn if number % 2 else Inform)(str(number)) for number in range(MOST_LINES + 2)])
    assert [(text, warning) for _, text, warning in one.recent] == [
        (str(number), number % 2 == 1) for number in range(2, MOST_LINES + 2)
    ]
    times = [time for time, _, _ in one.recent]
    assert times == sorted(times)


def test_a_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gridengine"):
        performer()[0].perform([Warn("100 % full")])
    assert "100 % full" in caplog.text


@pytest.mark.parametrize(
    ("held", "exact"),
    [(None, False), (Cores(2), False), (Cores(2, [4, 6]), True), (Memory(1), False)],
)
def test_a_grant_names_the_cores_and_whether_they_are_the_machine_s_own_numbers(
    held: Resource | None, exact: bool
) -> None:
    one, recorder, _ = performer(held)
    given = Cores(2, [0, 1]) & Memory(1)
    one.perform([Grant(b"a", 7, given, 2)])
    [(_, worker, message, payload)] = recorder.calls
    assert (worker, message.allocation, message.slots, list(message.cores)) == (b"a", 7, 2, [0, 1])
    assert (message.exact, message.failed, message.gpus) == (exact, False, None)
    assert pickling.load(payload) == given


@pytest.mark.parametrize(
    ("given", "cores", "threads"),
    [
        (Ranks(2), None, 1),
        (Ranks(2) & Cores(4), None, 4),
        (Ranks(2) & Cores(4, [0, 1, 2, 3]), [0, 1, 2, 3], 2),
        (Cores(1, [3]), [3], 0),
    ],
    ids=repr,
)
def test_a_grant_to_ranks_says_how_many_threads_each_may_have(
    given: Resource, cores: list[int] | None, threads: int
) -> None:
    one, recorder, _ = performer()
    one.perform([Grant(b"a", 7, given, 4)])
    [(_, _, message, _)] = recorder.calls
    assert (message.cores, message.threads) == (cores, threads)


def test_an_error_of_a_user_s_kind_travels_in_place_of_the_grant() -> None:
    class Broken(Cores):
        def __reduce__(self) -> Any:
            raise ValueError("a fault of mine")

    one, recorder, _ = performer()
    one.perform([Grant(b"a", 7, Broken(1, [0]), 1)])
    [(_, _, message, payload)] = recorder.calls
    assert isinstance(message, Allocate)
    assert message.failed
    assert "a fault of mine" in str(pickling.load_exception(payload))


def kept(
    answer: Callable[[PayloadsAtWorkers, int], Any],
) -> tuple[PayloadsAtWorkers, PayloadAtWorker, list[Any]]:
    """Return all payloads, one of them, and what is asked for and released; a request is answered
    so.
    """
    said: list[Any] = []

    def ask(reference: int) -> None:
        said.append(reference)
        answer(payloads, reference)

    payloads = PayloadsAtWorkers(ask, said.append)
    payload = PayloadAtWorker(7, 100, b"w")
    payloads.add(ResultStays(payload))
    return payloads, payload, said


def fill(data: ResultData) -> Callable[[PayloadsAtWorkers, int], Any]:
    return lambda payloads, reference: payloads.fill(ResultFetched(reference, data))


def test_a_payload_is_asked_for_once_and_released_when_nobody_has_it() -> None:
    _, payload, said = kept(fill(ResultData([b"bytes"])))
    assert payload.fetch() == pickling.fetched(payload) == [b"bytes"]
    assert said == [7]
    del payload
    assert said == [7, (7,)]


def test_the_error_of_making_a_payload_again_is_raised() -> None:
    raised = ResultData(pickling.dump_exception(OSError("once")), raised=True)
    _, payload, _ = kept(fill(raised))
    with pytest.raises(OSError, match="once"):
        payload.fetch()
    _, payload, _ = kept(fill(ResultData(error=Cancelled("ended"))))
    with pytest.raises(Cancelled, match="ended"):
        payload.fetch()


def test_the_arrival_of_a_payload_can_be_awaited() -> None:
    payloads, payload, said = kept(lambda payloads, reference: None)
    assert payload.when_here is not None
    assert payload.when_here(lambda: said.append("here"))
    assert said == [7]
    fill(ResultData([b"bytes"]))(payloads, 7)
    assert said == [7, "here"]
    assert not payload.when_here(lambda: said.append("again"))
    assert said == [7, "here"]


def test_after_the_close_arrived_outcomes_are_there_and_nobody_waits() -> None:
    payloads, payload, said = kept(lambda payloads, reference: None)
    fill(ResultData([b"bytes"]))(payloads, 7)
    payloads.close(Cancelled("closed"))
    assert payload.fetch() == [b"bytes"]
    payloads, payload, said = kept(lambda payloads, reference: None)
    payloads.close(Cancelled("closed"))
    with pytest.raises(Cancelled, match="closed"):
        payload.fetch()
    del payload
    assert said == []
