"""What several threads share: objects that there are once, and groups of objects that live."""

from __future__ import annotations

import contextlib
import gc
import threading

from gridengine.threads import LiveObjects, once


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
