"""What the I/O loop waits for, and in which order it acts; with a core, a clock, and no I/O."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.dispatcher.core.events import Closing, Event, Launch, Launched, Send, Tick
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.core.tasks import Effect, Submitted, Task
from gridengine.dispatcher.io_loop import LEAVE_SECONDS, MOST_EVENTS, WATCH_SECONDS, IOLoop
from gridengine.dispatcher.thread_queues import EventQueue
from gridengine.schedulers.launcher import Handle
from gridengine.wire.messages import VERSION, Beat, Goodbye, Hello, Message
from tests.support.core_play import GOOD, SQUARE
from tests.support.manual_clock import PATIENCE, ManualClock

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
            self.queue.post(Submitted(SQUARE, [Task(id, (b"calls",))]))

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


def test_a_loop_that_sleeps_does_what_is_due_once_its_clock_is_advanced() -> None:
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
