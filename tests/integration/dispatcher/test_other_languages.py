"""The client and the worker in JavaScript, with a real dispatcher."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gridengine
from tests.support.named_client import NamedClient
from tests.support.processes import completed
from tests.support.script_driver import ROOT
from tests.support.standalone import Standalone
from tests.support.waiting import wait_until

SECONDS = 60
FOLDER = ROOT / "examples" / "other_languages"
Call = Callable[..., object]


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the examples, with what they need."""
    if missing := [name for name in ("node", "npm") if shutil.which(name) is None]:
        reason = f"there is no {' and no '.join(missing)} here"
        if os.environ.get("GRIDENGINE_REQUIRE_NODE") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("javascript")
    for file in FOLDER.glob("*.*js*"):
        shutil.copy(file, folder)
    install = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
    subprocess.run(install, cwd=folder, check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def over_tcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    made = Standalone(tmp_path_factory.mktemp("runs"), module="tests.support.tcp_dispatcher")
    yield made
    said = made.end()
    assert made.process.returncode == 0, said
    assert "Traceback" not in said


@pytest.fixture(params=["json", "msgpack"])
def call(javascript: Path, over_tcp: Standalone, request: pytest.FixtureRequest) -> Call:
    """Make calls by the client, and return their results, or its words."""

    def call(name: str, *items: object) -> object:
        words = [request.param, name, *map(json.dumps, items)]
        done = completed(
            ["node", "client.mjs", over_tcp.path, *words], cwd=javascript, timeout=SECONDS
        )
        assert not done.stderr
        return json.loads(done.stdout) if done.returncode == 0 else done.stdout.strip()

    return call


@pytest.fixture
def worker(javascript: Path, over_tcp: Standalone) -> Iterator[subprocess.Popen[str]]:
    command = ["node", "worker.mjs", over_tcp.folder / "worker.json"]
    with subprocess.Popen(command, cwd=javascript, stderr=subprocess.PIPE, text=True) as process:
        yield process
        if process.poll() is None:
            process.terminate()
        _, said = process.communicate(timeout=SECONDS)
        assert not said


def test_both_examples_pass_the_vectors(javascript: Path) -> None:
    vectors = ROOT / "docs" / "protocol" / "vectors"
    done = completed(["node", "vectors.mjs", vectors], cwd=javascript)
    assert done.returncode == 0, done.stderr
    assert "vectors passed" in done.stdout


def test_the_client_has_functions_called_in_python(call: Call) -> None:
    assert call("math:sqrt", 4, 2.25) == [2, 1.5]
    assert call("builtins:sorted", [3, 1, 2]) == [[1, 2, 3]]


def test_the_client_is_told_of_exceptions(call: Call) -> None:
    assert call("math:sqrt", -1) == "ValueError: math domain error"
    assert str(call("no_such:function", 1)).startswith("ModuleNotFoundError: ")


@pytest.mark.usefixtures("worker")
def test_the_worker_makes_the_calls_that_it_announces_and_others_go_elsewhere(call: Call) -> None:
    assert call("mean", [1, 2, 6], [4]) == [3, 4]
    assert call("reversed", "abc") == ["cba"]
    assert call("refuse", "cats") == "RangeError: no cats here"
    [told] = call("where", 0)  # type: ignore[misc]
    assert told["language"] == "javascript"
    assert call("math:floor", 2.5) == [2]
    assert call("math:floor") == []


def test_long_messages_travel_in_pieces(
    over_tcp: Standalone, worker: subprocess.Popen[str]
) -> None:
    named = NamedClient(over_tcp.path, "msgpack")
    text = "".join(map(chr, range(32, 127))) * 10_000
    assert named.results("reversed", [text]) == [text[::-1]]
    named.close()


def test_calls_of_a_worker_that_leaves_wait_for_the_next(
    over_tcp: Standalone, javascript: Path, worker: subprocess.Popen[str]
) -> None:
    named = NamedClient(over_tcp.path)
    assert named.results("slow", [0.0]) == [0]
    tasks = [named.submit("slow", [second]) for second in (0.5, 0.6)]
    worker.send_signal(signal.SIGTERM)
    worker.wait(SECONDS)
    command = ["node", "worker.mjs", over_tcp.folder / "worker.json"]
    with subprocess.Popen(command, cwd=javascript) as other:
        assert [named.outcome(task)[1] for task in tasks] == [[0.5], [0.6]]
        other.terminate()
    named.close()


def test_calls_that_have_not_begun_are_cancelled(
    over_tcp: Standalone, worker: subprocess.Popen[str]
) -> None:
    named = NamedClient(over_tcp.path)
    first, second = (named.submit("slow", [seconds]) for seconds in (1, 3600))
    named.cancel(second)
    assert named.outcome(second)[0].failed
    assert named.outcome(first)[1] == [1]
    named.close()


def test_client_and_worker_find_a_dispatcher_that_was_killed_and_started_again(
    javascript: Path, tmp_path: Path
) -> None:
    made = Standalone(tmp_path)
    command = ["node", "worker.mjs", made.folder / "worker.json"]
    with subprocess.Popen(command, cwd=javascript) as worker:
        calls = ["node", "client.mjs", made.path, "json", "slow", "0.1", "2"]
        with subprocess.Popen(calls, cwd=javascript, stdout=subprocess.PIPE, text=True) as client:
            with gridengine.Client(made.path) as other:
                wait_until(lambda: other.status().running > 0, SECONDS)
                made.kill()
            made = Standalone(tmp_path)
            try:
                assert client.communicate(timeout=SECONDS)[0] == "[0.1,2]\n"
            finally:
                client.kill()
                worker.terminate()
                made.end()
