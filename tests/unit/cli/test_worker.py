"""`gridengine worker`: what is started, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from gridengine.cli import up_worker_drain
from gridengine.cli.main import main
from gridengine.dispatcher.standalone.dispatcher_folder import StartOptions
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.kinds import Cores, GPUs, Memory, Token


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Resource]]:
    """How many workers were started, and what each holds."""
    found: list[tuple[int, Resource]] = []

    @contextmanager
    def extra_workers(scheduler: Any, file: Path, resources: Resource, say: Any) -> Iterator[Any]:
        yield SimpleNamespace(failed=0, resources=resources)

    def run_all(groups: Any) -> None:
        found.extend((count, workers.resources) for workers, count in groups)

    monkeypatch.setattr(up_worker_drain, "default_count", lambda scheduler, file: 8)
    monkeypatch.setattr(up_worker_drain, "extra_workers", extra_workers)
    monkeypatch.setattr(up_worker_drain, "run_all", run_all)
    return found


@pytest.fixture
def worker(tmp_path: Path) -> Any:
    def run(*words: str) -> Result:
        file = tmp_path / "worker.json"
        file.write_text("{}")
        return CliRunner().invoke(main, ["worker", *words, str(file)])

    return run


@pytest.mark.parametrize(
    ("words", "count", "held"),
    [
        ((), 8, ZERO),
        (("-n", "3"), 3, ZERO),
        (("--cores", "4", "--memory", "512M"), 1, Cores(4) & Memory(0.5)),
        (("--token", "licence"), 1, Cores(1) & Token("licence")),
        (("-n", "3", "--token", "licence"), 3, Cores(1) & Token("licence")),
        (("-n", "1", "--gpus", "2"), 1, Cores(1) & GPUs(2)),
    ],
)
def test_each_worker_holds_what_is_said_and_there_are_as_many_as_is_said(
    words: tuple[str, ...], count: int, held: Resource, started: Any, worker: Any
) -> None:
    result = worker(*words)
    assert (result.exit_code, started) == (0, [(count, held)]), result.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-n", "2", "--gpus", "1"), "CUDA_VISIBLE_DEVICES"),
        (("--memory", "lots"), "'lots' is not an amount of memory"),
        (("--cores", "0"), "0 is not in the range"),
        (("--time", "1:00:00"), "No such option"),
    ],
)
def test_resources_that_cannot_be_held_are_refused(
    words: tuple[str, ...], told: str, started: Any, worker: Any
) -> None:
    result = worker(*words)
    assert (result.exit_code, started) == (2, [])
    assert told in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("scheduler", "resources", "words", "exit_code"),
    [
        ("slurm", [], ("--cores", "1"), 1),
        ("slurm", [], (), 0),
        ("slurm", [("Cores", [2, None])], ("--cores", "1"), 0),
        ("none", [], ("--cores", "1"), 0),
    ],
)
def test_without_shared_workers_none_is_started_that_says_what_it_holds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    started: Any,
    scheduler: str,
    resources: Any,
    words: Any,
    exit_code: int,
) -> None:
    options = StartOptions(scheduler, resources=resources)
    (tmp_path / "options.json").write_bytes(msgspec.json.encode(options))
    monkeypatch.setattr(up_worker_drain, "worker_file", lambda name: tmp_path / "worker.json")
    result = CliRunner().invoke(main, ["worker", *words, "sweeps"])
    assert (result.exit_code, bool(started)) == (exit_code, not exit_code), result.output
    assert ("leave out --cores" in result.output) is bool(exit_code)
