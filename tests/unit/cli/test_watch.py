"""`gridengine watch`."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from gridengine.cli.main import main
from gridengine.cli.watch import CALLS_FAILED
from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.status.figures import FailureStatus
from gridengine.status.rows import Status
from tests.support.watched import WHO, FakeWatched, Machine

FAILURE = FailureStatus("1.6", "call 6 of f", "f", 1, 2.0, error="bad")


def watch(machine: Machine, *statuses: Status, words: tuple[str, ...] = ()) -> Result:
    left = (WatchAnswer(WHO, one) for one in (Status(), *statuses))  # the first finds it
    machine.add(FakeWatched(lambda ask: next(left)))
    return CliRunner().invoke(main, ["watch", *words])


def test_watch_waits_for_the_end_and_is_0_when_no_call_has_failed(
    machine: Machine,
) -> None:
    result = watch(machine, Status(running=2), Status(done=2))
    assert (result.output, result.exit_code) == ("sweep.py has ended, 2 done, 0 failed\n", 0)


def test_watch_is_3_when_calls_are_left(machine: Machine) -> None:
    assert watch(machine, Status(running=2, waiting=50)).exit_code == 3


def test_watch_tells_the_first_failure_and_the_end_and_is_3(
    machine: Machine, tmp_path: Path
) -> None:
    failed = Status(done=1, failed=1, failures=[FAILURE])
    statuses = Status(running=2), failed, failed
    file = tmp_path / "told"
    command = f'echo "$GRIDENGINE_NOTICE_EVENT $GRIDENGINE_NOTICE_ERROR" >> {file}'
    result = watch(machine, *statuses, words=("--notify", command))
    assert result.output.splitlines() == [
        "sweep.py has its first failed call, 1 done, 1 failed: bad",
        "sweep.py has ended, 1 done, 1 failed: bad",
    ]
    assert result.exit_code == CALLS_FAILED
    assert file.read_text() == "failed bad\nended bad\n"
