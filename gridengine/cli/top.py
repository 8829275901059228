"""`gridengine top`: show a dispatcher live on a terminal, or as plain frames."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import click
import msgspec
from msgspec.structs import replace

from gridengine.cli.completion import watched_names
from gridengine.cli.console import (
    command,
    echo,
    exit_on_signals,
    folded,
    json_option,
    print_json,
    time_of,
)
from gridengine.cli.explain import status_with_reasons
from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.errors import ClusterError
from gridengine.status.rows import merged
from gridengine.watching.connections import DispatcherEnded, Watched
from gridengine.watching.dispatcher_lookup import connect
from gridengine.watching.explanation import explain
from gridengine.watching.runs_on_disk import last_words
from gridengine.watching.top_tables import VIEWS, View, followed_by, frame, part_at

_ARROWS = {"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down"}
_LONG = "up", "down", "click"
_SEQUENCE = re.compile(r"\x1b[\[O][0-?]*[ -/]*[@-~]|.", re.DOTALL)
"""A key as terminals send it: a control sequence (ECMA-48, 5.4), or a character."""
_MOUSE = re.compile(r"\x1b\[<(\d+);(\d+);(\d+)M")
"""A pressed mouse button and its position (xterm's control sequences, SGR 1006)."""
_WHEEL = {"64": "up", "65": "down"}
_MOUSE_ON, _MOUSE_OFF = b"\x1b[?1000h\x1b[?1006h", b"\x1b[?1006l\x1b[?1000l"


def keys_in(typed: str) -> list[str]:
    """Return the keys in a terminal's input: characters, and `up` and `down`, which the mouse's
    wheel sends too. The first mouse button gives `click X Y`, from 0. Other keys are ignored.
    """
    keys = map(_key, _SEQUENCE.findall(typed))
    return [key for key in keys if len(key) == 1 or key.partition(" ")[0] in _LONG]


def _key(typed: str) -> str:
    mouse = _MOUSE.fullmatch(typed)
    if mouse is None:
        return _ARROWS.get(typed, typed)
    button, x, y = mouse.groups()
    return f"click {int(x) - 1} {int(y) - 1}" if button == "0" else _WHEEL.get(button, "")


@contextlib.contextmanager
def keys_at_once(fd: int) -> Iterator[None]:
    """Let the terminal send each key and click at once, without echo."""
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        os.write(fd, _MOUSE_ON)
        yield
    finally:
        with contextlib.suppress(OSError):  # the terminal is gone
            os.write(fd, _MOUSE_OFF)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


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


@command("top", short_help="Show a dispatcher, live.")
@click.argument("name", default="", shell_complete=watched_names)
@click.option("--once", is_flag=True, help="Print one frame, and exit.")
@click.option(
    "--interval",
    type=time_of(least=0.2),
    default=1.0,
    show_default=True,
    help="The time between two frames: seconds, or 5 min.",
)
@click.option(
    "--view", type=click.Choice(tuple(VIEWS)), default="functions", help="The table to show."
)
@click.option("--sort", metavar="COLUMN", default="", help="Sort by this column.")
@click.option("--filter", default="", help="Only rows that contain this text.")
@click.option(
    "--follow",
    metavar="WHICH",
    default="",
    help="Only rows of this worker, host, cluster job or function.",
)
@json_option(": an object for each frame")
def top_command(
    name: str, *, once: bool, interval: float, as_json: bool, view: str, sort: str, **rows: Any
) -> None:
    """Show a dispatcher's progress: its functions, calls, workers, failures, and log.

    NAME is whatever `gridengine ls` prints of a dispatcher, or a run's name. Without a terminal, or
    on a dumb one, a plain frame is printed each interval. Of many workers, calls and failures an
    even sample is shown, with how many there are.

    The exit status is 1 when there is no such dispatcher, 130 after Ctrl-C at a terminal.

    Examples:
      gridengine top                    the only dispatcher that runs
      gridengine top sweep --view workers
      gridengine top sweep --view calls --follow node7
      gridengine top sweep --once --json | jq .status.done
      gridengine top sweep --interval 60 >> sweep.log
    """
    shown = View(view, sort=_column(view, sort), **rows)
    live = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    with connect(name) as watched:
        if once:
            _print(status_with_reasons(watched, shown.words), shown, as_json=as_json)
        elif live and not as_json:
            _Screen(watched, shown, interval).run()
        else:
            _print_on(watched, shown, interval, as_json=as_json)


def _column(view: str, title: str) -> int | None:
    titles = [column.title for column in VIEWS[view][1]]
    if title and title not in titles:
        raise click.BadParameter(f"{view} has {', '.join(titles)}", param_hint="--sort")
    return titles.index(title) if title else None


def _print(answer: WatchAnswer, view: View, *, as_json: bool) -> None:
    if as_json:
        print_json({**msgspec.to_builtins(answer), "explanations": explain(answer)})
        return
    columns, lines = shutil.get_terminal_size(PLAIN_SIZE) if sys.stdout.isatty() else PLAIN_SIZE
    echo("\n".join(frame(answer, view, width=columns, height=lines)).rstrip() + "\n")


def _print_on(watched: Watched, view: View, interval: float, *, as_json: bool) -> None:
    """Print frames until the dispatcher ends."""
    watched.follow(most=MOST_SAMPLED, words=view.words, interval=interval)
    answer: WatchAnswer | None = None
    while True:
        try:
            answer = watched.next_answer()
        except ClusterError as error:
            echo(_end(error, answer), err=True)
            return
        if as_json:
            click.echo(msgspec.json.encode(answer))
        else:
            _print(answer, view, as_json=False)
        sys.stdout.flush()


def _end(fault: ClusterError, last: WatchAnswer | None) -> str:
    """Return how a run has ended, whose `last` answer this was, or why no more answers come.

    Raises:
        ClusterError: there was no answer.
    """
    if last is None:
        raise fault
    if isinstance(fault, DispatcherEnded):
        return last_words(last)
    return f"{fault.message}; when it was last seen, of its calls {last.status.ended_words}"


def cpu_between(before: WatchAnswer, after: WatchAnswer) -> float | None:
    """Return the part of a processor that the dispatcher used between these answers; None when they
    are too close together.
    """
    seconds = after.status.elapsed_seconds - before.status.elapsed_seconds
    return (after.cpu_seconds - before.cpu_seconds) / seconds if seconds > LEAST_SECONDS else None


Event: TypeAlias = WatchAnswer | ClusterError | list[str]
"""An answer, the reason why no more come, or keys; no keys mean to draw again."""


class _Screen:
    """The alternate screen of a terminal, which is restored however this ends.

    Two threads put keys and answers into one queue of events, and this thread draws.
    """

    def __init__(self, watched: Watched, view: View, interval: float) -> None:
        self._watched = watched
        self._view = view
        self._interval = interval
        self._events = queue.SimpleQueue[Event]()
        self._read_on = threading.Semaphore(0)
        """Lets the thread read the next keys. What is typed after `q` is the shell's."""
        self._typed: str | None = None
        """The text typed so far for the view's field `_what`; None when nothing is being typed."""
        self._what = "filter"
        self._told: WatchAnswer | None = None
        """The last answer, with the events of those before."""
        self._shown: WatchAnswer | None = None
        """The answer on the screen, which stays while the user pauses."""
        self._help = False
        self._done = False
        self._fault: ClusterError | None = None
        self._followed: list[str] | None = None
        """The words to which the answers are limited now; None before the first request."""
        self._cpu: float | None = None

    def run(self) -> None:
        """Draw until the user quits, or the dispatcher ends."""
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        exit_on_signals()
        signal.signal(signal.SIGWINCH, lambda number, frame: self._events.put([]))
        # Without COLUMNS and LINES, which are wrong once the terminal is resized.
        size = {name: one for name, one in os.environ.items() if name not in ("COLUMNS", "LINES")}
        out = Console(highlight=False, _environ=size)
        try:
            with (
                keys_at_once(sys.stdin.fileno()),
                Live(console=out, screen=True, auto_refresh=False) as live,
            ):
                self._follow()
                for read in (self._read_answers, self._read_keys):
                    threading.Thread(target=read, daemon=True).start()
                while not self._done and self._fault is None:
                    self._take(self._events.get())
                    if self._shown is not None and self._events.empty():
                        lines = "\n".join(self._lines(self._shown))
                        live.update(Text(lines, no_wrap=True, overflow="crop"), refresh=True)
        except KeyboardInterrupt:
            sys.exit(130)
        if self._fault is not None:
            echo(folded(_end(self._fault, self._told), sys.stdout))

    def _follow(self) -> None:
        """Ask for answers that are limited to the rows on the screen, unless they already are."""
        words = self._view.words
        if words != self._followed:
            self._followed = words
            self._watched.follow(most=MOST_SAMPLED, words=words, interval=self._interval)

    def _read_answers(self) -> None:
        try:
            while True:
                self._events.put(self._watched.next_answer())
        except ClusterError as error:
            self._events.put(error)

    def _read_keys(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            while typed := os.read(sys.stdin.fileno(), 1024):
                if keys := keys_in(typed.decode(errors="replace")):
                    self._events.put(keys)
                    self._read_on.acquire()
        self._events.put(["q"])

    def _take(self, event: Event) -> None:
        if isinstance(event, ClusterError):
            self._fault = event
        elif isinstance(event, WatchAnswer):
            if self._told is not None:
                self._cpu = cpu_between(self._told, event) or self._cpu
                event = replace(event, status=merged(self._told.status, event.status))
            self._told = event
        elif event:
            for key in event:
                self._press(key)
            if not self._done:
                self._read_on.release()
            try:
                self._follow()
            except ClusterError as error:
                self._fault = error
        if self._shown is None or not self._view.paused:
            self._shown = self._told

    def _lines(self, answer: WatchAnswer) -> list[str]:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
        if self._help:
            return HELP.splitlines()[:lines]
        view = self._view
        parts = ["PAUSED"] if view.paused else []
        if self._typed is not None:
            parts.append(f"{self._what}: {self._typed}_")
        else:
            parts += [f"only rows of {view.follow!r};"] if view.follow else []
            parts += [f"only rows with {view.filter!r};"] if view.filter else []
            parts.append(FOOT)
        foot = "  ".join(parts)
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
