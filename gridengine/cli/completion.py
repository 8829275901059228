"""What a shell offers for a NAME when TAB is pressed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from gridengine.errors import GridEngineError

ANSWER_SECONDS = 0.5
"""How long a dispatcher has to say its name: who presses TAB does not wait for one that is stopped.
"""
Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completion(names: Callable[[], Iterable[tuple[str, str]]]) -> Completion:
    """Return what offers those of these names, each with what it is, that begin as was typed."""

    def complete(
        context: click.Context, parameter: click.Parameter, typed: str
    ) -> list[CompletionItem]:
        try:
            found = dict(names())
        except (GridEngineError, OSError):  # a shell has no place for what is wrong
            return []
        meant = [(one, told) for one, told in found.items() if one.startswith(typed)]
        return [CompletionItem(one, help=told) for one, told in meant]

    return complete


def _watched() -> Iterable[tuple[str, str]]:
    from gridengine.watching.dispatchers import answers

    for one in answers(seconds=ANSWER_SECONDS)[0]:
        who = one.identity
        yield who.name, f"process {who.pid} on {who.host}"


def _with_ended() -> Iterable[tuple[str, str]]:
    from gridengine.watching.kept import ended_words, kept_answers

    for one in kept_answers():
        yield one.identity.name, ended_words(one)
        yield one.identity.run_id, ended_words(one)
    yield from _watched()


def _runs() -> Iterable[tuple[str, str]]:
    from gridengine.journal import kept_runs
    from gridengine.journal.run_file import SUFFIX

    for path in kept_runs.paths():
        yield path.name.removesuffix(SUFFIX), "a run with a name"


def _dispatchers() -> Iterable[tuple[str, str]]:
    from gridengine.dispatcher.dispatcher_folder import DispatcherFolder

    for folder in DispatcherFolder.all():
        yield folder.name, "a stand-alone dispatcher"


watched_names = _completion(_watched)
"""Of dispatchers that run here."""
seen_names = _completion(_with_ended)
"""Of these, and of the last runs that have ended."""
run_names = _completion(_runs)
"""Of runs with a name."""
dispatcher_names = _completion(_dispatchers)
"""Of stand-alone dispatchers."""
