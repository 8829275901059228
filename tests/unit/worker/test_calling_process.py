"""Which code may make calls of the dispatcher that runs it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gridengine.resources.base import ZERO
from gridengine.worker import call_context
from gridengine.worker.call_context import GVAR, CurrentJob
from gridengine.worker.status_block import RUN, WORDS_SIZE


@pytest.fixture
def words() -> Iterator[memoryview]:
    words = memoryview(bytearray(WORDS_SIZE)).cast("Q")
    call_context.prepare(7, words, lambda message, buffers: None)
    yield words
    call_context._here().process = None


def test_a_process_that_runs_no_calls_makes_none() -> None:
    assert call_context.calling_process() is None


def test_one_that_does_knows_the_run_in_progress(words: memoryview) -> None:
    found = call_context.calling_process()
    assert found is not None
    words[RUN] = 3
    assert (found.number, found.run) == (7, 3)


def test_a_call_that_is_made_in_its_caller_s_own_process_has_no_dispatcher_there(
    words: memoryview,
) -> None:
    with GVAR.running(CurrentJob(1, 1, ZERO, lambda: 0)):
        assert call_context.calling_process() is None


def test_nor_has_a_process_that_a_call_has_forked(
    words: memoryview, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = os.getpid()
    monkeypatch.setattr(call_context.os, "getpid", lambda: pid + 1)
    assert call_context.calling_process() is None


def test_where_there_is_no_agent_there_is_no_way(words: memoryview) -> None:
    found = call_context.calling_process()
    assert found is not None
    with pytest.raises(LookupError, match="runs no calls for another"):
        found.connect()
