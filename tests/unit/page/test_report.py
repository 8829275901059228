"""A run as one file of HTML."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.status_views import status_of
from gridengine.dispatcher.watch_messages import Line, WatchAnswer
from gridengine.page.report import MODULES, report, static
from gridengine.status.figures import EndedCall
from tests.support.core_play import Play
from tests.support.reports import answers_in
from tests.support.watched import WHO


@pytest.fixture
def answer() -> WatchAnswer:
    """The answer of a dispatcher with one call that crashed, and two that run or wait."""
    play = Play(max_workers=1)
    play.crash(play.running(3, retries=0), 0)
    play.now += 20
    return WatchAnswer(
        WHO,
        status_of(play.core.state, 100.0, play.now, most=100),
        lines=[Line(2.0, "launched 1 worker")],
        timeline=[EndedCall("square", "node7 41", 5.0, 10.0)],
        settings={"progress": "True"},
        printed="hello\n",
    )


def test_a_report_loads_nothing(answer: WatchAnswer) -> None:
    text = report(answer, ended=True)
    loaded = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert [one for one in loaded if not one.startswith(("data:", "#"))] == []
    assert "url(" not in text
    assert "default-src 'none'" in text


def test_a_report_has_all_modules_of_the_page() -> None:
    names = {path.name for path in static("").iterdir() if path.name.endswith(".js")}
    assert {f"{name}.js" for name in MODULES} == names


def test_modules_of_a_report_import_nothing(answer: WatchAnswer) -> None:
    assert re.findall(r"^(?:import|export) .*", report(answer, ended=True), re.MULTILINE) == []


def test_a_report_has_the_overview_the_tables_the_timeline_and_the_output(
    answer: WatchAnswer,
) -> None:
    answers = answers_in(report(answer, ended=True))
    told = answers["/overview"]
    assert (told["name"], told["calls"]["failed"], told["seen"]) == (WHO.name, 1, "")
    assert told["ended"]
    [cause] = answers["/rows/causes"]["rows"]
    assert "was killed by SIGSEGV" in cause["cells"][1]
    [line] = answers["/rows/log"]["rows"]
    assert (line["cells"][1], len(line["cells"][0])) == ("launched 1 worker", 19)
    settings = [row["cells"] for row in answers["/rows/settings"]["rows"]]
    assert ["setting progress", "True"] in settings
    assert ["gridengine", "1.2"] in settings
    assert answers["/timeline"]["bars"][0]["function"] == "square"
    assert answers["/logs/the%20output%20of%20calls"] == "hello\n"


def test_a_report_of_a_run_under_way_says_of_when_it_is(answer: WatchAnswer) -> None:
    told = answers_in(report(answer, ended=False))["/overview"]
    assert (told["ended"], len(told["seen"])) == ("", 19)


def test_a_name_of_the_users_ends_no_script(answer: WatchAnswer) -> None:
    [function] = answer.status.functions
    name = "</script><b>"
    status = replace(answer.status, functions=[replace(function, name=name)])
    text = report(replace(answer, status=status), ended=True)
    assert name not in text
    assert answers_in(text)["/rows/functions"]["rows"][0]["cells"][0] == name
