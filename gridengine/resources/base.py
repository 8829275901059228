"""The base class of resources, `&`, which combines several, and the account of a holder.

The kinds of the package are in `kinds`. A resource has three roles. One class, the *kind*, serves
all of them:

    requested   A user writes it. It never changes. Equal requests are equal and hash alike, in
                whatever order they were combined.
    held        It can be given. `resource.holder()` makes a holder, which keeps account of its
                free part.
    given       A holder's `allocate` returned it and its `deallocate` takes it back: `Cores(2)`
                becomes `Cores(2, [4, 5])`.

A resource's arguments are in its public attributes, which are set once, and in `expression`. A
holder's account is in attributes with an underscore. Nothing here does I/O or reads a clock: a
holder gets the time by `set_time`.
"""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from gridengine.errors import ConfigurationError

R = TypeVar("R", bound="Resource")


FORMER_NAMES = {
    "_request": "can_allocate",
    "_alloc": "allocate",
    "_dealloc": "deallocate",
    "_repr": "expression",
    "_stat": "usage",
    "_at": "set_time",
    "_native": "native_options",
    "_optional": "granted_anyway",
}
"""What users' kinds may still call the members of `Resource`, with a warning."""


class Resource(ABC):
    """The base of all kinds. A kind of your own defines the five abstract methods. They only get
    requests of their own kind.

    `expression` shows every argument: two resources of one kind are equal when their texts are.
    Public attributes are set once.
    """

    granted_anyway: ClassVar[bool] = False
    """Whether a holder without this kind grants it anyway, as for walltime: where no end is set
    there is time enough.
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Let each class have its members by both names, for `super()` in users' classes too."""
        super().__init_subclass__(**keywords)
        for former, name in FORMER_NAMES.items():
            has = [one for one in cls.__mro__ if {former, name} & vars(one).keys()]
            if has[0] is Resource:
                continue
            own = vars(has[0])  # of a mixin, perhaps, which is no resource
            if name in own and former not in own:
                setattr(cls, former, own[name])
            elif former in own and name not in own:
                setattr(cls, name, own[former])
                text = f"{cls.__qualname__}.{former} has a public name now: call it {name}"
                warnings.warn(text, DeprecationWarning, stacklevel=3)

    @abstractmethod
    def can_allocate(self, res: Any) -> bool:
        """Return whether this holder has the requested resources `res` now. The answer depends on
        the holder alone, and nothing changes.
        """

    @abstractmethod
    def allocate(self, res: Any) -> Resource:
        """Take the requested resources `res`, and return the given resources. Called only after
        `can_allocate` returned true.
        """

    @abstractmethod
    def deallocate(self, res: Any) -> None:
        """Take back resources that `allocate` returned."""

    @abstractmethod
    def expression(self) -> str:
        """Return the Python expression that makes an equal resource."""

    @abstractmethod
    def usage(self) -> tuple[float, float]:
        """Return how much of this holder is in use, and how much it has; (0, 0) for a resource that
        is never used up.
        """

    def set_time(self, now: float) -> None:  # noqa: B027 (most kinds do not care)
        """Set a holder's time, in monotonic seconds."""

    def native_options(self, system: str) -> Sequence[str]:
        """Return the options by which the batch system (`"gridengine"` or `"slurm"`) is asked for
        this resource. The default has none; a kind of your own may have some.
        """
        return ()

    _optional, _at, _native = granted_anyway, set_time, native_options

    def _must_have(self, res: Any) -> None:
        if not self.can_allocate(res):
            raise ValueError(f"{self!r} has not {res!r} free")

    def _held(self) -> Self:
        """Return a copy of this resource with an account of its own."""
        return copy.deepcopy(self)

    def holder(self) -> Combined:
        """Return a holder of this resource with everything free. It takes requests of any kind. Not
        thread-safe.
        """
        return Combined(tuple(part._held() for part in self))

    def get(self, kind: type[R]) -> R | None:
        """Return the part of this kind, or None."""
        return next((part for part in self if type(part) is kind), None)

    def __iter__(self) -> Iterator[Resource]:
        """Yield the parts, each of another kind."""
        return iter((self,))

    def __and__(self, other: Resource) -> Resource:
        return _combined((*self, *other)) if isinstance(other, Resource) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Resource) and key_of(self) == key_of(other))

    def __hash__(self) -> int:
        return hash(key_of(self))

    def __repr__(self) -> str:
        return self.expression()

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and name in self.__dict__:
            raise AttributeError(f"{name} of {self!r} does not change: make a new one")
        object.__setattr__(self, name, value)


ResourceKey: TypeAlias = frozenset[tuple[int, str]]
"""A value by which resources compare equal without running a user's code. Valid as long as the
resource lives.
"""


def key_of(resource: Resource) -> ResourceKey:
    """Return the key by which a resource compares equal: its kinds, and the `expression` of each.

    Raises:
        TypeError: an `expression` returns no text. Exceptions of `expression` itself pass through.
    """
    return frozenset((id(type(part)), _text(part)) for part in resource)


def _text(part: Resource) -> str:
    text = part.expression()
    if type(text) is not str:
        raise TypeError(
            f"expression of a {type(part).__qualname__} must return a str, not a "
            f"{type(text).__qualname__}"
        )
    return text


def is_nothing(resource: Resource) -> bool:
    """Return whether this resource has no parts, like `ZERO`. Runs no code of the kinds."""
    return next(iter(resource), None) is None


class Combined(Resource):
    """Several kinds, or none (`ZERO`), as `&` makes it. It has the attributes of its parts."""

    def __init__(self, parts: tuple[Resource, ...]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._parts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle look for such names before `_parts` exists
            raise AttributeError(name)
        having = [part for part in self if hasattr(part, name)]
        if len(having) != 1:
            more = (
                f": {' and '.join(type(part).__name__ for part in having)} have; take one by get()"
                if having
                else ""
            )
            raise AttributeError(f"{self!r} has no one attribute {name!r}{more}")
        return getattr(having[0], name)

    def __setattr__(self, name: str, value: object) -> None:
        if name != "_parts":
            raise AttributeError(f"{self!r} does not change: make a new one")
        super().__setattr__(name, value)

    def can_allocate(self, res: Resource) -> bool:
        return all(
            part.granted_anyway
            if (held := self.get(type(part))) is None
            else held.can_allocate(part)
            for part in res
        )

    def allocate(self, res: Resource) -> Resource:
        """Give all parts or none.

        Raises:
            ValueError: a part is not free. Exceptions of a part's own `allocate` pass through.
        """
        self._must_have(res)
        given: list[Resource] = []
        with ExitStack() as undo:
            for part in res:
                if (held := self.get(type(part))) is None:
                    given.append(part)
                    continue
                given.append(held.allocate(part))
                if type(given[-1]) is not type(part):
                    raise TypeError(
                        f"allocate of {held!r} must return a {type(part).__name__}, not "
                        f"{given[-1]!r}"
                    )
                undo.callback(held.deallocate, given[-1])
            undo.pop_all()
        return _combined(tuple(given))

    def deallocate(self, res: Resource) -> None:
        with ExitStack() as stack:  # gives each part back even if another raises
            for part in res:
                stack.callback(self._take_back, part)

    def _take_back(self, part: Resource) -> None:
        if (held := self.get(type(part))) is not None:
            held.deallocate(part)
        elif not part.granted_anyway:
            raise not_given(self, part)

    def expression(self) -> str:
        return " & ".join(part.expression() for part in self) or "ZERO"

    def usage(self) -> tuple[float, float]:
        """Return the numbers of the part that is used up most."""
        return max(
            (part.usage() for part in self),
            key=lambda stat: stat[0] / stat[1] if stat[1] else -1.0,
            default=(0, 0),
        )

    def set_time(self, now: float) -> None:
        for part in self:
            part.set_time(now)


def _combined(parts: tuple[Resource, ...]) -> Resource:
    kinds = [type(part) for part in parts]
    twice = next((kind for kind in kinds if kinds.count(kind) > 1), None)
    if twice is not None:
        raise ConfigurationError(
            f"{' & '.join(map(repr, parts))}: {twice.__name__} twice", hint="say each kind once"
        )
    return parts[0] if len(parts) == 1 else Combined(parts)


ZERO = Combined(())
"""The empty resource: nothing requested, nothing held."""


def not_given(holder: Resource, res: object) -> ValueError:
    """Return the error for a resource that was never given, or that was given back before."""
    return ValueError(f"{holder!r} never gave {res!r}, or has it back already")


class FreeResources:
    """The account of the resources that a holder has left, kind by kind. A call that does not
    request a kind runs none of the kind's code, which may be a user's.

    Args:
        resources: everything that the holder has.
        since: from when on the holder's time counts, in monotonic seconds; None if time does not
            matter.
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
                part.set_time(now)
        return Combined(tuple(parts))

    def _part(self, kind: type[Resource]) -> Resource | None:
        if kind not in self._parts:
            held = self._resources.get(kind)
            if held is None:
                return None
            part = held._held()
            if self._since is not None:
                part.set_time(self._since)
            self._parts[kind] = part
        return self._parts[kind]
