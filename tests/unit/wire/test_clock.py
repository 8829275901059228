"""The machine's clock, and the one that tests advance."""

from __future__ import annotations

import threading
import time

from gridengine.wire.clock import SYSTEM_CLOCK
from tests.support.manual_clock import PATIENCE, ManualClock


def test_a_call_of_the_machines_clock_is_no_python_call() -> None:
    assert SYSTEM_CLOCK.monotonic is time.monotonic
    assert SYSTEM_CLOCK.at is float


def test_a_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(50.0)
    assert clock.monotonic() == clock.monotonic() == 50.0
    clock.advance(60.0)
    assert clock.monotonic() == 110.0


def test_times_of_other_processes_are_told_by_a_manual_clock() -> None:
    clock = ManualClock(50.0)
    before = time.monotonic()
    clock.advance(60.0)
    after = time.monotonic()
    clock.advance(60.0)
    assert [clock.at(noted) for noted in (0.0, before, after, time.monotonic())] == [
        50.0,
        50.0,
        110.0,
        170.0,
    ]


def test_advancing_wakes_each_loop_and_waits_until_it_has_read_the_time() -> None:
    clock, seen = ManualClock(0.0), list[float]()
    woken, waits = threading.Semaphore(0), threading.Event()

    def loop() -> None:
        with clock.waking(woken.release):
            waits.set()
            while not seen or seen[-1] < 3.0:
                woken.acquire()
                seen.append(clock.monotonic())

    thread = threading.Thread(target=loop)
    thread.start()
    assert waits.wait(PATIENCE)
    for _ in range(3):
        clock.advance(1.0)
    thread.join(PATIENCE)
    assert seen == [1.0, 2.0, 3.0]
    clock.advance(1.0)  # a loop that has ended is not waited for
