"""What users say of their calls: their options, those of named runs, and arguments."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine import Job, JobDispatcher, Memory
from gridengine.api.named_runs import NamedRun
from gridengine.client.keywords_and_arguments import (
    CallChanges,
    CallKeywords,
    argument_tuples,
    length_of,
)
from gridengine.client.options import CallOptions, given, run_options
from gridengine.errors import ConfigurationError
from gridengine.resources.demand import ANY, Demand
from tests.support.fake_dispatcher import FakeScheduler


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"retries": -1}, ValueError, "retries must be at least 0, not -1"),
        ({"retries": 1.5}, TypeError, "retries must be a whole number, not 1.5"),
        ({"retries": True}, TypeError, "retries must be a whole number, not True"),
        ({"priority": "high"}, TypeError, "priority must be a whole number, not 'high'"),
        ({"priority": 1 << 40}, ValueError, "priority must be at most"),
        ({"timeout": 0}, ValueError, "timeout must be above zero, and finite, not 0"),
        ({"timeout": float("nan")}, ValueError, "timeout must be above zero, and finite, not nan"),
        ({"timeout": "5"}, ValueError, "timeout='5' is not a time"),
        ({"escalate_memory": 0.5}, ValueError, "escalate_memory must be at least 1, not 0.5"),
        ({"escalate_memory": "twice"}, TypeError, "escalate_memory must be a number, not 'twice'"),
        (
            {"retry_on": (OSError, "ValueError")},
            TypeError,
            "retry_on must be exception classes, such as (OSError,), not 'ValueError'",
        ),
        ({"retry_on": "OSError"}, TypeError, "as (OSError,), not 'OSError'"),
        ({"retry_on": int}, TypeError, "as (OSError,), not <class 'int'>"),
        ({"retry_on": OSError()}, TypeError, "as (OSError,), not OSError()"),
        (
            {"timeout": 1e308},
            ValueError,
            "timeout must be at most 2,147,483,647, not 1e+308",
        ),
        ({"timeout": 10**400}, ValueError, "not 10000000000"),
        ({"timeout": 10**5000}, ValueError, "not a number of 16610 bits"),
        (
            {"retries": 10**30},
            ValueError,
            "retries must be at most 2,147,483,647, not 1000000000000000000000000000000",
        ),
        (
            {"escalate_memory": 10**400},
            ValueError,
            "escalate_memory must be above zero, and finite",
        ),
        (
            {"escalate_memory": 0.5},
            ValueError,
            "escalate_memory must be at least 1, not 0.5\n  try: 2: a call that ran out of",
        ),
        (
            {"resources": 0.5},
            TypeError,
            "resources must be resources, such as Cores(4) & Memory(8), not 0.5",
        ),
    ],
)
def test_a_senseless_option_is_named_before_anything_runs(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    scheduler = FakeScheduler()
    for act in (
        lambda: gridengine.map(abs, [1], scheduler=scheduler, **options),
        lambda: gridengine.starmap(abs, [(1,)], scheduler=scheduler, **options),
        lambda: gridengine.imap(abs, [1], scheduler=scheduler, **options),
        lambda: gridengine.imap_unordered(abs, [1], scheduler=scheduler, **options),
        lambda: Job(target=abs, **options),
        lambda: JobDispatcher(scheduler, **options),
    ):
        with pytest.raises(error) as caught:
            act()
        assert words in str(caught.value)
    assert scheduler.dispatcher.entries == []


def test_memory_in_gigabytes_becomes_a_demand_in_bytes() -> None:
    assert CallOptions(resources=Memory(0.5)).demand == Demand(Memory(0.5))
    assert CallOptions().demand == ANY


def test_one_exception_class_or_several_may_be_given() -> None:
    assert [
        CallOptions(retry_on=one).exceptions for one in (OSError, [OSError], (OSError, KeyError))
    ] == [  # type: ignore[arg-type]
        (OSError,),
        (OSError,),
        (OSError, KeyError),
    ]


def test_an_option_of_none_is_not_given() -> None:
    assert given(gridengine.Job, {"retries": None, "timeout": 3.0, "retry_on": None}) == {
        "timeout": 3.0
    }


def test_the_calls_of_a_map_are_numbered_through() -> None:
    scheduler = FakeScheduler()
    gridengine.map(abs, range(10), scheduler=scheduler, chunksize=4)
    assert [entry.task.first for entry in scheduler.dispatcher.entries] == [0, 4, 8]


PACKAGE = Path(gridengine.__file__).parent


def test_no_decision_reads_a_clock_that_may_jump() -> None:
    readers = {
        path.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in ("time.time", "time.time_ns", "datetime.now")
    }
    told = {"forget.py", "io_thread.py", "job_dispatcher.py", "lock_file.py", "ls.py", "runs.py"}
    told |= {"run_file.py"}
    told |= {"meter.py", "watch_answers.py"}  # by how much the clocks of machines differ
    told.add("command_launcher.py")  # by which a batch system says when it ends a job
    told.add("remote_client.py")  # days, which go by while no dispatcher runs
    told.add("loaded_functions.py")  # when files were changed
    told.add("named_run.py")  # how old a kept result may be, in days (max_age=)
    assert readers <= told, "where the time of day is told to people"


def test_inline_too_a_call_is_made_again_when_the_caller_says_so() -> None:
    raised = iter([OSError("first"), OSError("second")])

    def call(x: int) -> int:
        error = next(raised, None)
        if error is not None:
            raise error
        return x

    with gridengine.InlineScheduler() as scheduler:
        job = Job(target=call, args=(3,), retry_on=OSError, scheduler=scheduler)
        job.start()
        assert job.result() == 3
        raised_twice = ["it raised an exception after which calls are retried"] * 2
        assert [one.outcome for one in job.attempts] == [*raised_twice, "it returned"]


def test_without_a_name_there_is_no_run() -> None:
    assert run_options({}, gridengine.map) is None
    assert run_options({"name": None}, gridengine.map) is None


@pytest.mark.parametrize("said", [{"resume": False}, {"wait": True}, {"journal": "a.sqlite"}])
def test_options_of_a_run_without_a_name_are_refused(said: Any) -> None:
    with pytest.raises(ConfigurationError, match="is for a named run, and name= is missing"):
        run_options(said, gridengine.map)


@pytest.mark.parametrize("resume", ["perhaps", 0, 1, None])
def test_the_value_of_resume_is_checked(resume: Any) -> None:
    with pytest.raises(ConfigurationError, match='True, False or "anyway", not'):
        run_options({"name": "a", "resume": resume}, gridengine.map)


@pytest.mark.parametrize("kind", [gridengine.Executor, gridengine.Pool, gridengine.JobDispatcher])
def test_other_keywords_are_refused(kind: Any) -> None:
    words = rf"{kind.__name__}\(\) got an unexpected keyword argument"
    with pytest.raises(TypeError, match=rf"{words} 'nme'; did you mean 'name'\?"):
        kind(nme="a")
    with pytest.raises(TypeError, match=rf"{words} 'timout'; did you mean 'timeout'\?"):
        kind(timout=1)
    with pytest.raises(TypeError, match=rf"{words} 'xyz'; help\(gridengine.{kind.__name__}\)"):
        kind(xyz=1)


class Endless:
    def __len__(self) -> int:
        raise TypeError


def test_the_length_is_that_of_the_shortest_when_all_have_one() -> None:
    assert length_of([[1, 2], range(5)]) == 2
    assert length_of([[1, 2], iter([])]) is None
    assert length_of([Endless()]) is None  # type: ignore[list-item]


def test_the_arguments_of_each_call_are_a_tuple() -> None:
    assert [*argument_tuples([(1, 2), [3, 4], iter([5])])] == [(1, 2), (3, 4), (5,)]


def test_an_element_that_is_no_arguments_is_told_with_its_number() -> None:
    calls = argument_tuples([(1,), 7])  # type: ignore[list-item]
    assert next(calls) == (1,)
    with pytest.raises(TypeError, match=r"element 1 of the iterable is 7; .* use map, or \(7,\)"):
        next(calls)


def test_an_exception_of_an_element_is_raised() -> None:
    with pytest.raises(TypeError, match=r"^bad operand"):
        next(argument_tuples([(-text for text in "a")]))  # type: ignore[operator]


def test_the_tables_of_keywords_have_the_checked_options() -> None:
    checked = CallOptions.__struct_fields__[: len(CallKeywords.__annotations__)]
    assert tuple(CallKeywords.__annotations__) == tuple(CallChanges.__annotations__) == checked


DEFAULTS = dict(zip(CallOptions.__struct_fields__, CallOptions.__struct_defaults__, strict=True))


@pytest.mark.parametrize(
    ("called", "unset"),
    [
        (gridengine.map, False),
        (gridengine.starmap, False),
        (gridengine.imap, False),
        (gridengine.imap_unordered, False),
        (gridengine.aimap, False),
        (gridengine.Executor, False),
        (gridengine.Pool, False),
        (gridengine.dask_get, False),
        (NamedRun.resubmit, False),
        (gridengine.Executor.with_options, True),
        (gridengine.Job, True),
        (gridengine.JobDispatcher, True),
        (gridengine.delayed, True),
    ],
)
def test_a_signature_shows_each_option_with_its_default(called: Any, unset: bool) -> None:
    parameters = inspect.signature(called).parameters
    shown = {name: parameters[name].default for name in CallKeywords.__annotations__}
    assert shown == {name: None if unset else DEFAULTS[name] for name in shown}
    table: Any = CallChanges if unset else CallKeywords
    kinds = {name: kind.__forward_arg__ for name, kind in table.__annotations__.items()}
    if called is gridengine.dask_get:  # resources="as measured" is map's
        kinds["resources"] = "Resource | None"
    assert kinds == {name: parameters[name].annotation for name in kinds}


def test_the_function_that_inspect_unwraps_has_the_signature() -> None:
    below = vars(gridengine.Executor.__init__)["__wrapped__"]
    names = [*inspect.signature(below.__get__(None)).parameters]
    assert names[:2] == ["self", "max_workers"]
    assert [*inspect.signature(below.__get__("an object")).parameters] == names[1:]


@pytest.mark.parametrize(
    "called",
    [
        lambda **options: gridengine.map(abs, [1], **options),
        lambda **options: gridengine.starmap(pow, [(1, 2)], **options),
        lambda **options: gridengine.imap(abs, [1], **options),
        lambda **options: gridengine.imap_unordered(abs, [1], **options),
        lambda **options: gridengine.aimap(abs, [1], **options),
        lambda **options: gridengine.Executor(scheduler=FakeScheduler(), **options),
        lambda **options: gridengine.Pool(scheduler=FakeScheduler(), **options),
        lambda **options: gridengine.dask_get({}, [], **options),
        lambda **options: NamedRun.resubmit(None, **options),  # type: ignore[arg-type]
        lambda **options: gridengine.Executor.with_options(None, **options),  # type: ignore[arg-type]
        Job,
        JobDispatcher,
        gridengine.delayed,
    ],
)
def test_an_option_that_is_misspelt_is_named_with_the_right_one(called: Any) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'retrys'.*'retries'"):
        called(retrys=1)
