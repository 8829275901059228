"""`gridengine top` in a real terminal: tmux's, of which the frames are captured as seen."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.processes import completed
from tests.support.waiting import wait_until

REQUIRED = "GRIDENGINE_REQUIRE_TMUX"
PROMPT = "ready-for-more>"


class Terminal:
    """A terminal with a shell in it, and what is typed there and seen."""

    def __init__(self, socket: Path, folder: Path) -> None:
        self._socket = str(socket)
        shell = f"env PS1='{PROMPT}' bash --norc --noprofile -i"
        size = "-x", "100", "-y", "30"
        self.tmux(
            "-f", "/dev/null", "new-session", "-d", "-s", "t", *size, "-c", str(folder), shell
        )
        self.until_prompted()

    def tmux(self, *words: str) -> str:
        return completed(["tmux", "-S", self._socket, *words], check=True).stdout

    def type(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", "t", *keys)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "t")

    def until(self, *words: str) -> str:
        """Return a screen with all these words on it: it may be seen while it is drawn."""

        def look() -> str:
            seen = self.screen()
            return seen if all(one in seen for one in words) else ""

        return str(wait_until(look))

    def until_prompted(self) -> None:
        """Wait until the shell takes what is typed: before, that may be thrown away."""
        wait_until(lambda: self.screen().rstrip().endswith(PROMPT))

    def on_alternate_screen(self) -> bool:
        return self.tmux("display-message", "-p", "-t", "t", "#{alternate_on}").strip() == "1"

    def child(self) -> int:
        """Return the process that the shell has started."""
        shell = self.tmux("display-message", "-p", "-t", "t", "#{pane_pid}").strip()
        children = Path(f"/proc/{shell}/task/{shell}/children")
        return int(wait_until(lambda: children.read_text().split())[0])

    def click(self, x: int, y: int) -> None:
        """Send what a terminal sends for a click of the mouse's first button, from 0."""
        self.tmux("send-keys", "-t", "t", "-l", f"\x1b[<0;{x + 1};{y + 1}M")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        reason = "tmux is not installed (as root: apt-get install tmux)"
        if os.environ.get(REQUIRED):
            pytest.fail(reason)
        pytest.skip(reason)
    # A Unix socket's path may have 107 characters, which a test's folder may have itself.
    socket = Path("/tmp", f"tmux-{os.getpid()}-{os.urandom(3).hex()}")
    one = Terminal(socket, tmp_path)
    yield one
    one.tmux("kill-server")
    socket.unlink(missing_ok=True)


@pytest.fixture
def top(terminal: Terminal, process: subprocess.Popen[str]) -> Terminal:
    """A terminal that shows `gridengine top`."""
    terminal.type(f"{sys.executable} -m gridengine top", "Enter")
    terminal.until("[functions]")
    return terminal


def test_keys_and_clicks_change_the_view(top: Terminal) -> None:
    assert top.on_alternate_screen()
    top.type("2")
    top.until("call 2 of slow")
    top.type("/1", "Enter")
    top.until("only rows with '1'", "call 1 of slow")
    top.type("/", "Enter")
    lines = top.until("call 2 of slow", "\ncall ", "time").splitlines()
    titles = next(place for place, line in enumerate(lines) if line.startswith("call "))
    top.click(lines[titles].index("time"), titles)
    top.until("time*")
    top.click(lines[titles - 1].index("workers"), titles - 1)
    top.until("[workers]")
    top.click(2, titles + 1)
    top.until("only rows of '")
    top.type("h")
    top.until("Any key goes back")
    top.type("h", "p")
    top.until("PAUSED")


def test_a_frame_fits_when_the_terminal_is_made_smaller_and_larger(top: Terminal) -> None:
    for width, height in ((60, 12), (140, 40)):
        top.tmux("resize-window", "-t", "t", "-x", str(width), "-y", str(height))

        def drawn(width: int = width, height: int = height) -> bool:
            lines = top.screen().splitlines()
            fits = len(lines) <= height and all(len(line) <= width for line in lines)
            return fits and lines[-1].startswith("q quit")

        wait_until(drawn)


ENDS: dict[str, tuple[Callable[[Terminal, subprocess.Popen[str]], object], int]] = {
    "q": (lambda top, process: top.type("q"), 0),
    "Ctrl-C": (lambda top, process: top.type("C-c"), 130),
    "SIGTERM": (lambda top, process: os.kill(top.child(), signal.SIGTERM), 143),
    "SIGHUP": (lambda top, process: os.kill(top.child(), signal.SIGHUP), 129),
    "the dispatcher is killed": (lambda top, process: process.kill(), 0),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_terminal_is_as_it_was_before_and_the_status_says_how_it_ended(
    top: Terminal, process: subprocess.Popen[str], end: str
) -> None:
    act, status = ENDS[end]
    act(top, process)
    wait_until(lambda: not top.on_alternate_screen())
    top.until_prompted()
    # Keys are shown again as they are typed, a line at a time, and clicks are not sent.
    top.type("echo so-it-", "is $?", "Enter")
    seen = top.until(f"\nso-it-is {status}")
    assert f"{PROMPT}echo so-it-is" in seen
    assert top.tmux("display-message", "-p", "-t", "t", "#{mouse_any_flag}").strip() == "0"
