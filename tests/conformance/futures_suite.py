"""CPython's tests of `concurrent.futures`, executed here, with our executor in the place of
`ProcessPoolExecutor`.
"""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.process

import gridengine
from tests.conformance.cpython import FUTURES, Substitute, run_source
from tests.conformance.standard import ProcessPoolExecutor, run_with_ours

_processes = Substitute(concurrent.futures.process, _RemoteTraceback=gridengine.RemoteTraceback)
run_source(
    FUTURES,
    globals(),
    {
        "concurrent.futures": Substitute(
            concurrent.futures, ProcessPoolExecutor=ProcessPoolExecutor, process=_processes
        )
    },
)

_suite = globals()
_suite["assert_python_ok"] = run_with_ours
# The error of a call whose process has died. Nothing is broken by that but the call.
_suite["BrokenProcessPool"] = gridengine.WorkerCrashed
# Threads of executors that earlier tests have left are not a test's concern, and to wait for their
# end takes long.
_suite["threading_helper"] = Substitute(
    _suite["threading_helper"], threading_cleanup=lambda *_: None
)
