"""Options that are True or False: whatever else is given for one is refused by its name, since a
text, as "no", would be true.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gridengine
from gridengine.schedulers.workerless import RemoteScheduler
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.mapped_calls import add, square
from tests.support.named_calls import store_run

Act = Callable[..., object]


def executor() -> gridengine.Executor:
    return gridengine.Executor(scheduler=FakeScheduler())


def client() -> gridengine.Client:
    """Return one whose dispatcher nobody asks."""
    made = object.__new__(gridengine.Client)
    RemoteScheduler.__init__(made, "/nowhere")
    return made


def job(**options: Any) -> gridengine.Job:
    return gridengine.Job(target=add, **options)


MAPS: dict[str, Act] = {
    "map": functools.partial(gridengine.map, square, [1], scheduler=FakeScheduler()),
    "starmap": functools.partial(gridengine.starmap, add, [(1, 2)], scheduler=FakeScheduler()),
    "imap": functools.partial(gridengine.imap, square, [1], scheduler=FakeScheduler()),
    "imap_unordered": functools.partial(
        gridengine.imap_unordered, square, [1], scheduler=FakeScheduler()
    ),
    "aimap": functools.partial(gridengine.aimap, square, [1], scheduler=FakeScheduler()),
}
SUBMITTERS: dict[str, Act] = {
    "Executor": gridengine.Executor,
    "Pool": gridengine.Pool,
    "JobDispatcher": gridengine.JobDispatcher,
}
ACTS: dict[str, tuple[Act, list[str]]] = {
    **{name: (act, ["reraise", "forward_logging", "strict"]) for name, act in MAPS.items()},
    "starmap": (MAPS["starmap"], ["reraise", "forward_logging"]),
    "imap_unordered": (
        MAPS["imap_unordered"],
        ["reraise", "forward_logging", "strict", "with_index"],
    ),
    **{name: (kind, ["forward_logging"]) for name, kind in SUBMITTERS.items()},
    "Executor": (gridengine.Executor, ["forward_logging", "detach"]),
    "Executor.with_options": (
        lambda **options: executor().with_options(**options),
        ["forward_logging"],
    ),
    "Executor.shutdown": (
        lambda **options: executor().shutdown(**options),
        ["wait", "cancel_futures"],
    ),
    "Executor.submit_graph": (
        lambda **options: executor().submit_graph({"a": 1}, ["a"], **options),
        ["fuse"],
    ),
    "Pool.imap_unordered": (
        lambda **options: gridengine.Pool(scheduler=FakeScheduler()).imap_unordered(
            square, [1], **options
        ),
        ["with_index"],
    ),
    "Program": (lambda **options: gridengine.Program(["ls"], **options), ["text", "check"]),
    "run_program": (
        lambda **options: gridengine.run_program(["ls"], scheduler=FakeScheduler(), **options),
        ["text", "check", "forward_logging"],
    ),
    "Actor.shutdown": (
        lambda **options: gridengine.InlineScheduler().actor(dict).shutdown(**options),
        ["wait", "cancel_futures"],
    ),
    "Job": (job, ["daemon", "mutable", "forward_logging"]),
    "Client.disconnect": (lambda **options: client().disconnect(**options), ["detach"]),
    "WTime": (gridengine.WTime, ["countdown"]),
    "delayed": (gridengine.delayed, ["forward_logging"]),
    "delayedval": (lambda **options: gridengine.delayedval(1, **options), ["copy_on_setitem"]),
    "dask_get": (
        lambda **options: gridengine.dask_get({"a": 1}, "a", **options),
        ["forward_logging"],
    ),
    **{
        f"{name}Scheduler": (getattr(gridengine, f"{name}Scheduler"), ["shared_files"])
        for name in ("Flux", "GridEngine", "HTCondor", "LSF", "OAR", "PBS", "Slurm")
    },
}
"""What takes such options, and which."""


@pytest.mark.parametrize(
    ("act", "option"),
    [(act, option) for act, options in ACTS.values() for option in options],
    ids=[f"{name} {option}" for name, (_, options) in ACTS.items() for option in options],
)
def test_an_option_that_is_no_truth_value_is_refused_by_its_name(act: Act, option: str) -> None:
    with pytest.raises(TypeError, match=f"^{option} must be True or False, not 'no'$"):
        act(**{option: "no"})


@pytest.mark.parametrize("name", [*MAPS, *SUBMITTERS])
@pytest.mark.parametrize("option", ["retry_failed", "wait"])
def test_options_of_a_named_run_are_checked_too(name: str, option: str) -> None:
    act = (MAPS | SUBMITTERS)[name]
    with pytest.raises(TypeError, match=f"^{option} must be True or False, not None$"):
        act(name="sweep", **{option: None})


@pytest.mark.usefixtures("machine", "notes")
@pytest.mark.parametrize("option", ["failed_only", "reraise", "forward_logging"])
def test_a_run_that_is_made_again_checks_its_options(option: str) -> None:
    store_run("sweep", left=1)
    with pytest.raises(TypeError, match=f"^{option} must be True or False, not 'no'$"):
        gridengine.run_named("sweep").resubmit(scheduler=FakeScheduler(), **{option: "no"})  # type: ignore[arg-type]


def test_a_job_that_is_there_checks_too_whether_it_is_a_daemon() -> None:
    made = job(daemon=1)
    with pytest.raises(TypeError, match="daemon must be True or False, not 'no'"):
        made.daemon = "no"  # type: ignore[assignment]
    assert made.daemon is True


def options_of(name: str, called: Any) -> Iterator[tuple[str, str]]:
    """Yield what a function, or the methods of a class, take that is True or False."""
    parts = {name: called}
    if inspect.isclass(called):
        methods = inspect.getmembers(called, callable)
        parts |= {f"{name}.{key}": one for key, one in methods if not key.startswith("_")}
    for part, one in parts.items():
        try:
            parameters = inspect.signature(one).parameters.values()
        except ValueError:  # it is written in C
            continue
        for parameter in parameters:
            if "bool" in str(parameter.annotation).split(" | "):
                yield part, parameter.name


def test_no_such_option_is_left_out_above() -> None:
    public = [(name, getattr(gridengine, name)) for name in gridengine.__all__]
    found = {pair for name, one in public if callable(one) for pair in options_of(name, one)}
    assert found == {(name, option) for name, (_, options) in ACTS.items() for option in options}
