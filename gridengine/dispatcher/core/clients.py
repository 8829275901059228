"""Clients of the dispatcher: who has joined, with which weight, and what ends when one leaves."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from gridengine.dispatcher.core import books, cancellation
from gridengine.dispatcher.core.calls import Client, OpenTask
from gridengine.dispatcher.core.events import CancelRequested, ClientJoined, ClientLeft
from gridengine.dispatcher.core.state import CoreState


def joined(state: CoreState, event: ClientJoined) -> None:
    """Take in a client, or one that is back; its weight may have changed."""
    if event.number < 1 or not event.weight > 0:
        raise ValueError(f"a client cannot have number {event.number}, weight {event.weight}")
    client = state.clients.setdefault(event.number, Client(event.number))
    client.left = False
    books.set_weight(client, event.weight)


def left(state: CoreState, event: ClientLeft) -> None:
    """End the tasks of a client; calls that they have made end with them."""
    client = state.clients.get(event.number)
    if client is None or client is state.own:
        return
    client.left = True
    if client.submitters:  # else there is no need to look at all tasks
        state.open_blocks_of(client)
        found = [one for one in _tasks_of(state, client) if not (one.parent or one.remade)]
        tasks = [one.task.id for one in sorted(found, key=lambda one: one.order)]
        cancellation.cancel_requested(state, CancelRequested(tasks, signal.SIGTERM))
    if not client.submitters:
        state.clients.pop(client.number, None)


def _tasks_of(state: CoreState, client: Client) -> Iterator[OpenTask]:
    """Yield the open tasks of a client. They are looked for from both ends: beside a million of
    another's they came before most of these, or after most.
    """
    left = sum(one.open for one in state.submitters.values() if one.client is client)
    tasks = state.open_tasks.values()
    for both in zip(tasks, reversed(tasks), strict=True):
        for one in both:
            if one.submitter.client is client:
                left -= 1
                yield one
            if not left:
                return
