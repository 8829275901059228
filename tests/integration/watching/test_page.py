"""The page in a real browser, against runs that are under way."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from gridengine.cli.pages import OPENER
from tests.integration.watching.conftest import StartScript
from tests.support.browser import chromium
from tests.support.page_server import SECONDS, PageServer, page_server
from tests.support.waiting import wait_until

SCRIPT = """
import gridengine, time
from pathlib import Path

def wait(name):
    Path(f"begun-{name}").touch()
    while not Path("over").exists():
        time.sleep(0.01)

def load():
    return 1

def fit(part):
    wait("fit")

def summary(part):
    return part

def quick(number):
    if number % 10 == 3:
        raise ValueError(f"{number} is bad")
    if number % 10 == 7:
        raise KeyError("seven")

def slow(number):
    wait(number)

if __name__ == "__main__":
    with (
        gridengine.ProcessScheduler(3) as scheduler,
        gridengine.Executor(scheduler=scheduler) as executor,
    ):
        gridengine.map(quick, range(20), scheduler=scheduler, reraise=False)
        last = executor.submit(summary, executor.submit(fit, executor.submit(load)))
        while not Path("begun-fit").exists():
            time.sleep(0.01)
        gridengine.map(slow, range(30), scheduler=scheduler, chunksize=1, reraise=False)
"""
MILLION = """
import gridengine, time
from pathlib import Path

def hold(number):
    while not Path("over").exists():
        time.sleep(0.01)

if __name__ == "__main__":
    with gridengine.ProcessScheduler(1) as scheduler:
        gridengine.map(hold, range(1_000_000), scheduler=scheduler)
"""
MOST_GROWTH = 300 * 2**20
"""How much memory the tab may take for a million calls more than for none."""

Serve = Callable[..., PageServer]
Show = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=1000 * SECONDS)
    with chromium() as found:
        yield found


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start `gridengine page`; at the end those that run are ended."""
    started: list[PageServer] = []

    def start(*words: str) -> PageServer:
        started.append(page_server(*words))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()


@pytest.fixture
def show(browser: Browser) -> Iterator[Show]:
    """Open the page in a tab. Nothing is loaded from elsewhere, and no script fails there."""
    faults: list[str] = []
    contexts = []

    def opened(server: PageServer, view: str = "overview", width: int = 1280) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900})
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(1000 * SECONDS)
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.on(
            "request",
            lambda one: None if one.url.startswith(server.origin) else faults.append(one.url),
        )
        tab.goto(server.address)
        expect(tab.locator("#tabs a[aria-current]")).to_have_text("overview")
        # The tabs may move when the first numbers come. A press that ends on another element than
        # it began on is none.
        expect(tab.locator("#progress")).not_to_be_empty()
        tab.click(f"#tabs a[href='#{view}']")
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def process(start_script: StartScript, tmp_path: Path) -> subprocess.Popen[str]:
    """A script of whose calls four have failed, and three run, one of them in a graph."""
    started = start_script(SCRIPT)
    wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 3)
    wait_until(lambda: list(tmp_path.glob("runtime/*.sock")))
    return started


def test_the_token_is_left_behind_for_a_cookie_that_scripts_do_not_see(
    process: subprocess.Popen[str], serve: Serve, show: Show
) -> None:
    server = serve("sweep")
    tab = show(server)
    assert server.token not in tab.url
    [cookie] = tab.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert cookie["value"] != server.token
    assert tab.evaluate("document.cookie") == ""


def test_a_file_that_leads_to_the_address_lets_the_browser_in(
    process: subprocess.Popen[str], serve: Serve, browser: Browser, tmp_path: Path
) -> None:
    server, file = serve("sweep"), tmp_path / "page.html"
    file.write_text(OPENER.format(server.address))
    with browser.new_context() as context:
        tab = context.new_page()
        tab.set_default_timeout(1000 * SECONDS)
        tab.goto(file.as_uri())
        expect(tab.locator("#name")).to_have_text("sweep.py")


def test_the_overview_says_how_far_it_is_and_why_calls_wait(
    process: subprocess.Popen[str], serve: Serve, show: Show
) -> None:
    tab = show(serve())
    expect(tab.locator("#name")).to_have_text("sweep.py")
    expect(tab.locator("#progress")).to_contain_text("4 failed, 3 running")
    expect(tab.locator(".why")).to_contain_text("calls wait for a free slot")
    expect(tab.get_by_role("table", name="Functions")).to_contain_text("slow")
    expect(tab.locator(".tiles")).to_contain_text("3 of 3")
    for drawn in ("Timeline of workers", re.compile("on average")):
        expect(tab.get_by_role("img", name=drawn)).to_be_in_viewport()


def test_workers_calls_and_logs_are_listed(
    process: subprocess.Popen[str], serve: Serve, show: Show
) -> None:
    tab = show(serve(), "workers")
    expect(tab.get_by_role("table", name="Workers").locator("tbody tr")).to_have_count(1)
    tab.click("#tabs a[href='#calls']")
    calls = tab.get_by_role("table", name="Calls")
    expect(calls.locator("tbody tr")).to_have_count(3)
    expect(calls).to_contain_text("call 1 of slow")
    tab.click("#tabs a[href='#logs']")
    expect(tab.get_by_role("table")).to_contain_text("launched 1 worker")
    expect(tab.locator("main")).to_contain_text("goes to the script's own output")


def test_rows_are_sorted_by_a_press_on_a_title_and_filtered_by_typed_text(
    process: subprocess.Popen[str], serve: Serve, show: Show
) -> None:
    tab = show(serve(), "failures")
    failed = tab.get_by_role("table", name="Calls that have failed")
    expect(failed.locator("tbody tr")).to_have_count(4)
    title = failed.locator("th").first
    title.locator("button").click()
    expect(title).to_have_attribute("aria-sort", "ascending")
    row = failed.locator("tbody tr").first
    expect(row).to_contain_text("call 13 of quick")
    title.locator("button").focus()
    tab.keyboard.press("Enter")
    expect(title).to_have_attribute("aria-sort", "descending")
    expect(row).to_contain_text("call 7 of quick")
    tab.get_by_label("Filter calls").fill("13 is bad")
    expect(failed.locator("tbody tr")).to_have_count(1)
    causes = tab.get_by_role("table", name="Causes of failures")
    expect(causes.locator("tbody tr")).to_have_count(2)
    expect(causes).to_contain_text("3 is bad")  # of the two the last


def test_a_graph_is_drawn_with_the_states_of_its_calls(
    process: subprocess.Popen[str], serve: Serve, show: Show
) -> None:
    tab = show(serve(), "graph")
    canvas = tab.locator("canvas")
    expect(canvas).to_have_attribute("aria-label", re.compile("2 calls: .* 1 at a worker"))
    canvas.focus()
    tab.keyboard.press("End")
    expect(tab.locator("main [aria-live]")).to_contain_text("summary")
    expect(tab.get_by_role("table")).to_contain_text("fit")


def test_calls_are_drawn_by_worker_and_time(
    process: subprocess.Popen[str], serve: Serve, show: Show
) -> None:
    tab = show(serve(), "timeline")
    expect(tab.locator("main svg rect").first).to_be_visible()
    expect(tab.locator("main p.note")).to_contain_text("3 that run")
    expect(tab.locator("main .legend")).to_contain_text("slow")


def test_keys_lead_to_views_filters_and_rows(
    process: subprocess.Popen[str], serve: Serve, show: Show
) -> None:
    tab = show(serve())
    tab.keyboard.press("3")
    expect(tab.locator("#tabs a[aria-current]")).to_have_text("calls")
    tab.keyboard.press("/")
    expect(tab.get_by_label("Filter")).to_be_focused()


def test_on_a_narrow_screen_only_tables_are_wider_than_it(
    process: subprocess.Popen[str], serve: Serve, show: Show
) -> None:
    tab = show(serve(), width=390)
    for view in (
        "overview",
        "workers",
        "calls",
        "graph",
        "timeline",
        "failures",
        "logs",
        "settings",
    ):
        tab.click(f"#tabs a[href='#{view}']")
        expect(tab.locator("main h2").first).to_have_text(view)
        expect(tab.locator("main table, main svg").first).to_be_attached()
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_calls_are_ended_there(process: subprocess.Popen[str], serve: Serve, show: Show) -> None:
    tab = show(serve("sweep", "--allow-actions"), "calls")
    tab.get_by_role("combobox").select_option("open")
    tab.get_by_label("Filter").fill("25")
    # Of the calls that run, the table before, one may have a 25 in its time.
    expect(tab.locator("tbody tr")).to_have_text([re.compile("call 25 of slow")])
    tab.get_by_role("button", name="end").click()
    expect(tab.get_by_role("dialog")).to_contain_text("End call 25 of slow?")
    tab.get_by_role("button", name="Yes").click()
    expect(tab.locator("#progress")).to_contain_text("4 failed, 1 cancelled")


def test_when_the_dispatcher_is_started_again_it_is_found_again(
    process: subprocess.Popen[str],
    start_script: StartScript,
    serve: Serve,
    show: Show,
    tmp_path: Path,
) -> None:
    tab = show(serve())
    expect(tab.locator("#where")).to_contain_text(f"process {process.pid}")
    process.kill()
    process.wait(SECONDS)
    expect(tab.locator("#link")).to_contain_text("looked for until it is there again")
    again = start_script(SCRIPT)
    expect(tab.locator("#where")).to_contain_text(f"process {again.pid}")
    expect(tab.locator("#link")).to_be_empty()


@pytest.fixture
def kept_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runs that are begun from here on leave their report."""
    monkeypatch.setenv("GRIDENGINE_KEEP_REPORTS", "1")


@pytest.mark.usefixtures("kept_report")
def test_after_the_end_of_a_run_its_outcome_failures_and_timeline_are_there(
    process: subprocess.Popen[str], serve: Serve, show: Show, tmp_path: Path
) -> None:
    server = serve()
    tab = show(server, "failures")
    expect(tab.locator("#progress")).to_contain_text("4 failed")
    (tmp_path / "over").touch()
    process.wait(SECONDS)
    ended = re.compile(r"Ended at \d\d:\d\d on [\d-]+, 49 done, 4 failed. It took .* The report")
    expect(tab.locator("#progress")).to_have_text(ended)
    expect(tab.locator("#link")).to_be_empty()
    expect(tab.get_by_role("table", name="Calls that have failed")).to_contain_text("number=17")
    link = tab.locator("#progress a")
    link.focus()
    for _ in range(2):
        with tab.expect_response(lambda answer: "/rows/failures" in answer.url):
            pass  # the page is drawn anew
    expect(link).to_be_focused()
    with tab.expect_download() as saved:
        link.click()
    assert saved.value.suggested_filename == "sweep.html"
    for page in (server, serve("sweep")):  # one that is opened after the end, too
        again = show(page, "timeline")
        expect(again.locator("#progress")).to_have_text(ended)
        expect(again.locator("main svg rect").first).to_be_visible()


@pytest.mark.usefixtures("kept_report")
def test_a_report_shows_a_run_from_its_file_alone(
    process: subprocess.Popen[str], browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "over").touch()
    process.wait(SECONDS)
    words = [sys.executable, "-m", "gridengine", "report", "sweep"]
    subprocess.run(words, cwd=tmp_path, check=True)
    faults: list[str] = []
    with browser.new_context(offline=True, viewport={"width": 390, "height": 900}) as context:
        tab = context.new_page()
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.on("console", lambda said: faults.append(said.text))
        tab.goto((tmp_path / "sweep.html").as_uri())
        expect(tab.locator("#progress")).to_contain_text("49 done, 4 failed. It took")
        names = ["overview", "timeline", "failures", "logs", "settings"]
        expect(tab.locator("#tabs li:not([hidden]) a")).to_have_text(names)
        expect(tab.get_by_role("table", name="Functions")).to_contain_text("quick")
        tab.keyboard.press("2")
        expect(tab.locator("main svg rect").first).to_be_visible()
        expect(tab.get_by_role("table")).to_contain_text("slow")
        tab.click("#tabs a[href='#failures']")
        failed = tab.get_by_role("table", name="Calls that have failed")
        expect(failed.locator("tbody tr")).to_have_count(4)
        tab.get_by_label("Filter calls").fill("13 is bad")
        expect(failed.locator("tbody tr")).to_have_count(1)
        tab.click("#tabs a[href='#settings']")
        expect(tab.get_by_role("table")).to_contain_text("setting keep_reports")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert faults == []


def test_a_million_calls_are_scrolled_through_in_little_memory(
    start_script: StartScript, serve: Serve, show: Show, browser: Browser
) -> None:
    start_script(MILLION)
    tab = show(wait_until(lambda: _served(serve)), "calls")
    expect(tab.locator("#progress")).to_contain_text("0 of 1,000,000 calls")
    before = _memory_of_tabs()
    tab.get_by_role("combobox").select_option("open")
    table, region = tab.get_by_role("table", name="Calls"), tab.get_by_role("region")
    expect(table).to_have_attribute("aria-rowcount", "1000001")
    region.focus()
    for key, call in (("End", 999_999), ("Home", 0), ("PageDown", 20), ("ArrowDown", 21)):
        tab.keyboard.press(key)
        expect(table).to_contain_text(f"call {call} of hold")
    for part in range(1, 100):
        with tab.expect_response(lambda answer: "/rows/open" in answer.url):
            region.evaluate(f"one => {{ one.scrollTop = one.scrollHeight * {part} / 100 }}")
    expect(tab.locator(".range")).to_contain_text(" of 1,000,000")
    expect(table.locator("tbody tr")).to_have_count(20)
    assert _memory_of_tabs() - before < MOST_GROWTH


def _served(serve: Serve) -> PageServer | None:
    """Return the page once there is a dispatcher for it."""
    try:
        return serve()
    except AssertionError:
        return None


def _memory_of_tabs() -> int:
    """Return the memory in bytes of what draws the browser's tabs."""
    found = []
    for one in psutil.Process(os.getpid()).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since
            if "--type=renderer" in one.cmdline():
                found.append(one.memory_full_info().uss)
    assert found
    return sum(found)


def test_ctrl_c_ends_it_though_it_is_looked_at(
    process: subprocess.Popen[str], serve: Serve, show: Show
) -> None:
    server = serve()
    tab = show(server)
    assert server.end() == 130
    expect(tab.locator("#link")).to_contain_text("gives no answer")
