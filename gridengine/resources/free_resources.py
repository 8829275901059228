"""The free resources of a holder: one tracker for each kind, made at its first request."""

from __future__ import annotations

from gridengine.resources.base import Combined, Resource


class FreeResources:
    """What a holder has left to give, kept kind by kind. Who does not ask for a kind runs none
    of its code, which may be a user's.

    Args:
        resources: what there is.
        since: since when, in monotonic seconds; None is for who does not care for the time.
    """

    def __init__(self, resources: Resource, since: float | None = None) -> None:
        self._resources = resources
        self._since = since
        self._parts: dict[type[Resource], Resource] = {}

    def of(self, request: Resource, now: float | None = None) -> Combined:
        """Return what is free of the kinds in a request, told the time.

        Raises:
            BaseException: what a kind raised.
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
