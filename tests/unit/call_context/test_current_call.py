"""What a call knows of itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
import threading
from collections.abc import Iterator
from multiprocessing.process import current_process

import pytest

from gridengine.call_context import current_call
from gridengine.call_context.current_call import (
    GVAR,
    CallingProcess,
    CallStates,
    CurrentJob,
    ProcessSpent,
    Variables,
    current_job,
    in_trio,
    process_name,
)
from gridengine.call_context.status_block import RUN, WORDS_SIZE
from gridengine.resources import Cores
from gridengine.resources.base import ZERO


def job(index: int = 3) -> CurrentJob:
    return CurrentJob(7, 1, Cores(2), lambda: index)


def test_outside_of_a_call_there_is_none() -> None:
    assert current_job() is None
    assert GVAR.res is ZERO
    assert not GVAR.inside


def test_a_call_knows_its_job_in_its_own_thread_alone() -> None:
    seen: list[object] = []
    with GVAR.running(job()):
        thread = threading.Thread(target=lambda: seen.append(current_job()))
        thread.start()
        thread.join()
        here = current_job()
        assert here is not None
        assert (here.id, here.index, here.attempt, GVAR.res) == (7, 3, 1, Cores(2))
        assert GVAR.inside
        assert GVAR.in_own_process
    assert seen == [None]
    assert current_job() is None


def test_in_a_runner_all_threads_know_the_job() -> None:
    GVAR.process_job = mine = job()
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(current_job()))
    thread.start()
    thread.join()
    assert seen == [mine]
    assert not GVAR.in_own_process


def test_a_call_within_a_call_hides_the_outer_until_it_ends() -> None:
    outer, inner = job(1), job(2)
    with GVAR.running(outer):
        with contextlib.suppress(KeyError), GVAR.running(inner):
            assert current_job() is inner
            raise KeyError
        assert current_job() is outer


def test_a_job_that_is_pickled_stays_at_the_call_it_was_at() -> None:
    here = [4]
    moving = CurrentJob(7, 1, ZERO, lambda: here[0])
    copy = pickle.loads(pickle.dumps(moving))
    here[0] = 5
    assert (moving.index, copy.index, copy.id) == (5, 4, 7)
    assert repr(copy) == "<job 7, call 4, attempt 1: ZERO>"


def test_references_to_variables_mean_those_of_their_process() -> None:
    assert pickle.loads(pickle.dumps(GVAR)) is GVAR


def test_a_runner_makes_so_many_calls_and_those_inside_of_calls_do_not_count() -> None:
    variables = Variables()
    variables.count_call(0)  # no runner
    variables.in_runner = True
    with variables.running(job()):
        variables.count_call(0)
    variables.count_call(2)
    assert not variables.is_spent
    variables.count_call(2)
    assert variables.is_spent
    with pytest.raises(ProcessSpent):
        variables.count_call(2)


def test_jobs_of_one_process_may_end_in_any_order() -> None:
    before = current_process().name
    first, second = process_name("first"), process_name("second")
    first.__enter__()
    second.__enter__()
    assert current_process().name == "second"
    first.__exit__(None, None, None)
    assert current_process().name == "second"
    with process_name("second"), process_name(before):
        assert current_process().name == before
    assert current_process().name == "second"
    second.__exit__(None, None, None)
    assert current_process().name == before
    assert not [name for name in vars(current_process()) if name.startswith("_gridengine")]


async def there() -> bool:
    return in_trio()


def test_trio_is_told_from_asyncio_and_from_none() -> None:
    trio = pytest.importorskip("trio")
    assert trio.run(there)
    assert not asyncio.run(there())
    assert not in_trio()


@pytest.fixture
def words() -> Iterator[memoryview]:
    words = memoryview(bytearray(WORDS_SIZE)).cast("Q")
    states = CallStates(lambda *saved: None)
    ways = (lambda *allocated: None), states, (lambda: ()), (lambda payload: None)
    with socket.socket(socket.AF_UNIX) as requests:
        GVAR.process = CallingProcess(7, os.getpid(), words, requests, *ways)
        yield words
    GVAR.process = None


def test_a_process_that_runs_no_calls_makes_none() -> None:
    assert current_call.calling_process() is None


def test_a_process_that_runs_calls_knows_the_run_in_progress(words: memoryview) -> None:
    found = current_call.calling_process()
    assert found is not None
    words[RUN] = 3
    assert (found.number, found.run) == (7, 3)


def test_a_call_that_is_made_in_its_caller_s_own_process_has_no_dispatcher_there(
    words: memoryview,
) -> None:
    with GVAR.running(CurrentJob(1, 1, ZERO, lambda: 0)):
        assert current_call.calling_process() is None


def test_a_process_that_a_call_has_forked_has_no_dispatcher(
    words: memoryview, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = os.getpid()
    monkeypatch.setattr(current_call.os, "getpid", lambda: pid + 1)
    assert current_call.calling_process() is None


def test_a_process_without_agent_has_no_dispatcher(words: memoryview) -> None:
    found = current_call.calling_process()
    assert found is not None
    with pytest.raises(LookupError, match="does not answer"):
        found.connect()
