"""The rows of docs/differences.md: the same few lines with the standard library and with ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.script_driver import MakeScript

BOTH = """
import concurrent.futures, json, multiprocessing, os, sys, time
from gridengine import Executor, Job, Pool, ProcessScheduler

os.environ["GRIDENGINE_SCHEDULER"] = "processes"
fork, spawn = map(multiprocessing.get_context, ("fork", "spawn"))

def ProcessPoolExecutor(*arguments, mp_context=fork, **options):
    return concurrent.futures.ProcessPoolExecutor(*arguments, mp_context=mp_context, **options)

def tried(call, *arguments, **options):
    "Return the result, or the name of the exception's class."
    try:
        return call(*arguments, **options)
    except BaseException as error:
        return type(error).__name__

def ended(kind, target, *arguments, **options):
    "Return the exit code of a process or job."
    process = kind(target=target, args=arguments, **options)
    process.start()
    process.join()
    return process.exitcode

def lines(path):
    return len(open(path).readlines()) if os.path.exists(path) else 0

def tell(**facts):
    print(json.dumps(facts), flush=True)

"""
Compare = Callable[[str], dict[str, Any]]


@pytest.fixture
def compare(script: MakeScript) -> Compare:
    """Run a script, and return what it tells."""

    def run(source: str) -> dict[str, Any]:
        done = script(BOTH + source).run()
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert told, done.stderr
        return {name: value for facts in told for name, value in facts.items()}

    return run
