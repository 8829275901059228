"""Tasks as tests make them: with any of their options."""

from __future__ import annotations

from typing import Any

from gridengine.requests import Task, TaskOptions
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_objects import SharedObject


def make_task(
    id: int,
    payload: Payload,
    count: int = 1,
    *,
    first: int = 0,
    needs: tuple[SharedObject, ...] = (),
    after: tuple[int, ...] = (),
    kept: tuple[tuple[int, int], ...] = (),
    **options: Any,
) -> Task:
    """Return a task with these fields and `options`."""
    return Task(id, payload, count, TaskOptions(**options), first, needs, after, kept)
