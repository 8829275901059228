"""The page on a run."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.status_views import status_of
from gridengine.dispatcher.watch_messages import Answer, Ended, Identity
from gridengine.status.rows import Status
from gridengine.watching.html_report import MOST_ROWS, Bar, page, timeline_of
from tests.support.core_play import Play

WHO = Identity("<b>.py", "run", 4242, "login1", "/b.py", "/", 0.0, "Slurm", "1.2", "3.11")


def answer(timeline: list[Ended]) -> Answer:
    play = Play(max_workers=1)
    play.crash(play.running(3, retries=0), 0)
    play.now += 20
    status = status_of(play.core.state, 100.0, play.now, most=100)
    return Answer(WHO, status, timeline=timeline, settings={"progress": "True"})


class Tags(HTMLParser):
    """The tags that are open, and what is loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing() -> None:
    text = page(answer([Ended("square", "node7 41", 1.0, 2.0)]))
    tags = Tags()
    tags.feed(text)
    assert (tags.open, tags.loaded) == ([], [])
    assert "url(" not in text


def test_names_of_the_users_are_text() -> None:
    found = answer([])
    [function] = found.status.functions
    functions = [replace(function, name="<lambda>")]
    text = page(replace(found, status=replace(found.status, functions=functions)))
    assert "<h1>&lt;b&gt;.py" in text
    assert "<td>&lt;lambda&gt;</td>" in text


def test_a_page_has_all_facts_of_a_run() -> None:
    text = page(answer([]))
    assert "0 calls done, 1 failed" in text
    assert "WorkerCrashed: the process that ran a call of square was killed by SIGSEGV" in text
    assert "setting progress" in text
    assert "1.2" in text


def bars(text: str) -> list[tuple[float, float, float]]:
    """Return the place of each bar of a call that has ended: its left end, its row, its width."""
    bar = r'<rect x="([\d.]+)" y="(\d+)" width="([\d.]+)" [^>]*fill-opacity=".85"'
    found = re.findall(bar, text)
    return [(float(left), float(row), float(width)) for left, row, width in found]


def test_a_call_is_drawn_where_it_ran_as_long_as_it_took() -> None:
    [(left, _, width)] = bars(page(answer([Ended("square", "node7 41", 5.0, 10.0)])))
    assert (left, width) == (pytest.approx(200 + 250), pytest.approx(500))


SCRIPT = Identity("a.py", "run", 4242, "login1", "/a.py", "/", 0.0, "Slurm", "1.2", "3.11")


def run_of(*ended: tuple[str, float, float], seconds: float = 20.0) -> Answer:
    """Return what is told after so many seconds of calls: their worker, when each began, and how
    long it took.
    """
    told = [Ended("f", worker, seconds - start - took, took) for worker, start, took in ended]
    return Answer(SCRIPT, Status(elapsed_seconds=seconds), timeline=told)


def test_calls_at_one_time_have_rows_of_their_own_and_others_share() -> None:
    drawn = timeline_of(run_of(("a", 0, 5), ("a", 0, 9), ("b", 0, 5), ("a", 5, 5), ("a", 5.02, 1)))
    assert [(one.row, one.start) for one in drawn.bars] == [
        *((0, 0), (1, 0), (3, 0)),
        *((0, 5), (2, 5.02)),
    ]
    assert drawn.rows == ["a", "", "", "b"]


def test_a_call_may_begin_a_moment_before_the_one_before_it_in_its_row_has_ended() -> None:
    drawn = timeline_of(run_of(("a", 0, 5), ("a", 4.96, 1)))
    assert drawn.rows == ["a"]


def test_failures_are_told_apart() -> None:
    one = run_of(("a", 1, 2))
    failed = replace(one, timeline=[replace(one.timeline[0], failed=True)])
    assert timeline_of(failed).bars == [Bar(0, 1.0, 2.0, "f", "failed")]


def test_a_call_that_began_before_its_dispatcher_as_clocks_differ_begins_with_it() -> None:
    [bar] = timeline_of(run_of(("a", -3, 5))).bars
    assert bar.start == 0


def test_rows_that_are_too_many_are_left_out_and_counted() -> None:
    drawn = timeline_of(run_of(*((f"{number:03}", 0, 1) for number in range(MOST_ROWS + 7))))
    assert (len(drawn.rows), len(drawn.bars), drawn.left_out) == (MOST_ROWS, MOST_ROWS, 7)


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_run_that_has_just_begun_has_a_timeline(seconds: float) -> None:
    drawn = timeline_of(run_of(seconds=seconds))
    assert (drawn.seconds > 0, list(drawn.bars)) == (True, [])


def test_a_call_that_runs_is_drawn_up_to_now() -> None:
    play = Play(max_workers=1)
    play.crash(play.running(3, retries=0), 0)
    play.now += 20
    status = status_of(play.core.state, 100.0, play.now, most=100)
    drawn = timeline_of(Answer(SCRIPT, status))
    [one] = drawn.bars
    assert (one.state, one.start + one.seconds) == ("running", drawn.seconds)
    assert drawn.rows == ["node-w 41"]
