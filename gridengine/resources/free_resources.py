"""The free resources of a holder: one account for each kind, made at the first request for it."""

from __future__ import annotations

from gridengine.resources.base import Combined, Resource


class FreeResources:
    """The account of what a holder has left, kind by kind. A call that does not request a kind runs
    none of the kind's code, which may be a user's.

    Args:
        resources: everything that the holder has.
        since: since when, in monotonic seconds; None if time does not matter.
    """

    def __init__(self, resources: Resource, since: float | None = None) -> None:
        self._resources = resources
        self._since = since
        self._parts: dict[type[Resource], Resource] = {}

    def of(self, request: Resource, now: float | None = None) -> Combined:
        """Return the free resources of the kinds in a request, at this time.

        Raises:
            BaseException: an exception of a kind's method.
        """
        parts = [part for kind in map(type, request) if (part := self._part(kind)) is not None]
        if now is not None:
            for part in parts:
                part._at(now)
        return Combined(tuple(parts))

    def _part(self, kind: type[Resource]) -> Resource | None:
        if kind not in self._parts:
            held = self._resources.get(kind)
            if held is None:
                return None
            part = held._held()
            if self._since is not None:
                part._at(self._since)
            self._parts[kind] = part
        return self._parts[kind]
