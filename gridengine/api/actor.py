"""`Actor`: an object that lives in a worker, and whose methods are called from here."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from gridengine.arguments import flag
from gridengine.client.actor_calls import ActorCalls
from gridengine.client.connect import dispatcher_of
from gridengine.client.executor_lifetime import WithBlock
from gridengine.client.options import CallOptions
from gridengine.errors import ConfigurationError, trimmed
from gridengine.schedulers.base import Scheduler

if TYPE_CHECKING:
    from gridengine.api.executor import AwaitableFuture
    from gridengine.resources.base import Resource

OWN = "kill", "shutdown"
"""The names of the handle's own methods, which the object's class cannot have."""


class Actor(WithBlock):
    """The handle of an object that lives in a worker: `scheduler.actor(Class, ...)` makes both.

        with scheduler.actor(Counter, 5) as counter:
            print(counter.increment(2).result())

    Each public method of the class is a method of the handle, and returns a future at once. Calls
    run one after the other, in the order in which they were made. See `docs/actors.md`.
    """

    _numbers = itertools.count(1)

    @trimmed
    def __init__(
        self,
        scheduler: Scheduler,
        make: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        resources: Resource | None,
    ) -> None:
        _check(make)
        self._make = make
        name = getattr(make, "__name__", type(make).__name__)
        options = CallOptions(retries=0, resources=resources)
        dispatcher = dispatcher_of(scheduler)
        kind: type[ActorCalls] = ActorCalls
        if dispatcher.at_once:
            from gridengine.client.inline_actor_calls import InlineActorCalls  # few need it

            kind = InlineActorCalls
        self._calls = kind(dispatcher, scheduler, f"{name}-{next(Actor._numbers)}", options)
        self._lifetime = self._calls
        # When the handle is collected, the calls that were made still run.
        self._finalizer = weakref.finalize(self, self._calls.close, wait=False)
        self._finalizer.atexit = False
        try:
            self._calls.begin(make, args, kwargs)
        except BaseException:
            self._calls.close(wait=False)
            raise

    def __getattr__(self, name: str) -> Callable[..., AwaitableFuture[Any]]:
        """Return a method of the object.

        Raises:
            AttributeError: the class is known, and has no such method; or the name is private.
        """
        if name.startswith("_"):
            raise AttributeError(f"an actor offers public methods alone, not {name!r}")
        _check_method(self._make, name)
        return functools.partial(self._call, name)

    def _call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        return self._calls.call(name, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. Once the calls that were made have ended, end the actor.

        Args:
            wait: return only when it has ended.
            cancel_futures: withdraw calls that were not sent: of slow methods all but the next one
                or two, of quick ones all but some dozens.
        """
        wait = flag("wait", wait)
        self._calls.end(cancel=flag("cancel_futures", cancel_futures))
        self._calls.close(wait=wait)

    def kill(self) -> None:
        """End the actor now, whatever it is doing. Calls without an outcome raise `Cancelled`."""
        self._calls.kill_all()
        self._calls.close(wait=False)

    def __dir__(self) -> list[str]:
        own = [name for name in object.__dir__(self) if not name.startswith("_") or name[1] == "_"]
        names = dir(self._make) if isinstance(self._make, type) else []
        return sorted({*own, *(name for name in names if _is_method(self._make, name))})

    def __repr__(self) -> str:
        calls = self._calls
        where = "waits for a worker"
        if calls.failure is not None:
            where = "has ended"
        elif calls.began_at is not None:
            where = f"process {calls.began_at.pid} on {calls.began_at.host}"
        elif calls.dispatcher.at_once:
            where = "in this process"
        return f"<Actor {calls.name}: {where}>"

    def __reduce__(self) -> NoReturn:
        refusal = TypeError(
            f"the handle of {self._calls.name} works in the process that made it: call its methods "
            "here, and pass on what they return"
        )
        vars(refusal)["refused"] = self  # the error names the handle, not a part of it
        raise refusal


def _check(make: Callable[..., Any]) -> None:
    """Check that an object can be made, and that its methods can be called.

    Raises:
        TypeError: it is neither a class nor a function that makes an object.
        ConfigurationError: a method has a name of the handle's own.
    """
    if not callable(make):
        raise TypeError(f"an actor is made by a class, as actor(Counter, 5), not by {make!r}")
    for name in OWN if isinstance(make, type) else ():
        if hasattr(make, name):
            raise ConfigurationError(
                f"{make.__name__} has a method {name!r}, which the actor's handle has itself",
                hint=f"give a subclass a method of another name that calls self.{name}()",
            )


def _is_method(make: object, name: str) -> bool:
    return not name.startswith("_") and callable(getattr(make, name, None))


def _check_method(make: Callable[..., Any], name: str) -> None:
    """Check that the object has a method, where its class is known.

    Raises:
        AttributeError: it has none.
    """
    if not isinstance(make, type) or _is_method(make, name) or hasattr(make, "__getattr__"):
        return
    if hasattr(make, name):
        raise AttributeError(
            f"{name!r} is an attribute of {make.__name__}, and an actor offers methods alone: "
            "write one that returns it"
        )
    import difflib

    near = difflib.get_close_matches(name, filter(functools.partial(_is_method, make), dir(make)))
    hint = (
        f"; did you mean {near[0]!r}?" if near else "; for an attribute write one that returns it"
    )
    raise AttributeError(f"{make.__name__} has no method {name!r}{hint}")
