"""CPython's tests that cannot hold for us by nature, each with its reason. A test listed here that
passes is an error: take it off.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

HANG_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a test must fail, whether it does so by waiting for ever, and whether it is run at
    all.
    """

    reason: str
    hangs: bool = False
    run: bool = True


def because(
    reason: str,
    names: str,
    *,
    hangs: bool = False,
    run: bool = True,
    since: tuple[int, int] = (3, 11),
) -> dict[str, Failure]:
    """since: the first of our Pythons whose tests these are."""
    known = names.split() if sys.version_info >= since else ()
    return dict.fromkeys(known, Failure(reason, hangs, run))


CONCURRENT_FUTURES = {
    **because(
        "it looks into an executor's list of processes, its manager thread, its queue or its "
        "`_mp_context`; ours has its processes behind a worker",
        """
        ProcessPoolShutdownTest::test_context_manager_shutdown
        ProcessPoolShutdownTest::test_del_shutdown
        ProcessPoolShutdownTest::test_shutdown_no_wait
        ProcessPoolExecutorTest::test_idle_process_reuse_multiple
        ProcessPoolExecutorTest::test_idle_process_reuse_one
        ProcessPoolExecutorTest::test_killed_child
        ProcessPoolExecutorTest::test_max_tasks_per_child
        ProcessPoolExecutorTest::test_max_tasks_per_child_defaults_to_spawn_context
        ExecutorDeadlockTest::test_shutdown_deadlock_pickle
        """,
    ),
    **because(
        "it looks into an executor's list of processes or its manager thread, or has a method of "
        "its own called",
        """
        ProcessPoolExecutorTest::test_failed_worker_replacement_breaks_pool
        ProcessPoolExecutorTest::test_force_shutdown_during_max_tasks_worker_exit
        ProcessPoolExecutorTest::test_force_shutdown_workers_invalid_op
        ProcessPoolExecutorTest::test_gc_during_max_tasks_worker_exit_gh152967
        ProcessPoolExecutorTest::test_kill_workers
        ProcessPoolExecutorTest::test_terminate_workers
        ProcessPoolShutdownTest::test_shutdown_gh_132969_case_1
        ProcessPoolShutdownTest::test_shutdown_gh_132969_case_2
        """,
        since=(3, 14),
    ),
    **because(
        "it looks into an executor's list of processes before it lets go of calls that wait for an "
        "event; these would wait for ever",
        """
        ProcessPoolExecutorTest::test_broken_process_pool_traceback
        ProcessPoolExecutorTest::test_force_shutdown_workers
        """,
        run=False,
        since=(3, 14),
    ),
    **because(
        "it looks into an executor's list of processes or its manager thread, in subtests, which "
        "fail and leave the test a success",
        """
        ProcessPoolExecutorTest::test_force_shutdown_workers_stops_pool
        ProcessPoolExecutorTest::test_shutdown_no_wait_max_tasks_gh119592
        """,
        run=False,
        since=(3, 14),
    ),
    **because(
        "where no thread can be started an executor cannot be made, and says so; there its calls "
        "fail with BrokenProcessPool",
        "ProcessPoolExecutorTest::test_python_finalization_error",
        since=(3, 14),
    ),
    **because(
        "the error itself says by which exit code the process ended; there its cause does",
        "ProcessPoolExecutorTest::test_traceback_when_child_process_terminates_abruptly",
        since=(3, 15),
    ),
    **because(
        "it looks into an executor's list of processes before it lets go of calls that wait for a "
        "lock; these would wait for ever",
        """
        ProcessPoolShutdownTest::test_processes_terminate
        ProcessPoolExecutorTest::test_saturation
        """,
        run=False,
    ),
    **because(
        "it wants one of 50 calls to run although all are cancelled at once; here all that has not "
        "begun is, so that none may run",
        "ProcessPoolShutdownTest::test_cancel_futures",
        run=False,
    ),
    **because(
        "it is asked for `_broken`; why its initializer failed is told by the error, not logged",
        "FailingInitializerTest::test_initializer",
    ),
    **because(
        "the same ValueError in other words, which name the value: max_workers must be at least 1, "
        "not 0",
        "ProcessPoolExecutorTest::test_max_workers_negative",
    ),
    **because(
        "an argument that cannot be rebuilt on the worker fails its call, with what was raised; no "
        "process dies of it",
        """
        ExecutorDeadlockTest::test_error_at_task_unpickle
        ExecutorDeadlockTest::test_exit_at_task_unpickle
        """,
    ),
    **because(
        "whatever a result raises when it is pickled is told by a PicklingError of its call; there "
        "a SystemExit is the call's own",
        "ExecutorDeadlockTest::test_exit_during_result_pickle_on_worker",
    ),
    **because(
        "a result that cannot be rebuilt here is a PicklingError of its call, and the executor "
        "goes on; there it is broken",
        """
        ExecutorDeadlockTest::test_error_during_result_unpickle_in_result_handler
        ExecutorDeadlockTest::test_exit_during_result_unpickle_in_result_handler
        """,
    ),
}

MULTIPROCESSING = {
    **because(
        "structures of sharedctypes lie in memory of the parent's, of which a job inherits "
        "nothing; a Value and an Array do travel",
        """
        WithProcessesTestSharedCTypes::test_sharedctypes
        WithProcessesTestSharedCTypes::test_synchronize
        """,
    ),
    **because(
        "the level of multiprocessing's own logger is a setting of one process, and a worker has "
        "its own",
        "WithProcessesTestLogging::test_level",
        hangs=True,
    ),
    **because(
        "with a job end the jobs that it has started: that one of them notices before, and tells "
        "that its parent is gone, is chance",
        "WithProcessesTestProcess::test_parent_process",
        run=False,
    ),
    **because(
        "a process keeps the function of a job for another job of the same: what earlier tests had "
        "called there may be a method of a manager's proxy, with its connection",
        "WithProcessesTestProcess::test_child_fd_inflation",
        run=False,
        since=(3, 14),
    ),
    **because(
        "it looks into a pool's list of processes or sets its state; ours has its processes behind "
        "a worker",
        """
        WithProcessesTestPool::test_make_pool
        WithProcessesTestPool::test_resource_warning
        WithProcessesTestPoolWorkerLifetime::test_pool_worker_lifetime
        """,
    ),
    **because(
        "what an argument raises when it is pickled is the cause of a PicklingError, which names "
        "the argument, as with an Executor",
        "WithProcessesTestPool::test_map_unplicklable",
    ),
    **because(
        "a pool's processes are started when there are calls, and the initializer is run before "
        "the first of each",
        "TestInitializers::test_pool_initializer",
    ),
    **because(
        "the result that it returns, a lambda, cannot be pickled there and can here",
        "WithProcessesTestPoolWorkerErrors::test_unpickleable_result",
    ),
}

OTHERS = frozenset(
    {
        "ProcessPoolShutdownTest::test_hang_gh83386",
        "ProcessPoolExecutorTest::test_max_workers_too_large",
        "WithProcessesTestProcess::test_forkserver_sigint",
        "WithProcessesTestProcess::test_forkserver_sigkill",
        "WithManagerTestQueue::test_queue_feeder_donot_stop_onexc",
        "WithManagerTestQueue::test_queue_feeder_on_queue_feeder_error",
    }
)
"""Tests that would be skipped: of other systems, and of ways to start processes that are not ours
to choose.
"""
