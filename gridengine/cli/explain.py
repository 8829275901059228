"""`gridengine explain`: say why calls wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import click

from gridengine.cli.completion import seen_names
from gridengine.cli.console import command, echo, folded, json_option, print_json
from gridengine.dispatcher.watch_messages import CALLS, REASONS, REPORT, WatchAnswer
from gridengine.errors import ConfigurationError
from gridengine.watching.call_explanation import (
    explain_call,
    explain_ended,
    explain_waiting,
    explain_worker,
)
from gridengine.watching.connections import Watched
from gridengine.watching.dispatcher_lookup import or_as_call, running_or_ended
from gridengine.watching.explanation import explain
from gridengine.watching.phrases import Explanation
from gridengine.watching.runs_on_disk import heading

MOST_SAMPLED = 1000
REASONS_SECONDS, LOOK_SECONDS = 15.0, 0.6
"""How long the batch system has to give its reasons, and how often the answer is checked."""


@command("explain", short_help="Say why calls wait, and what to do.")
@click.argument("name", default="", shell_complete=seen_names)
@click.argument("which", metavar="[CALL or WORKER]", default="")
@json_option(": cause, place, text, next_step")
def explain_command(name: str, which: str, as_json: bool) -> None:
    """Say why calls wait, or what is odd, each with the next step.

    NAME is whatever `gridengine ls` prints of a dispatcher, or the name of a run whose calls it
    runs. CALL is a number among a map's calls, an id of `gridengine calls`, or a job's name;
    WORKER a host, a process id or a cluster job.

    For a run that has ended it says what was odd at its end, and why its last calls have failed.

    The exit status is 1 when there is no such dispatcher, run, call or worker.

    Examples:
      gridengine explain                     the only dispatcher that runs
      gridengine explain 190                 call 190 of its map
      gridengine explain sweep               that of sweep.py
      gridengine explain sweep 190           call 190 of its map
      gridengine explain 4242 node7          the workers on node7
    """
    found = or_as_call(_explanations, name, which)
    if as_json:
        print_json(found)
    else:
        for one in found:
            echo(folded(str(one), sys.stdout))
    sys.exit(0)


def _explanations(name: str, which: str) -> list[Explanation]:
    found = running_or_ended(name)
    if isinstance(found, WatchAnswer):
        echo(heading(found, name), err=True)
        return _of_ended(found, which) if which else explain(found)
    with found:
        answer = status_with_reasons(found)
        return _look_up(found, answer, which) if which else explain(answer)


def _of_ended(answer: WatchAnswer, which: str) -> list[Explanation]:
    found = explain_call(answer, which) or explain_ended(answer, which)
    if found:
        return found
    raise ConfigurationError(
        f"{which!r} is not a call of this run",
        hint=f"`gridengine calls {answer.identity.run_id}` lists those that failed last",
    )


def status_with_reasons(watched: Watched, words: Sequence[str] = ()) -> WatchAnswer:
    """Return a dispatcher's status, limited to the workers and calls that `words` name. If workers
    wait in the batch system's queue, ask the batch system for its reasons first.
    """
    answer = watched.ask(most=MOST_SAMPLED, words=words)
    if not any(one.queued for one in answer.status.launches):
        return answer
    watched.ask(REASONS)
    deadline = time.monotonic() + REASONS_SECONDS
    while time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        answer = watched.ask(most=MOST_SAMPLED, words=words)
        if all(one.reason or not one.queued for one in answer.status.launches):
            break
    return answer


def _look_up(watched: Watched, answer: WatchAnswer, which: str) -> list[Explanation]:
    found = [*explain_call(answer, which), *explain_worker(answer.status, which)]
    if found:
        return found
    named = [one for one in watched.ask(CALLS, words=[which]).calls if one.state != "ended"]
    if named:
        waits = [explain_waiting(one) for one in named]
        return waits if named[0].missing else [*waits, *explain(answer)]
    if ended := explain_ended(watched.ask(REPORT), which):
        return ended
    raise ConfigurationError(
        f"{which!r} names no call that waits, runs or has ended, and no worker",
        hint=f"`gridengine calls {answer.identity.name}` lists those that run, and have failed",
    )
