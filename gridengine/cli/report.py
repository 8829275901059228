"""`gridengine report`: write a run as one page of HTML."""

from __future__ import annotations

from pathlib import Path

import click

from gridengine.cli.completion import seen_names
from gridengine.cli.console import write_file
from gridengine.dispatcher.watch_messages import REPORT
from gridengine.errors import ConfigurationError
from gridengine.watching.report import page
from gridengine.watching.run_answers import answer_of, heading


@click.command(
    "report",
    short_help="Write a page on a run.",
    epilog="""\b
Examples:
  gridengine report sweep                    sweep.html, of the run under way, or of the last
  gridengine report 20261123-0930 -o a.html
""",
)
@click.argument("name", default="", shell_complete=seen_names)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file (default: NAME.html in this folder).",
)
def command(name: str, output: Path | None) -> None:
    """Write one self-contained HTML file on a run: who ran what when, how long calls took and what
    memory they used, failures by cause, reasons, settings.

    NAME is whatever `gridengine ls` prints of a dispatcher, also of one that has ended, or the name
    of a run whose calls it runs. Without a NAME it is the last. Reports of runs that took over ten
    seconds, or in which a call failed, are stored (the setting `keep_reports`).

    The exit status is 1 when there is no such dispatcher or run.
    """
    answer, runs = answer_of(name, REPORT)
    if not runs:
        click.echo(heading(answer, name), err=True)
    if answer.killed:
        raise ConfigurationError("nothing is kept of its calls that a page could show")
    path = output or Path(f"{Path(answer.identity.name).stem}.html")
    write_file(path, page(answer).encode())
    click.echo(f"{path}: {answer.identity.name}, {answer.identity.run_id}")
