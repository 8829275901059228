"""Tasks and outcomes as they travel between a call's process and its dispatcher."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
import pytest

from gridengine.calls.translation import (
    MOST_BYTES,
    MOST_TASKS,
    RequestEncoder,
    finished_calls,
    function_item,
    shared_item,
    take_joinable,
    task_item,
)
from gridengine.dispatcher.serving.client_process import FailureNumbers
from gridengine.errors import WorkerCrashed
from gridengine.requests import (
    CallsFinished,
    Function,
    NamesForgotten,
    Submitted,
    Task,
    TaskOptions,
    Told,
)
from gridengine.resources import Cores
from gridengine.resources.demand import Demand
from gridengine.serialize import pickling
from gridengine.serialize.shared_objects import SharedObject
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import CallerState, FinishedItem, Submit, TaskItem, Tell
from tests.support.tasks import make_task


def test_a_task_keeps_its_contents_and_has_names_for_shared_objects() -> None:
    inner, outer = SharedObject(b"i" * 16, [b""]), SharedObject(b"o" * 16, [b"", b""])
    outer.needs = (inner,)
    options = TaskOptions(1, 3, 4.0, True, True, "job", Demand(Cores(2)), 2.0, 6)
    task = Task(7, [b"a", b"b"], 2, options, 5, (outer,))
    item = task_item(task, 9)
    plain = msgspec.structs.asdict(item)
    known = msgspec.structs.asdict(options) | msgspec.structs.asdict(task)
    same = {name for name in plain if plain[name] == known.get(name)}
    assert {*plain} - same == {"demand", "needs", "submitter", "buffers"}
    assert item.needs == [inner.name, outer.name]
    assert (item.submitter, item.buffers) == (9, 2)
    assert item.demand is not None
    assert task_item(make_task(1, [b""]), 2) == TaskItem(1, retries=2, submitter=2, needs=[])
    assert shared_item(outer).needs == [inner.name]


def test_a_function_has_all_that_it_had() -> None:
    caller = CallerState(b"A=1", 0o22, (b"x",))
    function = Function(b"d", [b"", b""], (b"/p",), b"/d", "f", (), caller, (3,), "pickle", ("x",))
    item = function_item(function)
    assert (item.name, item.path, item.directory) == ("f", [b"/p"], b"/d")
    assert (item.caller, item.after, item.buffers, item.parameters) == (caller, (3,), 2, ("x",))


def test_outcomes_without_a_result_have_their_error_and_output() -> None:
    error = pickling.dump_exception(WorkerCrashed("it died"))
    item = FinishedItem(7, 0, 1, failed=True, exitcode=-9, output=True, last=True, path=["f"])
    event = finished_calls(item, [*error, b"out", b"err"])
    assert (event.payload, str(event.error)) == (None, "it died")
    assert (event.exitcode, event.stdout, event.stderr) == (-9, b"out", b"err")
    assert event.path == ("f",)
    assert finished_calls(FinishedItem(7, 0, 1, recalled=True), []).recalled


def test_failures_for_the_same_reason_share_a_number() -> None:
    numbers, error = FailureNumbers(5), WorkerCrashed("it died")
    ended = [CallsFinished(id, 0, 1, None, error=error) for id in (1, 2)]
    assert [numbers.number_of(one) for one in ended] == [5, 5]
    assert numbers.number_of(CallsFinished(3, 0, 1, [b"pickled"], raised=True)) == 6
    assert numbers.number_of(CallsFinished(4, 0, 1, [], raised=True)) == 7


def test_a_call_is_told_by_a_message_with_its_payload() -> None:
    encoder = RequestEncoder(3, lambda number, run: number)
    assert encoder.encode(Told(7, [b"a", b"b"])) == [(Tell(3, 7, 2), [b"a", b"b"])]


def submitted(*ids: int, digest: bytes = b"digest", size: int = 1) -> Submitted:
    function = Function(digest, [b"function"], (), b"/", "f")
    return Submitted(function, [make_task(one, [bytes([one]) * size]) for one in ids])


def ids(request: Submitted) -> list[int]:
    return [task.id for task in request.tasks]


def test_joined_tasks_are_one_message_in_order() -> None:
    coming = deque([submitted(2, 3), submitted(4)])
    encoder = RequestEncoder(0, lambda number, run: number)
    [sent] = encoder.encode(take_joinable(submitted(1), coming))
    whole, buffers = decode(encode(*sent))
    assert not coming
    assert isinstance(whole, Submit)
    assert whole.function is not None
    assert whole.function.name == "f"
    assert [one.id for one in whole.tasks] == [1, 2, 3, 4]
    assert list(map(bytes, buffers)) == [b"function", b"\1", b"\2", b"\3", b"\4"]


@pytest.mark.parametrize(
    "other",
    [submitted(2, digest=b"other"), NamesForgotten([b"digest"]), object()],
    ids=["function", "no tasks", "no request"],
)
def test_other_requests_travel_alone_and_are_not_overtaken(other: Any) -> None:
    coming = deque([submitted(1), other, submitted(3)])
    assert ids(take_joinable(submitted(0), coming)) == [0, 1]
    assert len(coming) == 2


def test_a_message_has_no_more_tasks_and_bytes_than_one_that_was_handed_in_so() -> None:
    many = deque([submitted(*[1] * 400)] * 3)
    assert len(take_joinable(submitted(0), many).tasks) == 801 <= MOST_TASKS
    large = deque([submitted(1, size=MOST_BYTES)] * 2)
    assert ids(take_joinable(submitted(0), large)) == [0, 1]
