"""Complete a NAME in the shell when TAB is pressed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.display import printable
from gridengine.errors import GridEngineError
from gridengine.watching.connections import answers
from gridengine.watching.names import of_answer, word_for
from gridengine.watching.runs_on_disk import ended_answers, ended_words

ANSWER_SECONDS = 0.5
"""How long a dispatcher has to say its name. A user who presses TAB must not wait for a suspended
one.
"""
Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completion(names: Callable[[], Iterable[tuple[str, str]]]) -> Completion:
    """Make a shell completer for (name, description) pairs, filtered by prefix."""

    def complete(
        context: click.Context, parameter: click.Parameter, typed: str
    ) -> list[CompletionItem]:
        try:
            found = dict(names())
        except (GridEngineError, OSError):  # a completer cannot show an error
            return []
        # A name with a control character would name nothing as it is printed: it is left out.
        meant = [one for one in found if one.startswith(typed) and one.isprintable()]
        return [CompletionItem(one, help=" ".join(printable(found[one]).split())) for one in meant]

    return complete


def _watched() -> Iterable[tuple[str, str]]:
    known = [of_answer(one, None) for one in answers(seconds=ANSWER_SECONDS)[0]]
    for one in known:
        yield word_for(one, known), one.about
        yield from ((name, f"a run at {one.title}") for name, file in one.calls.items() if file)


watched_names = _completion(_watched)
"""The dispatchers that run here."""


@_completion
def seen_names() -> Iterable[tuple[str, str]]:
    """Yield the dispatchers that run here, and the last runs that have ended."""
    for one in ended_answers():
        yield one.identity.name, ended_words(one)
        yield one.identity.run_id, ended_words(one)
    yield from _watched()


@_completion
def run_names() -> Iterable[tuple[str, str]]:
    """Yield the named runs."""
    from gridengine.journal import run_reader  # imports SQLite
    from gridengine.journal.run_file import SUFFIX

    for path in run_reader.paths():
        yield path.name.removesuffix(SUFFIX), "a run with a name"


@_completion
def dispatcher_names() -> Iterable[tuple[str, str]]:
    """Yield the stand-alone dispatchers."""
    for folder in DispatcherFolder.all():
        yield folder.name, "a stand-alone dispatcher"
