"""`gridengine page` and `report`: a dispatcher in a browser, live, or as a file."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gridengine.cli.completion import seen_names
from gridengine.cli.console import command, echo, exit_on_signals, write_file
from gridengine.dispatcher.watch_messages import REPORT
from gridengine.errors import ConfigurationError
from gridengine.page.report import report
from gridengine.system.machine import exists
from gridengine.watching.dispatcher_lookup import answer_of
from gridengine.watching.runs_on_disk import check_told, heading
from gridengine.wire.connection_file import is_private

if TYPE_CHECKING:
    from gridengine.page.access import Access

FOLDER = "gridengine-page-{}-"
"""The beginning of the name of a page's folder, with the number of its process."""
OPENER = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>gridengine</title>'
    '<meta http-equiv="refresh" content="0;url={0}"></head><body></body></html>'
)


@command("page", short_help="Show a dispatcher, live, in a browser.")
@click.argument("name", default="", shell_complete=seen_names)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port on 127.0.0.1 (default: any free one).",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in this machine's browser.")
@click.option("--allow-actions", is_flag=True, help="Let the page end calls and drain machines.")
def page_command(name: str, port: int, opens: bool, allow_actions: bool) -> None:
    """Show a dispatcher's progress in a browser, until Ctrl-C: its calls, workers, graph, timeline,
    failures and logs. The address /metrics serves OpenMetrics to programs that send the token as a
    bearer token.

    NAME is whatever `gridengine ls` prints of a dispatcher, or a run's name; one that is started
    again is found again. Of a run that has ended the page shows the report, as `gridengine report`
    writes it. The page is for browsers on this machine that know the printed address, which has a
    token. It is read only unless --allow-actions is given.

    The exit status is 1 when there is no such dispatcher or run, 130 after Ctrl-C.

    Examples:
      gridengine page                      the only dispatcher that runs
      gridengine page sweep --open
      gridengine page sweep --port 8787    the address that a tunnel by ssh leads to
      gridengine page sweep --allow-actions
    """
    try:
        from gridengine.page.source import Source
        from gridengine.page.web_server import address, listen, serve, tunnel
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the page needs {error.name}, which is not installed",
            hint="pip install '.[page]', in the clone that gridengine was installed from",
        ) from error

    remove_left_folders(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=FOLDER.format(os.getpid())) as folder:

        def started(port: int, access: Access) -> None:
            said = address(port, access)
            echo(f"{said}\nfrom another machine, first: {tunnel(port)}\nCtrl-C ends it")
            if source.ended is not None:
                echo(heading(source.ended, name), err=True)
            if opens:
                _open(said, Path(folder))

        exit_on_signals()
        try:
            source = Source(name)
            serve(source, listen(port), actions=allow_actions, started=started)
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)


def remove_left_folders(place: Path) -> None:
    """Remove the folders of this user's pages that were killed."""
    for folder in place.glob(FOLDER.format("*") + "*"):
        found = re.match(FOLDER.format(r"(\d+)"), folder.name)
        if found and is_private(folder) and not exists(int(found[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _open(said: str, folder: Path) -> None:
    """Open the page in the browser, by way of a private file that leads to the address: everybody
    can read the command line of a browser.
    """
    file = folder / "page.html"
    file.write_text(OPENER.format(said))
    if not webbrowser.open(file.as_uri()):
        echo("no browser was found here; open the address above", err=True)


@command("report", short_help="Write a page on a run.")
@click.argument("name", default="", shell_complete=seen_names)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file (default: NAME.html in this folder).",
)
def report_command(name: str, output: Path | None) -> None:
    """Write one self-contained HTML file on a run: who ran what when, how long calls took and what
    memory they used, failures by cause, reasons, settings.

    NAME is whatever `gridengine ls` prints of a dispatcher, also of one that has ended, or the name
    of a run whose calls it runs. Without a NAME it is the last. Reports are stored of runs that
    took over ten seconds, in which a call failed, that somebody watched, or that have workers' logs
    (the setting `keep_reports`).

    The exit status is 1 when there is no such dispatcher or run.

    Examples:
      gridengine report sweep                    sweep.html, of the run under way, or of the last
      gridengine report 20261123-0930 -o a.html
    """
    answer, runs = answer_of(name, REPORT)
    if not runs:
        echo(heading(answer, name), err=True)
    check_told(answer)
    path = output or Path(f"{Path(answer.identity.name).stem}.html")
    write_file(path, report(answer, ended=not runs).encode())
    echo(f"{path}: {answer.identity.name}, {answer.identity.run_id}")
