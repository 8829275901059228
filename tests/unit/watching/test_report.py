"""The page on a run."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from gridengine.dispatcher.status_views import status_of
from gridengine.dispatcher.watch_messages import Answer, Ended, Identity
from gridengine.watching.report import page
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
    assert "<h1>&lt;b&gt;.py" in page(answer([]))


def test_what_is_known_of_a_run_is_in_its_page() -> None:
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
