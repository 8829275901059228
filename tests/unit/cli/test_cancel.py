"""`gridengine cancel`."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from gridengine.cli import calls as module
from gridengine.cli.main import main
from gridengine.dispatcher.watch_messages import CANCEL, Answer
from gridengine.status.rows import Status
from tests.support.watched import WHO, FakeWatched


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> FakeWatched:
    """A dispatcher with three calls, of which two are ended by name."""
    status = Status(waiting=2, running=1)
    one = FakeWatched(lambda ask: Answer(WHO, status, count=2 if ask == CANCEL else 0))
    monkeypatch.setattr(module, "connect", lambda name: one)
    return one


def cancel(*words: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, ["cancel", *words], input=typed)


def acted(watched: FakeWatched) -> list[list[str]]:
    return [list(words) for ask, words in watched.asked if ask == CANCEL]


def test_calls_that_are_named_are_ended_without_a_question(watched: FakeWatched) -> None:
    result = cancel("sweep", "190", "191")
    assert (result.exit_code, result.output) == (0, "2 calls ended\n")
    assert (acted(watched), watched.closed) == ([["190", "191"]], True)


@pytest.mark.parametrize("typed", ["n\n", "\n", ""])
def test_before_all_are_ended_it_is_asked(watched: FakeWatched, typed: str) -> None:
    result = cancel("sweep", typed=typed)
    assert "End all 3 calls of sweep.py?" in result.output
    assert (result.exit_code, acted(watched)) == (1, [])


@pytest.mark.parametrize(("words", "typed"), [((), "y\n"), (("--yes",), "")])
def test_yes_ends_all_calls(watched: FakeWatched, words: tuple[str, ...], typed: str) -> None:
    assert cancel("sweep", *words, typed=typed).exit_code == 0
    assert acted(watched) == [[]]


def test_the_question_names_the_run_whose_calls_end(watched: FakeWatched) -> None:
    watched.run = "seen"
    assert "End all calls of seen at sweep.py?" in cancel("seen", typed="n\n").output


def test_the_exit_status_says_that_nothing_was_ended(watched: FakeWatched) -> None:
    watched.answer = lambda ask: Answer(WHO, Status())
    result = cancel("sweep", "999")
    assert (result.exit_code, result.output) == (
        1,
        "no such call waits or runs; `gridengine calls sweep` lists those that run\n",
    )


def test_named_calls_that_had_ended_are_told(watched: FakeWatched) -> None:
    result = cancel("sweep", "15", "190", "191")
    assert result.output == "2 calls ended; the others neither wait nor run\n"
