"""What several threads share: objects that there are once, and groups of objects that live."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import signal
import sys
import threading

import pytest

from gridengine.threads import PIECE_SECONDS, LiveObjects, in_pieces, once, wait_for
from tests.support.processes import completed


class One:
    """May be referred to weakly."""


def test_threads_that_ask_first_at_the_same_time_get_one_object() -> None:
    made, found = list[object](), list[object]()
    both = threading.Barrier(2)

    @once
    def find() -> object:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.1)  # a second thread would come here too
        made.append(object())
        return made[-1]

    threads = [threading.Thread(target=lambda: found.append(find())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is find()
    assert len(made) == 1


def test_an_object_may_join_while_the_others_are_looked_through() -> None:
    first, second, third = One(), One(), One()
    group = LiveObjects[One]()
    group.add(first)
    group.add(second)
    found = iter(group)
    next(found)
    group.add(third)
    group.discard(second)
    assert list(found) == [second]  # no longer there, and yet alive
    assert set(group) == {first, third}


def test_an_object_that_nobody_has_any_more_leaves_its_group() -> None:
    group, one = LiveObjects[One](), One()
    group.add(one)
    assert one in group
    assert One() not in group
    assert None not in group
    del one
    gc.collect()
    assert not list(group)


def test_a_wait_without_a_limit_runs_python_code_again_and_again() -> None:
    pieces = list[float]()

    def wait(piece: float) -> bool:
        pieces.append(piece)
        return len(pieces) == 3

    assert in_pieces(wait)
    assert pieces == [PIECE_SECONDS] * 3


def test_a_short_wait_is_one_piece_and_tells_that_it_was_in_vain() -> None:
    assert not in_pieces(threading.Event().wait, 0.001)
    assert not in_pieces(threading.Event().wait, -1)


def test_a_wait_for_no_number_of_seconds_is_over_at_once() -> None:
    assert not in_pieces(threading.Event().wait, math.nan)


def test_a_ctrl_c_that_another_thread_has_received_ends_a_wait() -> None:
    held, begun = threading.Lock(), threading.Event()
    held.acquire()

    def receive() -> None:
        begun.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threading.Thread(target=receive, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        begun.set()
        in_pieces(functools.partial(held.acquire, True))
        raise AssertionError


def test_a_ctrl_c_as_a_condition_lets_its_lock_go_ends_the_wait_and_leaves_the_lock_free() -> None:
    class Condition(threading.Condition):
        def _release_save(self) -> None:
            self._lock.release()  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    condition = Condition(threading.Lock())
    with pytest.raises(KeyboardInterrupt):
        wait_for(condition, lambda: False, 9)
    assert condition.acquire(blocking=False)


DROPPED = """
import signal, sys, weakref
from gridengine.threads import raise_dropped_interrupts

class One:
    "May be referred to weakly."

sys.unraisablehook = lambda dropped: print("dropped", dropped.exc_type.__name__)
raise_dropped_interrupts()
one = One()
ref = weakref.ref(one, lambda ref: ACT)
try:
    del one
    for _ in range(1000):
        pass
    print("goes on")
except KeyboardInterrupt:
    print("interrupted")
"""


def printed(act: str) -> list[str]:
    """Return what a script prints that does this in the callback of a weak reference."""
    done = completed([sys.executable, "-c", DROPPED.replace("ACT", act)], check=True)
    return done.stdout.splitlines()


def test_a_ctrl_c_in_the_callback_of_a_weak_reference_is_raised_after_it() -> None:
    assert printed("signal.raise_signal(signal.SIGINT)") == ["interrupted"]


def test_other_errors_in_callbacks_go_to_the_hook_that_was_there() -> None:
    assert printed("1 / 0") == ["dropped ZeroDivisionError", "goes on"]


def test_no_hook_for_dropped_errors_stays_none() -> None:
    script = "import sys; from gridengine.threads import raise_dropped_interrupts as install\n"
    script += "class One:\n    __del__ = lambda one: 1 / 0\n"
    script += "sys.unraisablehook = None; install(); One()"
    assert not completed([sys.executable, "-c", script], check=True).stderr


def test_a_users_own_handler_of_ctrl_c_is_not_called_again() -> None:
    handler = "signal.signal(signal.SIGINT, lambda *_: print('own'))"
    own = f"({handler}, signal.raise_signal(signal.SIGINT))"
    assert printed(own) == ["own", "goes on"]
