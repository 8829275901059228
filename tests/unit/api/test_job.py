"""`Job`, against a dispatcher that runs calls here: the API and the misuse errors of
`multiprocessing.Process`, and what comes besides.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gridengine import Job
from gridengine.errors import PicklingError, WorkerCrashed
from tests.support.event_loops import LOOPS, cancelled_once, run_in
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler
from tests.support.jobs import Counting, FailingCounting, add, ended, push_all


class Controlled(Job):
    def run(self, controller: Any = None) -> str:
        controller.push("here")
        return self.name


class Guarded(Job):
    """Has a `__getstate__` of its own, which knows nothing of its base class."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))

    def run(self) -> Any:  # type: ignore[override]
        return self


# ------------------------------------------------------------------ as multiprocessing.Process


def test_a_job_has_the_key_of_the_process_that_made_it() -> None:
    assert Job(target=abs).authkey == multiprocessing.current_process().authkey


def test_a_job_runs_its_target(scheduler: FakeScheduler) -> None:
    job = ended(Job(target=add, args=(1,), kwargs={"y": 2}, scheduler=scheduler))
    assert (job.exitcode, job.result(), job.exception(), job.is_alive()) == (0, 3, None, False)


def test_a_job_without_a_target_ends_well(scheduler: FakeScheduler) -> None:
    assert ended(Job(scheduler=scheduler)).exitcode == 0


def test_a_target_that_is_not_callable_is_a_type_error_at_construction() -> None:
    with pytest.raises(TypeError, match="3 is not callable"):
        Job(target=3)  # type: ignore[arg-type]


def test_arguments_that_are_not_iterable_are_named() -> None:
    value: Any = 5
    with pytest.raises(TypeError, match=r"args must be the target's arguments, as \(x,\), not 5"):
        Job(target=abs, args=value)


def test_a_job_that_a_signal_ended_has_its_number_as_exit_code(silent: FakeScheduler) -> None:
    job = Job(target=add, args=(1,), scheduler=silent)
    job.start()
    assert (job.exitcode, job.is_alive()) == (None, True)
    silent.dispatcher.fail(silent.dispatcher.entries[0], WorkerCrashed("it died"), -signal.SIGSEGV)
    assert (job.exitcode, job.is_alive()) == (-signal.SIGSEGV, False)
    with pytest.raises(WorkerCrashed):
        job.result()


@pytest.mark.parametrize(
    ("end", "number"),
    [
        (Job.interrupt, signal.SIGINT),
        (Job.terminate, signal.SIGTERM),
        (Job.kill, signal.SIGKILL),
    ],
)
def test_a_job_is_ended_by_its_signal(
    end: Callable[[Job], None], number: int, silent: FakeScheduler
) -> None:
    job = Job(target=add, args=(1,), scheduler=silent)
    job.start()
    end(job)
    assert silent.dispatcher.cancelled == {1: number}
    assert job.exitcode == -number


def test_ending_an_ended_job_does_nothing(scheduler: FakeScheduler) -> None:
    ended(Job(target=add, args=(1,), scheduler=scheduler)).terminate()
    assert scheduler.dispatcher.cancelled == {}


def test_join_with_a_time_limit_returns_while_the_job_runs(silent: FakeScheduler) -> None:
    job = Job(target=add, args=(1,), scheduler=silent)
    job.start()
    job.join(0.001)
    assert job.is_alive()


def test_names_are_counted_as_processes_are() -> None:
    first, _, third = Job(), Job(name="it"), Counting(0)
    number = int(first.name.removeprefix("Job-"))
    assert third.name == f"Counting-{number + 2}"


def test_the_process_id_is_that_of_the_process_that_runs_it(scheduler: FakeScheduler) -> None:
    job = Job(target=add, args=(1,), scheduler=scheduler)
    assert (job.pid, job.ident) == (None, None)
    ended(job)
    assert (job.pid, job.ident) == (4711, 4711)


Act = Callable[[Any], object]

MISUSES: list[tuple[str, Act]] = [
    ("start twice", lambda job: (job.start(), job.start())),
    ("join before start", lambda job: job.join()),
    ("terminate before start", lambda job: job.terminate()),
    ("kill before start", lambda job: job.kill()),
    ("a name that is no text", lambda job: setattr(job, "name", 3)),
    ("daemon after start", lambda job: (job.start(), setattr(job, "daemon", True))),
    ("close while it runs", lambda job: (job.start(), job.close())),
    ("start after close", lambda job: (job.close(), job.start())),
    ("join after close", lambda job: (job.close(), job.join())),
    ("is_alive after close", lambda job: (job.close(), job.is_alive())),
    ("exitcode after close", lambda job: (job.close(), job.exitcode)),
    ("pid after close", lambda job: (job.close(), job.pid)),
    ("terminate after close", lambda job: (job.close(), job.terminate())),
]


def raised_by(act: Act, what: object) -> Exception:
    try:
        act(what)
    except Exception as error:
        return error
    pytest.fail("nothing was raised")


@pytest.mark.parametrize("act", [act for _, act in MISUSES], ids=[name for name, _ in MISUSES])
def test_misuse_is_the_error_that_a_process_raises(act: Act, silent: FakeScheduler) -> None:
    stop = multiprocessing.get_context("fork").Event()
    process = multiprocessing.get_context("fork").Process(target=stop.wait)
    try:
        expected = raised_by(act, process)
    finally:
        stop.set()
    actual = raised_by(act, Job(target=add, args=(1,), scheduler=silent))
    assert type(actual) is type(expected)
    if not isinstance(expected, AttributeError):  # those of a Process speak of its insides
        assert str(actual) == str(expected)


def test_a_group_is_refused_as_a_process_refuses_it() -> None:
    with pytest.raises(AssertionError, match="group argument must be None for now"):
        Job("group")  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=r"Job\(target=abs, args=\(-3,\)\)"):
        Job(abs, -3)  # type: ignore[arg-type]


def test_a_job_that_was_not_started_says_to_start_it(scheduler: FakeScheduler) -> None:
    for act in (Job.join, Job.result):
        with pytest.raises(AssertionError) as caught:
            act(Job(target=abs, args=(-3,), scheduler=scheduler))
        assert "start()" in caught.value.__notes__[0]


def test_a_closed_job_still_has_its_name(scheduler: FakeScheduler) -> None:
    job = ended(Job(target=add, args=(1,), name="it", scheduler=scheduler))
    job.close()
    assert job.name == "it"
    assert "closed" in repr(job)


@pytest.mark.parametrize("daemon", [None, False, True])
def test_the_dispatcher_knows_whether_a_job_is_waited_for(
    daemon: bool | None, scheduler: FakeScheduler
) -> None:
    job = ended(Job(target=add, args=(1,), daemon=daemon, scheduler=scheduler))
    assert job.daemon is bool(daemon)
    assert scheduler.dispatcher.entries[0].listener.daemon is bool(daemon)


def test_repr_tells_how_far_it_is(silent: FakeScheduler) -> None:
    job = Job(target=add, args=(1,), name="it", daemon=True, scheduler=silent)
    parent = f"parent={os.getpid()}"
    assert repr(job) == f"<Job name='it' {parent} initial daemon>"
    job.start()
    assert repr(job) == f"<Job name='it' {parent} started daemon>"
    job.kill()
    assert repr(job) == f"<Job name='it' {parent} stopped exitcode=-9 daemon>"


def test_run_called_here_runs_here() -> None:
    assert Job(target=add, args=(1, 2)).run() == 3


# ------------------------------------------------------------------ what travels


def test_jobs_with_the_same_target_share_their_function(scheduler: FakeScheduler) -> None:
    ended(Job(target=add, args=(1,), name="one", scheduler=scheduler))
    ended(Job(target=add, args=(2,), name="two", scheduler=scheduler))
    assert len({entry.function.digest for entry in scheduler.dispatcher.entries}) == 1


def test_jobs_of_a_subclass_share_their_function(scheduler: FakeScheduler) -> None:
    ended(Counting(1, scheduler=scheduler))
    ended(Counting(2, scheduler=scheduler))
    assert len({entry.function.digest for entry in scheduler.dispatcher.entries}) == 1


def test_limits_travel_with_the_job(scheduler: FakeScheduler) -> None:
    task = (
        ended(Job(target=add, args=(1,), retries=7, timeout=2.5, scheduler=scheduler))
        and scheduler.dispatcher.entries[0].task
    )
    assert (task.options.retries, task.options.timeout, task.options.watched) == (7, 2.5, True)


def test_an_argument_that_cannot_travel_is_an_error_at_start_that_names_it() -> None:
    def never() -> FakeScheduler:
        raise AssertionError("made")

    job = Job(target=add, args=(1, threading.Lock()), name="heavy", scheduler=never)
    with pytest.raises(PicklingError, match=r"heavy.*lock"):
        job.start()
    assert "initial" in repr(job)


def test_a_job_may_be_started_at_another_dispatcher() -> None:
    dispatcher = FakeDispatcher()
    job = Job(target=add, args=(1,))
    job.start_at(dispatcher)  # type: ignore[arg-type]
    assert job.result() == 1


# ------------------------------------------------------------------ subclasses


def test_the_result_of_an_overridden_run_is_the_job_s_result(scheduler: FakeScheduler) -> None:
    job = ended(Counting(1, scheduler=scheduler))
    assert (job.result(), job.count) == (2, 1)


def test_an_own_run_may_take_a_controller(scheduler: FakeScheduler) -> None:
    job = ended(Controlled(name="it", scheduler=scheduler))
    assert (job.result(), list(job.messages())) == ("it", ["here"])


def test_an_uncaught_exception_of_an_own_run_is_told_too(scheduler: FakeScheduler) -> None:
    job = ended(FailingCounting(1, name="sad", scheduler=scheduler))
    assert job.exitcode == 1
    assert job.stderr().startswith("Process sad:\nTraceback")


def test_a_subclass_may_have_its_own_getstate(scheduler: FakeScheduler) -> None:
    back = ended(Guarded(name="it", scheduler=scheduler)).result()
    assert type(back) is Guarded
    assert (back.name, back.exitcode) == ("it", None)


def test_a_started_job_can_be_pickled_and_copied(silent: FakeScheduler) -> None:
    job = Job(target=add, args=(1,), name="it", scheduler=silent)
    job.start()
    assert pickle.loads(pickle.dumps(job)).name == "it"
    assert copy.copy(job).is_alive()


# ------------------------------------------------------------------ controller and messages


def test_a_target_with_a_controller_parameter_is_given_one(scheduler: FakeScheduler) -> None:
    job = ended(Job(target=push_all, args=(1, "two", [3]), scheduler=scheduler))
    assert list(job.messages()) == [1, "two", [3]]
    assert job.result() == scheduler.dispatcher.entries[0].task.id


def test_a_mutable_job_with_a_target_is_given_one_too(scheduler: FakeScheduler) -> None:
    job = ended(Job(target=push_all, args=(1,), mutable=True, scheduler=scheduler))
    assert list(job.messages()) == [1]


# ------------------------------------------------------------------ in tasks of event loops


async def double(x: int) -> int:
    return 2 * x


class Doubling(Job):
    async def run(self) -> int:  # type: ignore[override]
        return await double(self.number)


class Yielding(Job):
    async def run(self) -> AsyncIterator[int]:  # type: ignore[override]
        yield 1


@pytest.mark.parametrize("mutable", [False, True])
def test_a_target_and_a_run_may_be_coroutine_functions(
    scheduler: FakeScheduler, mutable: bool
) -> None:
    job = Doubling(scheduler=scheduler, mutable=mutable)
    job.number = 4
    assert ended(job).result() == 8
    job = Job(target=double, args=(4,), scheduler=scheduler, mutable=mutable)
    assert ended(job).result() == 8


@pytest.mark.parametrize("make", [lambda: Job(target=Yielding.run), Yielding])
def test_a_job_that_is_an_async_generator_is_refused_at_its_start(
    make: Callable[[], Job], scheduler: FakeScheduler
) -> None:
    with pytest.raises(TypeError, match="is an async generator function"):
        make().start_at(scheduler.dispatcher)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_job_is_awaited_and_runs_on_when_that_is_cancelled(loop: str) -> None:
    async def main() -> int:
        async def wait() -> int:
            waiting.append(1)
            result: int = await job
            return result

        waiting: list[int] = []
        await cancelled_once(wait, lambda: waiting)
        assert not dispatcher.cancelled
        threading.Thread(target=dispatcher.run, args=(dispatcher.entries[0],)).start()
        return await wait()

    dispatcher = FakeDispatcher(on_submit=lambda _: None)
    job = Job(target=add, args=(1, 2), scheduler=FakeScheduler(dispatcher))
    job.start()
    assert run_in(loop, main) == 3
