"""Calls that need each other, handed in by every way there is, at the same time: random graphs by
`submit_graph`; chains, trees and random ones by `submit`, of some of which calls are cancelled and
killed; and the like as delayed objects. Each result is compared with a serial evaluation.
"""

from __future__ import annotations

import random
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from typing import Any, TypeAlias

from call_log import LARGE, RETRIES, Tally, raised_by, write

import gridengine
from gridengine.errors import Cancelled

CALLS_AT_A_TIME = 120
LOST_SECONDS = 1200.0
"""A future that has not ended by then never will."""
Calls: TypeAlias = Sequence[tuple[int, float, str]]
Plan: TypeAlias = Mapping[int, list[int]]
"""The indices of calls, each with those whose results it needs, after these."""
Futures: TypeAlias = Mapping[int, Future[Any]]


def step(index: int, seconds: float, path: str, inputs: Sequence[Any]) -> Any:
    """Say that it begins, take its time, say that it ends; return what `result_of` does."""
    write(path, "begun", index)
    if seconds:
        time.sleep(seconds)
    result = result_of(index, inputs)
    write(path, "ended", index)
    return result


def result_of(index: int, inputs: Sequence[Any]) -> Any:
    """Return what depends on the index and on all inputs, in their order; some results are
    large.
    """
    number = index
    for value in inputs:
        number = zlib.crc32(value if type(value) is bytes else str(value).encode(), number)
    return number.to_bytes(4, "big") * (LARGE // 4) if index % 100 == 0 else number


def evaluated(plan: Plan) -> dict[int, Any]:
    """Return the result of each call, made here one after the other."""
    results: dict[int, Any] = {}
    for index, inputs in plan.items():
        results[index] = result_of(index, [results[one] for one in inputs])
    return results


# ------------------------------------------------------------------ what is handed in


def chain(indices: Sequence[int], chance: random.Random) -> Plan:
    """Each needs the one before."""
    return {one: [*indices[max(0, place - 1) : place]] for place, one in enumerate(indices)}


def tree(indices: Sequence[int], chance: random.Random) -> Plan:
    """Each needs two of those before that no other needs, until the last needs all."""
    plan: dict[int, list[int]] = {}
    free: list[int] = []
    leaves = (len(indices) + 1) // 2
    for place, index in enumerate(indices):
        plan[index] = [] if place < leaves else [free.pop(0) for _ in range(min(2, len(free)))]
        free.append(index)
    return plan


def tangle(indices: Sequence[int], chance: random.Random) -> Plan:
    """Each needs some of those before, whichever."""
    return {
        one: chance.sample(indices[:place], min(place, chance.choice([0, 1, 1, 2, 2, 3])))
        for place, one in enumerate(indices)
    }


SHAPES: tuple[Callable[[Sequence[int], random.Random], Plan], ...] = (chain, tree, tangle)


# ------------------------------------------------------------------ the ways to hand it in


class Run:
    """One way's share of the calls, some at a time, in any of the shapes."""

    def __init__(self, scheduler: Any, calls: Calls, tally: Tally, chance: random.Random) -> None:
        self._scheduler = scheduler
        self._calls = {call[0]: call for call in calls}
        self._tally = tally
        self._chance = chance

    def each_by(self, way: Callable[[Run, Plan], None]) -> None:
        """Hand all in, this way."""
        indices = [*self._calls]
        for place in range(0, len(indices), CALLS_AT_A_TIME):
            shape = self._chance.choice(SHAPES)
            way(self, shape(indices[place : place + CALLS_AT_A_TIME], self._chance))

    def _expect(self, futures: Futures) -> None:
        """Note which results are to come, and count how often each does."""
        self._tally.expected.update(futures)
        for index, future in futures.items():
            future.add_done_callback(lambda _, index=index: self._tally.count(index))

    def _check(self, index: int, result: Any, *may_be: Any) -> None:
        if result not in may_be:
            self._tally.wrong.append(f"call {index} gave {result!r:.200}, not {may_be!r:.200}")

    def _some(self, plan: Plan) -> list[int]:
        """Return some of the calls, and the last."""
        others = [*plan][:-1]
        return [*self._chance.sample(others, min(len(others), 10)), [*plan][-1]]

    def by_graph(self, plan: Plan) -> None:
        """By `submit_graph`: what nobody asks for is not made, and chains may be made as one."""
        wanted, path = self._some(plan), self._calls[next(iter(plan))][2]
        graph: dict[Any, Any] = {"path": path}
        for index, inputs in plan.items():
            seconds, keys = self._calls[index][1], [("call", one) for one in inputs]
            graph["call", index] = (step, index, seconds, "path", keys)
        with gridengine.Executor(scheduler=self._scheduler, retries=RETRIES) as executor:
            keys = [("call", index) for index in wanted]
            made = executor.submit_graph(graph, keys, fuse=self._chance.random() < 0.5)
            futures = dict(zip(wanted, made, strict=True))
            self._expect(futures)
            wait(made, LOST_SECONDS)
        right = evaluated(plan)
        for index, future in futures.items():
            self._check(index, outcome_of(future), right[index])

    def by_delayed(self, plan: Plan) -> None:
        """By delayed objects, with operators between the calls."""
        function = gridengine.delayed(retries=RETRIES)(step)
        wanted = self._some(plan)

        async def main() -> Any:
            made: dict[int, Any] = {}
            for index, inputs in plan.items():
                made[index] = function(
                    *self._calls[index], gridengine.each(*(made[one] for one in inputs))[:]
                )
            return await gridengine.each(*(made[index] for index in wanted))

        self._tally.expected.update(wanted)
        results = gridengine.run(main, scheduler=self._scheduler)
        right = evaluated(plan)
        for index, result in zip(wanted, results, strict=True):
            self._tally.count(index)
            self._check(index, result, right[index])

    def by_submit(self, plan: Plan) -> None:
        """By `submit` of futures, each of which is looked at."""
        with gridengine.Executor(scheduler=self._scheduler, retries=RETRIES) as executor:
            futures = self._submitted(executor, plan)
            wait(futures.values(), LOST_SECONDS)
        right = evaluated(plan)
        for index, future in futures.items():
            self._check(index, outcome_of(future), right[index])

    def by_cancelled(self, plan: Plan) -> None:
        """As `by_submit`; then some calls are cancelled or killed, at any time: they, and what
        needs them, have no result, and all others do.
        """
        with gridengine.Executor(scheduler=self._scheduler, retries=RETRIES) as executor:
            futures = self._submitted(executor, plan)
            withdrawn, killed = set[int](), set[int]()
            for index in self._chance.sample([*plan], min(len(plan), 3)):
                wait([futures[self._chance.choice([*plan])]], self._chance.uniform(0, 0.5))
                if self._chance.random() < 0.5:
                    executor.kill(futures[index])
                    killed.add(index)
                elif futures[index].cancel():
                    withdrawn.add(index)
            wait(futures.values(), LOST_SECONDS)
        right, ended = evaluated(plan), set[int]()
        for index, inputs in plan.items():
            outcome = outcome_of(futures[index])
            may_be: list[Any] = [Cancelled] if index in killed else []
            if ended.intersection(inputs) or index in withdrawn:
                may_be.append(CancelledError)
            else:
                may_be.append(right[index])
            self._check(index, outcome, *may_be)
            if outcome in (Cancelled, CancelledError):
                ended.add(index)
                self._tally.cancelled += 1

    def _submitted(self, executor: gridengine.Executor, plan: Plan) -> Futures:
        futures: dict[int, Future[Any]] = {}
        for index, inputs in plan.items():
            given = [futures[one] for one in inputs]
            futures[index] = executor.submit(step, *self._calls[index], given)
        self._expect(futures)
        return futures


def outcome_of(future: Future[Any]) -> Any:
    """Return the result; of a call that was cancelled or killed the class of the error, and of any
    other that has none the exception.
    """
    try:
        return future.result(0)
    except (CancelledError, Cancelled) as error:
        return type(error)
    except Exception as error:
        return error


WAYS = Run.by_graph, Run.by_submit, Run.by_cancelled, Run.by_delayed


def make_calls(scheduler: Any, calls: Calls, tally: Tally, seed: int) -> None:
    """Hand all of them in, a share by each way, in a thread of its own."""
    failed: list[BaseException] = []
    threads = []
    for number, way in enumerate(WAYS):
        run = Run(
            scheduler, calls[number :: len(WAYS)], tally, random.Random(f"{seed} {way.__name__}")
        )
        act = partial(run.each_by, way)
        threads.append(threading.Thread(target=lambda act=act: failed.extend(raised_by(act))))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
