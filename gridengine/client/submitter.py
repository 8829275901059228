"""`Submitter`: an `Executor`, a `Pool` and joblib's backend submit their calls with it."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from msgspec.structs import replace

from gridengine.arguments import whole
from gridengine.call_context.current_call import CARRIED, GVAR
from gridengine.call_context.environment import Variables, own_variables, present_carried
from gridengine.calls.interface import Dispatcher
from gridengine.client.batcher import Batcher
from gridengine.client.connect import connect, resolve, why_not_callable
from gridengine.client.executor_submissions import (
    FunctionTemplates,
    GraphSubmission,
    TrackedSubmission,
)
from gridengine.client.functions import FunctionCache, make_function
from gridengine.client.future import CallFuture, CallTemplate
from gridengine.client.future_outcomes import Failed
from gridengine.client.graph import Graph, fuse, read
from gridengine.client.initializer import Initializer, Prepared, seeded
from gridengine.client.keywords_and_arguments import check_function
from gridengine.client.map_run import MapRun
from gridengine.client.options import CallOptions, RunOptions
from gridengine.client.submission import MapRequest, check_chunksize
from gridengine.errors import ConfigurationError, short_repr
from gridengine.requests import Function
from gridengine.resources.demand import ANY
from gridengine.resources.kinds import WTime
from gridengine.schedulers.base import Scheduler, SchedulerSpec
from gridengine.schedulers.default import make_scheduler
from gridengine.schedulers.workerless import RemoteScheduler
from gridengine.serialize.payload import ATOMS, FULL, SINGLE, STAR, size_of
from gridengine.serialize.references import Reference
from gridengine.serialize.unpicklable import name_of

if TYPE_CHECKING:
    from gridengine.call_context.random_streams import Number
    from gridengine.client.named_run_calls import RunCalls

PLAIN = ATOMS - {str, bytes}
"""Types whose values are small and never change. Most arguments have one of them, and need no
closer look.
"""


PickledFunctions: TypeAlias = tuple[
    Callable[[Callable[..., Any]], FunctionTemplates], tuple[Any, ...], Variables, Variables
]
"""The functions that were pickled in one state of the caller: a function that returns the templates
of a function's calls, one for each form; the carried state; the environment, and a copy of it as it
was then. It is replaced as a whole, because threads that submit at the same time may have different
states.
"""


class Submitter:
    """Submits calls to the dispatcher of a scheduler.

    Args:
        place, max_workers: where the calls run, and how many at a time; see `place_for`. `word` is
            the user's name for `max_workers`.
        initializer: runs in each process before the first call.
        options: for all calls.
        most: how many single calls are handed over at a time; None lets the batcher decide, or
            inside a call takes `max_workers`.
        daemon: whether the interpreter's exit ends the calls instead of waiting for them.
        detach: whether the calls go on when the call that submits them has ended; for nested calls.
        named_run: the options of the calls' named run; None if there is none.
    """

    def __init__(
        self,
        place: SchedulerSpec,
        max_workers: int | None,
        *,
        initializer: Initializer | None,
        options: CallOptions,
        most: int | None = None,
        daemon: bool = False,
        detach: bool = False,
        word: str = "max_workers",
        named_run: RunOptions | None = None,
    ) -> None:
        place = place_for(place, max_workers, word)
        self._named_run: RunCalls | None = None
        if named_run is not None:
            from gridengine.client.named_run_calls import RunCalls  # few need it

            self._named_run = RunCalls(named_run, place, initializer)
            place = self._named_run.place
        with contextlib.ExitStack() as undo:
            if self._named_run is not None:
                undo.callback(self._named_run.close)
            dispatcher, self._scheduler, ours = connect(place)
            if ours:
                undo.callback(self._scheduler.close)
            _check(dispatcher, options)
            # From here on the batcher closes what was opened.
            undo.pop_all()
        self.slots = dispatcher.slots
        # Only the batcher may outlive its users: calls that they submitted still run, and then
        # their workers end.
        self.batcher = Batcher(
            dispatcher,
            self._scheduler,
            ours=ours,
            initializer=initializer,
            most=max_workers if most is None and dispatcher.call_slot is not None else most,
            daemon=daemon,
            detach=detach and dispatcher.call_slot is not None,
            named_run=self._named_run,
        )
        self._initializer = initializer
        self._numbers = itertools.count()
        self.options = options
        self._pickled = self._pickled_in(())

    def _pickled_in(self, carried: tuple[Any, ...]) -> PickledFunctions:
        """Return the functions of calls with these options, the present environment and this
        carried state: none as yet.
        """
        present = own_variables()
        variables = dict(present)
        # The cache refers to no submitter: the functions would otherwise live until the garbage
        # collector runs.
        make = functools.partial(
            _make_templates, self.batcher, self._initializer, self.options, itertools.count()
        )
        return FunctionCache(make).find, carried, present, variables

    def _renewed(self) -> Callable[[Callable[..., Any]], FunctionTemplates]:
        """Return the function that returns the templates of a function's calls, as they were
        pickled in this thread's present state.
        """
        find, known, present, variables = self._pickled
        carried = present_carried()
        if variables != present or carried != known:
            self._pickled = renewed = self._pickled_in(carried)
            find = renewed[0]
        return find

    def with_options(self, options: CallOptions) -> Submitter:
        """Return a submitter with other options that shares everything else with this one.

        Raises:
            ConfigurationError: no worker can ever hold the demand.
        """
        _check(self.batcher.dispatcher, options)
        other = object.__new__(Submitter)
        vars(other).update(vars(self))
        if options.seed is not self.options.seed:
            other._numbers = itertools.count()
        other.options = options
        other._pickled = other._pickled_in(())
        return other

    def __reduce__(self) -> NoReturn:
        refusal = TypeError(
            "a pool or executor cannot travel with a call: leave it out of what is pickled "
            "(__getstate__), or make one inside the call"
        )
        vars(refusal)["refused"] = self  # the error names the pool, not a part of it
        raise refusal

    def _unsent(self, f: Callable[..., Any]) -> CallTemplate:
        """Return a template for calls that are never handed over."""
        function = Function(digest=b"", payload=(), path=(), directory=b"", name=name_of(f))
        return _template(self.batcher, function, SINGLE, self.options)

    def numbers_of_map(self) -> Iterator[Any]:
        """Return the numbers of the calls of the next map; without a seed each is None."""
        if self.options.seed is None:
            return itertools.repeat(None)
        return zip(itertools.repeat(next(self._numbers)), itertools.count())

    def submit(
        self,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        number: Number | None = None,
    ) -> CallFuture:
        """Submit one call. If it cannot be pickled, the error is the future's exception. With a
        seed it has this number, by default the next.

        Raises:
            RuntimeError: the batcher is closed.
        """
        batcher = self.batcher
        if self.options.seed is not None:
            args = *args, next(self._numbers) if number is None else number
        try:
            find, carried, present, variables = self._pickled
            if variables != present or CARRIED or carried:
                find = self._renewed()
            templates, references = find(f)
            call: Any
            if kwargs:
                template, call = templates[FULL], (args, kwargs)
            elif len(args) == 1:
                template, call = templates[SINGLE], args[0]
            else:
                template, call = templates[STAR], args
            given = call
            if references or type(call) not in PLAIN:
                call = template.snapshot(call, references)
        except Exception as error:
            batcher.check()
            return CallFuture(self._unsent(f), None, Failed(error))
        if self._named_run is None:
            future = CallFuture(template, call)
        else:
            future = self._named_run.future_of(self._keyed(f), template, call, given)
            if future.done():
                return future
        batcher.add(future)
        return future

    def map(
        self,
        f: Callable[..., Any],
        form: int,
        calls: Iterator[Any],
        total: int | None,
        chunksize: int | None,
    ) -> tuple[MapRun, CallFuture]:
        """Submit many calls. Return the map that collects their results, and a future that is done
        once all of them have ended. A call that cannot be pickled has a `PicklingError` as its
        outcome.

        Raises:
            RuntimeError: the batcher is closed.
        """
        self.batcher.check()
        if chunksize is not None:
            check_chunksize(chunksize)
        if self.options.seed is not None:
            from gridengine.call_context.random_streams import with_numbers  # few need it

            form, calls = STAR, with_numbers(form, calls, self.numbers_of_map())
        head = list(itertools.islice(calls, 1))
        find = self._renewed()
        template, failure = self._unsent(f), None
        references: tuple[Reference, ...] = ()
        try:
            if head:
                templates, references = find(f)
                template = templates[form]
        except Exception as error:
            # The traceback would refer to this frame, and so to the error.
            failure = error.with_traceback(None)
        named = None if failure is not None else self._named_run
        of_run = None if named is None else named.begin_map(self._keyed(f), template)
        submission = TrackedSubmission(template, self.batcher, references)
        if named is not None and of_run is not None:
            submission.record_in(named, of_run)
        run = MapRun(submission, total, chunksize)
        if failure is not None:
            run.add = functools.partial(submission.add_failed, failure)
        try:
            submission.warn_of_copies(f, total)
            run.send(itertools.chain(head, calls if head else ()))
        except BaseException:
            submission.cancel()
            raise
        finally:
            submission.note_all_sent()
        return run, submission.end

    def submit_graph(
        self, graph: Graph, keys: Iterable[Hashable], *, strict: bool, fuses: bool
    ) -> list[Future[Any]]:
        """Submit the calls that these keys of a graph need; return the futures of the keys.

        strict: a string in a task's arguments is a key, never data.
        fuses: calls that only one other call needs may be fused with it. They are not fused if
        options apply to each call by itself.

        Raises:
            KeyError, CycleError: see `graph.read`.
            RuntimeError: the batcher is closed.
            ConfigurationError: the user has given a seed.
        """
        self.batcher.check()
        if (seed := self.options.seed) is not None:
            if not seed.is_inherited:
                raise ConfigurationError(
                    "the calls of a graph have no numbers, by which seed= would give them streams",
                    hint="give each node its own seed, as an argument",
                )
            unseeded = self.with_options(replace(self.options, seed=None))
            return unseeded.submit_graph(graph, keys, strict=strict, fuses=fuses)
        find = self._renewed()
        wanted, calls = read(graph, keys, strict=strict)
        options = self.options
        each = options.timeout or options.exceptions or options.demand.resources.get(WTime)
        submission = GraphSubmission(self.batcher, find, self._unsent)
        if self._named_run is not None:
            from gridengine.client.named_run_calls import RunGraph  # few need it

            of_run = RunGraph(self._named_run, self._template_of)
            submission.record_in(self._named_run, of_run)
            calls = of_run.left(wanted, calls)
        for node in fuse(calls) if fuses and not each else calls:
            submission.add(node)
        return submission.hand_over(wanted)

    def _template_of(self, f: Callable[..., Any]) -> CallTemplate:
        templates, _ = self._renewed()(f)
        template: CallTemplate = templates[SINGLE]
        return template

    def _keyed(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function by which a named run knows calls: a seed counts."""
        return f if self.options.seed is None else seeded(f, self.options.seed)

    def request(self, f: Callable[..., Any], form: int, chunksize: int) -> MapRequest:
        """Return a request for calls that are submitted as their results are taken. They run beside
        this submitter's calls, on the same workers.
        """
        run = None if self._named_run is None else self._named_run.options
        options = self.options
        if options.seed is not None:
            options = replace(options, seed=options.seed.child(next(self._numbers)))
        return MapRequest(
            f=f,
            form=form,
            scheduler=self._scheduler,
            reraise=True,
            chunksize=chunksize,
            options=options,
            named_run=run,
            initializer=self._initializer,
        )


def _make_templates(
    batcher: Batcher,
    initializer: Initializer | None,
    options: CallOptions,
    copies: Iterator[int],
    f: Callable[..., Any],
    before: FunctionTemplates | None,
) -> tuple[FunctionTemplates, int]:
    """Return the templates of a function's calls, one for each form, and the size of its pickle.
    Calls of equal functions share templates, so that they travel together. `copies` counts the
    functions that take along a generator of random numbers; at the second there is a warning.

    Raises:
        TypeError, PicklingError: the function is not callable, or cannot be pickled.
    """
    if not isinstance(f, Future):
        check_function(f)
    prepared = f if initializer is None else Prepared(f, initializer)
    if options.seed is not None:
        prepared = seeded(prepared, options.seed)
    known = None if before is None else before[0][SINGLE].function
    function = make_function(prepared, options.exceptions, logs=options.logs, before=known)
    copied = getattr(function.payload, "copies_generator", False)
    if copied and batcher.dispatcher.slots > 1 and next(copies) == 1:
        from gridengine.client.copied_generators import warn_of_copies  # few need it

        warn_of_copies(f)
    if before is None or known is None or known.digest != function.digest:
        forms = SINGLE, STAR, FULL
        templates = tuple(_template(batcher, function, form, options) for form in forms)
        before = templates, templates[SINGLE].introduce(function.payload)
    return before, size_of(function.payload)


def _template(
    batcher: Batcher, function: Function, form: int, options: CallOptions
) -> CallTemplate:
    return CallTemplate(
        dispatcher=batcher.dispatcher,
        function=function,
        form=form,
        options=options,
        submitter=batcher.submitter,
        batcher=batcher,
    )


def _check(dispatcher: Dispatcher, options: CallOptions) -> None:
    if options.demand is not ANY:
        dispatcher.check(options.demand)


def place_for(place: SchedulerSpec, max_workers: int | None, word: str) -> SchedulerSpec:
    """Return where calls run. If the number of calls at a time is given, that is a function that
    makes a scheduler for them alone. `word` is the user's name for that number.

    Raises:
        ConfigurationError: `place` is a scheduler instance, or leads to a dispatcher, which has its
            own number.
    """
    if max_workers is None:
        return place
    if callable(max_workers) or isinstance(max_workers, (str, Scheduler)):
        raise TypeError(f"{word} is a number; for {max_workers!r} say scheduler=")
    whole(word, max_workers, hint="leave it out for as many as there are cores")
    if issubclass(place if isinstance(place, type) else type(place), RemoteScheduler):
        raise ConfigurationError(
            f"{word} is given beside a dispatcher, which has workers of its own",
            hint=f"leave {word} out; `gridengine scale NAME {max_workers}` changes their number",
        )
    if isinstance(place, Scheduler):
        raise ConfigurationError(
            f"{word} is given beside a scheduler instance, which has its own max_workers",
            hint="give max_workers to the scheduler",
        )

    if place is None and GVAR.inside:
        return None  # nested calls run where their parent does, without a scheduler of their own

    def make() -> Scheduler:
        if place is None or isinstance(place, str):
            return make_scheduler(place, max_workers)
        return _made_with(place, max_workers, word)

    return make


def _made_with(place: Any, max_workers: int, word: str) -> Scheduler:
    """Call a scheduler class, or another callable that makes a scheduler, with the number.

    Raises:
        TypeError: it takes no such number; or see `connect.resolve`.
    """
    if not callable(place):
        return resolve(place)[0]
    try:
        made: Scheduler = place(max_workers=max_workers)
    except TypeError:
        if why_not_callable(place, max_workers=max_workers) is None:
            raise  # by its own code
        raise TypeError(
            f"{word}={max_workers} is given, and scheduler={short_repr(place)} takes no "
            "max_workers: give the number where the scheduler is made, as in scheduler=lambda: "
            f"gridengine.ProcessScheduler({max_workers})"
        ) from None
    return made
