"""`gridengine top`: show a dispatcher live on a terminal, or as plain frames."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from gridengine.cli.completion import watched_names
from gridengine.cli.console import folded, print_json
from gridengine.cli.explain import status_with_reasons
from gridengine.cli.terminal_keys import TerminalKeys
from gridengine.dispatcher.watch_messages import Answer
from gridengine.errors import ClusterError
from gridengine.status.rows import merged
from gridengine.watching.explanation import explain
from gridengine.watching.frames import VIEWS, View, followed_by, frame, part_at
from gridengine.watching.lookup import connect
from gridengine.watching.newest import Newest
from gridengine.watching.watched import Watched

MOST_SAMPLED = 500
LEAST_SECONDS = 0.1
PLAIN_SIZE = 120, 60
"""The width and height of a frame without a terminal."""
FOOT = "q quit  TAB view  s sort  r reverse  / filter  f follow  p pause  h help"
HELP = """\
  q            quit
  TAB, 1 to 7  the next view, or that of this number
  s, r         sort by the next column; the other way round
  /            show only rows with a text: type it, then Enter; empty for all
  f            follow a worker, host, cluster job or function: type which, then
               Enter; empty for all
  UP, DOWN     scroll; SPACE and b by pages
  p            pause, and go on
  h            this help
A click on a title sorts by it, and the other way round; on a view shows it;
on a function, call or worker follows that. (With Shift the terminal selects
text.)
Any key goes back."""


@click.command(
    "top",
    short_help="Show a dispatcher, live.",
    epilog="""\b
Examples:
  gridengine top                    the only dispatcher that runs
  gridengine top sweep --view workers
  gridengine top sweep --view calls --follow node7
  gridengine top sweep --once --json | jq .status.done
  gridengine top sweep --interval 60 >> sweep.log
""",
)
@click.argument("name", default="", shell_complete=watched_names)
@click.option("--once", is_flag=True, help="One frame, and no more.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=1.0,
    show_default=True,
    help="Seconds between two frames.",
)
@click.option(
    "--view", type=click.Choice(tuple(VIEWS)), default="functions", help="What is listed."
)
@click.option("--sort", metavar="COLUMN", default="", help="By which column.")
@click.option("--filter", "filtered", default="", help="Only rows in which this text stands.")
@click.option(
    "--follow",
    metavar="WHICH",
    default="",
    help="Only rows of this worker, host, cluster job or function.",
)
@click.option("--json", "as_json", is_flag=True, help="For scripts: an object for each frame.")
def command(
    name: str,
    once: bool,
    interval: float,
    view: str,
    sort: str,
    filtered: str,
    follow: str,
    as_json: bool,
) -> None:
    """Show a dispatcher's progress: its functions, calls, workers, failures, and log.

    NAME is whatever `gridengine ls` prints of a dispatcher, or a run's name. Without a terminal, or
    on a dumb one, a plain frame is printed each interval. Of many workers, calls and failures an
    even sample is shown, with how many there are.

    The exit status is 1 when there is no such dispatcher, 130 after Ctrl-C at a terminal.
    """
    shown = View(view, filter=filtered, follow=follow, sort=_column(view, sort))
    live = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    with connect(name) as watched:
        if once:
            _print(status_with_reasons(watched, words_of(shown)), shown, as_json=as_json)
        elif live and not as_json:
            _Screen(watched, shown, interval).run()
        else:
            _print_on(watched, shown, interval, as_json=as_json)


def _column(view: str, title: str) -> int | None:
    titles = [column.title for column in VIEWS[view][1]]
    if title and title not in titles:
        raise click.BadParameter(f"{view} has {', '.join(titles)}", param_hint="--sort")
    return titles.index(title) if title else None


def _print(answer: Answer, view: View, *, as_json: bool) -> None:
    if as_json:
        print_json({**msgspec.to_builtins(answer), "explanations": explain(answer)})
        return
    columns, lines = shutil.get_terminal_size(PLAIN_SIZE) if sys.stdout.isatty() else PLAIN_SIZE
    click.echo("\n".join(frame(answer, view, width=columns, height=lines)).rstrip() + "\n")


def _print_on(watched: Watched, view: View, interval: float, *, as_json: bool) -> None:
    """Print frames until the dispatcher ends."""
    watched.follow(most=MOST_SAMPLED, words=words_of(view), interval=interval)
    while True:
        try:
            answer = watched.next_answer()
        except ClusterError as error:
            click.echo(error.message, err=True)
            return
        if as_json:
            click.echo(msgspec.json.encode(answer))
        else:
            _print(answer, view, as_json=False)
        sys.stdout.flush()


def words_of(view: View) -> list[str]:
    """Return the words that the dispatcher's answers are filtered by: what the user follows, if
    anything.
    """
    return [view.follow] if view.follow else []


def merged_answers(before: Answer, after: Answer) -> Answer:
    """Return the later answer, with the last events of both."""
    return replace(after, status=merged(before.status, after.status))


def cpu_between(before: Answer, after: Answer) -> float | None:
    """Return the part of a processor that the dispatcher used between these answers; None when they
    are too close together.
    """
    seconds = after.status.elapsed_seconds - before.status.elapsed_seconds
    return (after.cpu_seconds - before.cpu_seconds) / seconds if seconds > LEAST_SECONDS else None


class _Screen:
    """The alternate screen of a terminal, which is restored however this ends."""

    def __init__(self, watched: Watched, view: View, interval: float) -> None:
        self._watched = watched
        self._view = view
        self._interval = interval
        self._typed: str | None = None
        """The text typed so far for the field `_what` of the view; None when nothing is being
        typed.
        """
        self._what = "filter"
        self._shown: Answer | None = None
        self._help = False
        self._done = False
        self._newest = Newest(merged_answers)
        self._fault: ClusterError | None = None
        """Why no more answers come."""
        self._followed: list[str] | None = None
        """The words to which the answers are limited now; None before the first request."""
        self._cpu: float | None = None

    def run(self) -> None:
        """Draw until the user quits, or the dispatcher ends."""
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
        woken, wake = socket.socketpair()
        for end in (woken, wake):
            end.setblocking(False)
        signal.signal(signal.SIGWINCH, lambda number, frame: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        words = ""
        # Without COLUMNS and LINES, which are wrong once the terminal is resized.
        size = {name: one for name, one in os.environ.items() if name not in ("COLUMNS", "LINES")}
        out = Console(highlight=False, _environ=size)
        try:
            with (
                TerminalKeys(sys.stdin.fileno(), woken) as keys,
                Live(console=out, screen=True, auto_refresh=False) as live,
            ):
                self._follow()
                reader = threading.Thread(target=self._read, args=(wake,), daemon=True)
                reader.start()
                words = self._loop(
                    keys,
                    lambda lines: live.update(
                        Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True
                    ),
                )
        except KeyboardInterrupt:
            sys.exit(130)
        finally:
            signal.set_wakeup_fd(-1)
        if words:
            click.echo(folded(words, sys.stdout))

    def _follow(self) -> None:
        """Limit the answers to what is shown, if they are not yet."""
        words = words_of(self._view)
        if words != self._followed:
            self._followed = words
            self._watched.follow(most=MOST_SAMPLED, words=words, interval=self._interval)

    def _read(self, wake: socket.socket) -> None:
        """Take the dispatcher's answers, in a thread of its own, and wake the loop to draw them."""
        while self._fault is None:
            try:
                self._newest.put(self._watched.next_answer())
            except ClusterError as error:
                self._fault = error
                self._newest.put(None)
            with contextlib.suppress(OSError):  # the loop has yet to wake up, or has ended
                wake.send(b"\0")

    def _loop(self, keys: TerminalKeys, draw: Callable[[list[str]], None]) -> str:
        """Draw and handle keys. Return the words to print at the end."""
        told = answer = self._newest.get()
        if self._fault is not None and told is None:
            raise self._fault
        while not self._done and told is not None and answer is not None:
            draw(self._lines(answer))
            for key in keys.wait():
                self._press(key)
            try:
                self._follow()
            except ClusterError as error:
                self._fault = error
            new = self._newest.take()
            if new is not None:
                self._cpu = cpu_between(told, new) or self._cpu
                told = merged_answers(told, new)
            elif self._fault is not None:
                break
            if not self._view.paused:
                answer = told
        if self._fault is None:
            return ""
        done, failed = (told.status.done, told.status.failed) if told is not None else (0, 0)
        return (
            f"{self._fault.message}; when it was last seen {done:,} calls were done, "
            f"{failed:,} failed"
        )

    def _lines(self, answer: Answer) -> list[str]:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
        self._shown = answer
        if self._help:
            return HELP.splitlines()[:lines]
        foot = f"{self._what}: {self._typed}_" if self._typed is not None else FOOT
        if self._typed is None and self._view.filter:
            foot = f"only rows with {self._view.filter!r};  {foot}"
        if self._typed is None and self._view.follow:
            foot = f"only rows of {self._view.follow!r};  {foot}"
        if self._view.paused:
            foot = f"PAUSED  {foot}"
        return frame(answer, self._view, width=columns - 1, height=lines, cpu=self._cpu, foot=foot)

    def _press(self, key: str) -> None:
        if self._typed is not None:
            self._type(key)
        elif self._help:
            self._help = False
        elif key in ("q", "Q"):
            self._done = True
        elif key in ("h", "?"):
            self._help = True
        elif key in _PROMPTS:
            self._what, self._typed = _PROMPTS[key], ""
        elif key.startswith("click "):
            self._click(*map(int, key.split()[1:]))
        else:
            self._view = pressed(self._view, key)

    def _click(self, x: int, y: int) -> None:
        if self._shown is not None:
            columns, lines = os.get_terminal_size(sys.stdout.fileno())
            part = part_at(self._shown, self._view, (columns - 1, lines), x, y)
            self._view = clicked(self._view, part)

    def _type(self, key: str) -> None:
        typed = self._typed or ""
        if key in ("\r", "\n"):
            self._view, self._typed = replace(self._view, first=0, **{self._what: typed}), None
        elif key == "\x1b":
            self._typed = None
        elif key in ("\x7f", "\b"):
            self._typed = typed[:-1]
        elif len(key) == 1 and key.isprintable():
            self._typed = typed + key


def pressed(view: View, key: str) -> View:
    """Return the view after a key; the same view when the key means nothing."""
    names = list(VIEWS)
    if key == "\t":
        return clicked(view, names[(names.index(view.name) + 1) % len(names)])
    if key.isdecimal() and 1 <= int(key) <= len(names):
        return clicked(view, names[int(key) - 1])
    change = _CHANGES.get(key)
    return view if change is None else replace(view, **change(view))


def clicked(view: View, part: Any) -> View:
    """Return the view after a click on a part of a frame, see `part_at`."""
    if isinstance(part, str):
        return View(part, filter=view.filter, follow=view.follow)
    if isinstance(part, int):
        return replace(view, sort=part, reverse=view.sort == part and not view.reverse, first=0)
    name = followed_by(part)
    return replace(view, follow=name, first=0) if name else view


_PROMPTS = {"/": "filter", "f": "follow"}
"""The field of the view that is typed after a key."""
_CHANGES: Mapping[str, Callable[[View], dict[str, Any]]] = {
    "s": lambda view: {
        "sort": 0 if view.sort is None else (view.sort + 1) % len(view.columns),
        "first": 0,
    },
    "r": lambda view: {"reverse": not view.reverse},
    "p": lambda view: {"paused": not view.paused},
    "down": lambda view: {"first": view.first + 1},
    "up": lambda view: {"first": max(0, view.first - 1)},
    " ": lambda view: {"first": view.first + 10},
    "b": lambda view: {"first": max(0, view.first - 10)},
}
"""The change of the view by a key."""
