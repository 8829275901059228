"""`gridengine watch`: wait for the end of a dispatcher's calls, and send messages."""

from __future__ import annotations

import sys

import click

from gridengine.cli.completion import watched_names
from gridengine.cli.console import command, echo, folded
from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.watching.call_descriptions import cause_of
from gridengine.watching.connections import DispatcherEnded, Watched
from gridengine.watching.dispatcher_lookup import connect
from gridengine.watching.notices import ENDED, FAILED, Notice, Notifier, notice_of
from gridengine.watching.runs_on_disk import report_of

CALLS_FAILED = 3


@command("watch", short_help="Wait for the end of a run, and send a message.")
@click.argument("name", default="", shell_complete=watched_names)
@click.option(
    "--notify", metavar="COMMAND", help="A command line that sends each message, as by mail."
)
def watch_command(name: str, notify: str | None) -> None:
    """Wait until a dispatcher has ended. Print a line at the first call that fails and at the end;
    with --notify run a command at each. It finds the message in $GRIDENGINE_NOTICE_TEXT, its parts
    in other variables, and all as JSON in its input.

    NAME is whatever `gridengine ls` prints of a dispatcher, or a run's name.

    The exit status is 0 when all calls are done, 3 when some have failed or are left, 1 when there
    is no such dispatcher or it does not answer, 130 after Ctrl-C.

    Examples:
      gridengine watch sweep
      gridengine watch sweep --notify 'mail -s "$GRIDENGINE_NOTICE_TEXT" me@example.org'
      gridengine watch --notify 'curl -s -d "$GRIDENGINE_NOTICE_TEXT" ntfy.sh/my-sweeps'
    """
    notifier = None if notify is None else Notifier(notify)
    with connect(name) as watched:
        answer = _until_the_end(watched, notifier)
    notice = _notice(answer, ENDED)
    _tell(notice, notifier)
    sys.exit(CALLS_FAILED if notice.failed or notice.left else 0)


def _until_the_end(watched: Watched, notifier: Notifier | None) -> WatchAnswer:
    """Return the last answer of a dispatcher, or its report if it has left one.

    Raises:
        ClusterError: it does not answer.
    """
    answer, told = watched.ask(), False
    watched.follow()
    while True:
        if answer.status.failed and not told:
            told = True
            _tell(_notice(answer, FAILED), notifier)
        try:
            answer = watched.next_answer()
        except DispatcherEnded:
            return report_of(answer.identity.run_id) or answer


def _tell(notice: Notice, notifier: Notifier | None) -> None:
    echo(folded(str(notice), sys.stdout))
    if notifier is not None:
        notifier.send(notice)


def _notice(answer: WatchAnswer, event: str) -> Notice:
    who, failures = answer.identity, answer.status.failures
    error = next((cause_of(one) for one in failures if not one.cancelled), "")
    more = f"gridengine report {who.run_id}"
    return notice_of(
        event, answer.status, error, name=who.name, host=who.host, pid=who.pid, more=more
    )
