"""The part of a job that a worker calls: its target, or the job itself, as `multiprocessing` would
call them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gridengine.call_context.coroutines import finished, library_of, synchronous
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload

OWN = frozenset(
    [
        "_target",
        "_args",
        "_kwargs",
        "_name",
        "_daemon",
        "_mutable",
        "_options",
        "_parent_pid",
        "_closed",
        "_is_running_here",
        "_host",
    ]
)
"""The attributes that `Job` itself sets."""

UNEVALUATED: Mapping[str, Any] = (
    {"annotation_format": 4} if sys.version_info >= (3, 14) else {}  # `annotationlib.Format.STRING`
)
"""Keywords by which `inspect.signature` accepts annotations that name things only a type checker
imports.
"""


class Target:
    """A job's target as it is submitted. All jobs with the same target have the same pickle."""

    def __init__(self, target: Callable[..., Any] | None) -> None:
        self.target = None if target is None else synchronous(target)
        self.__name__ = getattr(target, "__name__", type(target).__name__)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self.target is None:
            return None
        try:
            return self.target(*args, **kwargs)
        except BaseException as error:
            print_uncaught(error)
            raise


class JobOutcome(NamedTuple):
    """How a mutable job's run ended: the attributes it left, and its value or pickled exception."""

    attributes: dict[str, Any]
    value: Any = None
    raised: Payload | None = None


def run_job(job: Any, controller: Any = None) -> Any:
    """Run a `Job` that was pickled as a whole."""
    job._is_running_here = True
    try:
        value = job.run() if controller is None else job.run(controller)
        value = finished(value, library_of(job.run))
    except BaseException as error:
        print_uncaught(error)
        if not job._mutable:
            raise
        return JobOutcome(
            attributes_of(job), raised=[bytes(buffer) for buffer in pickling.dump_exception(error)]
        )
    finally:
        job._is_running_here = False  # the job may be a part of the returned value
    return JobOutcome(attributes_of(job), value) if job._mutable else value


def attributes_of(job: object) -> dict[str, Any]:
    """Return the user's attributes of a job, without those of `Job` itself."""
    return {name: value for name, value in vars(job).items() if name not in OWN}


def print_uncaught(error: BaseException) -> None:
    """Print an uncaught exception of a job to standard error as `multiprocessing` does."""
    with contextlib.suppress(Exception):  # the stream may be closed; the outcome has it too
        if not isinstance(error, SystemExit):
            from multiprocessing.process import current_process

            name = current_process().name
            # The first frame is the caller's in this module, and says nothing to the user;
            # arguments that do not fit have no other.
            top = error.__traceback__
            lines = traceback.format_exception(type(error), error, (top and top.tb_next) or top)
            print(f"Process {name}:\n{''.join(lines)}", end="", file=sys.stderr)
        elif not isinstance(error.code, int | None):
            print(error.code, file=sys.stderr)


def accepts_controller(
    f: Callable[..., Any] | None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> bool:
    """Return whether `f` has a parameter `controller` that these arguments leave free."""
    if f is None:
        return False
    try:
        signature = inspect.signature(_without_annotations(f), **UNEVALUATED)
        parameter = signature.parameters.get("controller")
        if parameter is None or parameter.kind not in (
            parameter.KEYWORD_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        ):
            return False
        return "controller" not in signature.bind_partial(*args, **(kwargs or {})).arguments
    # There is no signature, or the arguments do not fit: then the call itself raises.
    except (TypeError, ValueError):
        return False


def _without_annotations(f: Any) -> Any:
    """Return a callable with the parameters of `f` and no annotations: from Python 3.14 on
    `inspect.signature` evaluates annotations, whatever format is requested.
    """
    f = inspect.unwrap(f, stop=lambda one: hasattr(one, "__signature__"))
    if type(f) is type and not hasattr(f, "__signature__"):
        made_by = (vars(base).get(name) for base in f.__mro__ for name in ("__new__", "__init__"))
        maker = inspect.unwrap(next((one for one in made_by if one is not None), f))
        maker = getattr(maker, "__func__", maker)  # `__new__` is a static method
        return _without_annotations(types.MethodType(maker, f)) if maker is not f else f
    if isinstance(f, functools.partial):
        return functools.partial(_without_annotations(f.func), *f.args, **f.keywords)
    if isinstance(f, types.MethodType):
        return types.MethodType(_without_annotations(f.__func__), f.__self__)
    if not isinstance(f, types.FunctionType) or hasattr(f, "__signature__"):
        call: Any = getattr(type(f), "__call__", None)  # noqa: B004 - the function itself
        is_function = isinstance(call, types.FunctionType) and not hasattr(f, "__signature__")
        return _without_annotations(types.MethodType(call, f)) if is_function else f
    bare = types.FunctionType(f.__code__, {}, f.__name__, f.__defaults__, f.__closure__)
    bare.__kwdefaults__ = f.__kwdefaults__
    return bare
