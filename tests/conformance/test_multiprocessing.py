"""CPython's tests of `multiprocessing`, of `gridengine.Job` and `gridengine.Pool`."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest

from tests.conformance.cpython import is_test, why_not
from tests.conformance.expected_failures import MULTIPROCESSING

if why_not():
    pytest.skip(why_not(), allow_module_level=True)

from tests.conformance import multiprocessing_suite
from tests.conformance.standard import manager, scheduler

START_METHOD = "spawn"
"""That of the processes which are not ours; a job is likewise started without anything that it
could inherit.
"""

WITH_PROCESSES = """Process SubclassingProcess Pool PoolWorkerErrors PoolWorkerLifetime Connection
    ListenerClient Poll PicklingConnections Value Array SharedCTypes SharedMemory Finalize Logging
    PollEintr"""
WITH_MANAGER = "Queue Condition Event RemoteManager ManagerRestart"
BESIDES = """TestInitializers TestStdinBadfiledescriptor TestWait TestFlags TestTimeouts
    TestForkAwareThreadLock TestCloseFds TestIgnoreEINTR TestSimpleQueue TestPoolNotLeakOnFailure
    TestSyncManagerTypes"""
"""The classes whose tests start a `Process` or make a `Pool`."""

CASES = [f"WithProcessesTest{name}" for name in WITH_PROCESSES.split()]
CASES += [f"WithManagerTest{name}" for name in WITH_MANAGER.split()]
CASES += BESIDES.split()

_made: dict[str, object] = {"__name__": __name__}
multiprocessing_suite.install_tests_in_module_dict(_made, START_METHOD)
globals().update({name: _made[name] for name in CASES})


@pytest.fixture(scope="module", autouse=True)
def _start_method() -> Iterator[None]:
    """What CPython's own `setUpModule` does; its end would wait for the manager, which jobs use
    until then.
    """
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(START_METHOD, force=True)
    yield
    multiprocessing.set_start_method(before, force=True)
    if manager.cache_info().currsize:
        manager().shutdown()
    manager.cache_clear()
    scheduler().close()


@pytest.fixture(autouse=True)
def _new_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """One test fills its process's descriptors up to 255, and ours serve further jobs; another
    needs a process whose 50th descriptor is free.
    """
    yield
    if request.node.name == "test_large_fd_transfer":
        scheduler().close()
        scheduler.cache_clear()


def test_each_expected_failure_is_a_test_of_cpython() -> None:
    assert [name for name in MULTIPROCESSING if not is_test(name, globals())] == []
