"""`gridengine watch`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gridengine.cli import watch as module
from gridengine.cli.main import main
from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.status.figures import FailureStatus
from gridengine.status.rows import Status
from gridengine.watching.connections import DispatcherEnded
from tests.support.watched import WHO, FakeWatched

FAILURE = FailureStatus("1.6", "call 6 of f", "f", 1, 2.0, error="bad")


class Ending(FakeWatched):
    """Gives these answers, and ends."""

    def __init__(self, *answers: Status) -> None:
        super().__init__()
        self._answers = [WatchAnswer(WHO, one) for one in answers]
        self.answer = lambda ask: self._answers.pop(0)

    def follow(self) -> None:
        """Send the answers."""

    def next_answer(self) -> WatchAnswer:
        if not self._answers:
            raise DispatcherEnded("it has ended")
        return self._answers.pop(0)


def watch(
    monkeypatch: pytest.MonkeyPatch, *statuses: Status, words: tuple[str, ...] = ()
) -> Result:
    monkeypatch.setattr(module, "connect", lambda name: Ending(*statuses))
    monkeypatch.setattr(module, "report_of", lambda run_id: None)
    return CliRunner().invoke(main, ["watch", *words])


def test_watch_waits_for_the_end_and_is_0_when_no_call_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = watch(monkeypatch, Status(running=2), Status(done=2))
    assert (result.output, result.exit_code) == ("sweep.py has ended, 2 done, 0 failed\n", 0)


def test_watch_is_3_when_calls_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(monkeypatch, Status(running=2, waiting=50)).exit_code == 3


def test_watch_tells_the_first_failure_and_the_end_and_is_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failed = Status(done=1, failed=1, failures=[FAILURE])
    statuses = Status(running=2), failed, failed
    file = tmp_path / "told"
    command = f'echo "$GRIDENGINE_NOTICE_EVENT $GRIDENGINE_NOTICE_ERROR" >> {file}'
    result = watch(monkeypatch, *statuses, words=("--notify", command))
    assert result.output.splitlines() == [
        "sweep.py has its first failed call, 1 done, 1 failed: bad",
        "sweep.py has ended, 1 done, 1 failed: bad",
    ]
    assert result.exit_code == module.CALLS_FAILED
    assert file.read_text() == "failed bad\nended bad\n"
