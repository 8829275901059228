"""A started job on its host: what is known of its end, and by whom it is waited for."""

from __future__ import annotations

import gc
import os
import select
from pathlib import Path

import pytest

from gridengine.api.job_handle import JobHandle, exitcode_of
from gridengine.dispatcher.core.tasks import Attempt, CallsFinished, Function, Task
from gridengine.errors import (
    Cancelled,
    ClusterError,
    GridEngineError,
    WorkerCrashed,
    out_of_memory,
)
from gridengine.serialize import pickling
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler
from tests.support.open_files import open_files

ENDED = CallsFinished(1, 0, 1, [b""])


def make(scheduler: FakeScheduler | None = None) -> JobHandle:
    return JobHandle(FakeDispatcher(), scheduler, ours=scheduler is not None, daemon=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("end", "error", "code"),
    [
        (ENDED, None, 0),
        (CallsFinished(1, 0, 1, [b""], raised=True, exitcode=1), ValueError(), 1),
        (CallsFinished(1, 0, 1, [b""], raised=True, exitcode=1), SystemExit(), 0),
        (CallsFinished(1, 0, 1, [b""], raised=True, exitcode=1), SystemExit(258), 2),
        (CallsFinished(1, 0, 1, [b""], raised=True, exitcode=1), SystemExit(-1), 255),
        (CallsFinished(1, 0, 1, [b""], raised=True, exitcode=1), SystemExit(True), 1),
        (CallsFinished(1, 0, 1, [b""], raised=True, exitcode=1), SystemExit("words"), 1),
        (CallsFinished(1, 0, 1, None, error=WorkerCrashed("it died"), exitcode=-9), None, -9),
    ],
)
def test_the_exit_code_is_that_of_a_process(
    end: CallsFinished, error: BaseException | None, code: int
) -> None:
    assert exitcode_of(end, error) == code


def test_what_is_to_be_done_at_the_end_is_done_before_it_can_be_seen() -> None:
    handle, seen = make(), []
    handle.when_ended(lambda: seen.append("before"))
    handle.settled(ENDED)
    handle.when_ended(lambda: seen.append("after"))
    assert seen == ["before", "after"]
    assert handle.wait(0)


def test_the_sentinel_is_readable_from_the_end_on() -> None:
    handle = make()
    sentinel = handle.sentinel()
    assert handle.sentinel() == sentinel
    assert select.select([sentinel], [], [], 0)[0] == []
    handle.settled(ENDED)
    assert select.select([sentinel], [], [], 0)[0] == [sentinel]
    assert os.read(sentinel, 1) == b""
    [pipe] = open_files(str(Path(f"/proc/self/fd/{sentinel}").readlink()))
    del handle
    gc.collect()
    assert open_files(pipe) == []


def test_a_scheduler_that_was_made_for_the_job_is_closed_once_it_is_known_to_have_ended() -> None:
    scheduler = FakeScheduler()
    handle = make(scheduler)
    assert not handle.wait(0)
    assert not scheduler.dispatcher.closed
    handle.settled(ENDED)
    assert handle.wait(0)
    assert scheduler.dispatcher.closed


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (None, []),
        (Cancelled("it was ended"), []),
        (WorkerCrashed("job one died"), ["job one died"]),
        (ClusterError("no"), ["job one could not be run: no"]),
    ],
)
def test_what_nobody_has_printed_is_logged_with_the_jobs_name(
    error: GridEngineError | None, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    handle = make()
    handle.submit(
        Function(b"", (), (), b"", "f"),
        lambda id: Task(id, pickling.dump_calls([]), count=0, name="one"),
    )
    handle.settled(CallsFinished(1, 0, 1, None, error=error))
    assert caplog.messages == lines


def test_a_job_out_of_memory_tells_of_its_attempts_where_it_printed_a_bare_memory_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    payload = pickling.dump_exception(out_of_memory("job one", limit=2**30, peak=0))
    attempts = [Attempt("node1", "", 0, 1, "it ran out of memory")]
    make().settled(CallsFinished(1, 0, 1, payload, raised=True, attempts=attempts))
    assert "its limit was 1.00 GB" in caplog.text
    assert "attempt: on node1, after 1.0 s: it ran out of memory" in caplog.text
