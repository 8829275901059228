"""What a process imports from its start to a first result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys, subprocess
from subprocess import Popen
import gridengine

modules = {"import": list(sys.modules)}

class Watched(Popen):
    def __init__(self, *arguments, **options):
        modules["fork server"] = list(sys.modules)
        super().__init__(*arguments, **options)

subprocess.Popen = Watched
scheduler = gridengine.ProcessScheduler(1)
[modules["runner"]] = gridengine.map(lambda x: list(sys.modules), [0], scheduler=scheduler)
modules["caller"] = list(sys.modules)
print(json.dumps(modules))
"""
MOST = {"import": 3, "fork server": 30, "runner": 52, "caller": 141}
"""How many modules of this package each has loaded: at `import gridengine`, when a first map starts
its fork server, in a runner, and in the caller when it has the result.
"""
HEAVY = {"zmq", "rich", "psutil", "click", "dill", "asyncio", "multiprocessing", "tempfile"}


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    script = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(script, check=True, capture_output=True, timeout=60)
    modules: dict[str, list[str]] = json.loads(done.stdout)
    return modules


@pytest.mark.parametrize("moment", MOST)
def test_a_first_map_loads_few_modules(loaded: dict[str, list[str]], moment: str) -> None:
    own = [name for name in loaded[moment] if name.partition(".")[0] == "gridengine"]
    assert len(own) <= MOST[moment], own
    assert not HEAVY.intersection(loaded[moment])


def test_the_package_itself_loads_nothing_that_takes_long(loaded: dict[str, list[str]]) -> None:
    assert not {"logging", "pickle", "typing", "re"}.intersection(_new(loaded["import"]))


def test_the_fork_server_starts_before_messages_are_loaded(loaded: dict[str, list[str]]) -> None:
    assert not {"msgspec", "logging"}.intersection(_new(loaded["fork server"]))


def test_a_runner_loads_the_modules_of_a_call_and_few_others(loaded: dict[str, list[str]]) -> None:
    heavy = {"logging", "pathlib", "hashlib", "runpy", "importlib.metadata", "typing_extensions"}
    assert not heavy.intersection(_new(loaded["runner"]))


def test_a_worker_elsewhere_loads_few_modules_before_it_connects() -> None:
    script = (
        "import json, sys; from gridengine.worker import main;"
        "from gridengine.wire import dispatcher_connection; print(json.dumps([*sys.modules]))"
    )
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    modules = json.loads(done.stdout)
    own = [name for name in modules if name.partition(".")[0] == "gridengine"]
    assert len(own) <= 46, own
    # What calls need is imported by its fork server.
    heavy = {"logging", "traceback", "gridengine.resources", "gridengine.serialize.pickling"}
    assert not heavy.intersection(_new(modules))


AGENT = """
import sys
from gridengine.output.stream_writer import StandardStreams
from gridengine.worker import main
from gridengine.worker.agent import Agent
from gridengine.worker.forkserver import ForkServer
from gridengine.worker.runner_handle import ANYWHERE

fork_server = ForkServer.fork_off(main._be_runner, main._make_ready)
streams = StandardStreams(lambda: None)
agent = Agent(
    print, fork_server, slots=1, grace_seconds=1.0, output_bytes=0, streams=streams
)
loaded = ["logging" in sys.modules]
agent.pool._start_runner(ANYWHERE)
loaded.append("logging" in sys.modules)
agent.close()
streams.close()
print(loaded)
"""


def test_an_agent_can_log_once_it_has_a_runner_though_no_descriptor_is_left_then() -> None:
    command = [sys.executable, "-P", "-c", AGENT]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert done.stdout == b"[False, True]\n"


def test_the_caller_loads_neither_dataclasses_nor_openssl(loaded: dict[str, list[str]]) -> None:
    heavy = {"dataclasses", "_hashlib"}
    if sys.version_info >= (3, 14):
        heavy.remove("dataclasses")  # `traceback` loads it, and `logging` that
    assert not heavy.intersection(_new(loaded["caller"]))


def _new(modules: list[str]) -> list[str]:
    """Return the modules that a bare interpreter does not have; `site` may import some."""
    bare = [sys.executable, "-c", "import sys, json, subprocess; print(json.dumps([*sys.modules]))"]
    done = subprocess.run(bare, check=True, capture_output=True, timeout=60, cwd=Path("/"))
    return [name for name in modules if name not in json.loads(done.stdout)]
