"""Calls inside calls that run in their own process all the same: in a call that is made in its
caller's own process, and in a process that a call has forked.
"""

from __future__ import annotations

import json

from gridengine.schedulers.workerless import WARNING
from tests.support.script_driver import MakeScript

SOURCE = """
import json, os

def whoami(_=None):
    return os.getpid()

def inner(_):
    return os.getpid(), gridengine.map(whoami, range(3)), gridengine.Pool(2).map(whoami, [0])

def forks(_):
    reading, writing = os.pipe()
    if os.fork() == 0:
        pid, pids, more = inner(0)
        os.write(writing, b"alike" if {*pids, *more} == {pid} else b"not")
        os._exit(0)
    os.wait()
    return os.read(reading, 100).decode()
"""


def test_calls_inside_an_inline_call_run_there_and_say_so_once(script: MakeScript) -> None:
    one = script(
        SOURCE
        + """
found = gridengine.map(inner, range(3), scheduler=gridengine.InlineScheduler())
print(json.dumps([{pid} == {*pids, *more} for pid, pids, more in found]))
"""
    )
    done = one.run()
    assert json.loads(done.stdout) == [True] * 3, done.stderr
    assert done.stderr.count(WARNING) == 1


def test_calls_in_a_process_that_a_call_has_forked_run_there(script: MakeScript) -> None:
    one = script(
        SOURCE
        + """
with gridengine.ProcessScheduler(1) as scheduler:
    print(json.dumps(gridengine.map(forks, [0, 1], scheduler=scheduler)))
"""
    )
    done = one.run()
    assert json.loads(done.stdout) == ["alike"] * 2, done.stderr
    assert one.leftovers() == []
