"""What `dask_get` takes; what it computes is tested with real workers."""

from __future__ import annotations

import inspect
import signal
from typing import Any

import pytest

import gridengine
from gridengine.api.dask_scheduler import OF_OTHERS
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler
from tests.support.held_dispatcher import fail, square


@pytest.mark.parametrize(
    ("name", "hint"),
    [("retrys", "did you mean 'retries'?"), ("workers", "it takes scheduler, retries, timeout, ")],
)
def test_a_keyword_that_nobody_takes_is_refused(name: str, hint: str) -> None:
    with pytest.raises(TypeError) as caught:
        gridengine.dask_get({"x": 1}, "x", **{name: 5})
    text = f"dask_get() got an unexpected keyword argument {name!r}; {hint}"
    assert str(caught.value).startswith(text)


def test_options_of_dask_s_own_schedulers_are_ignored() -> None:
    pytest.importorskip("dask", reason="one of the optional libraries of setup.cfg")
    import dask.local
    import dask.multiprocessing
    import dask.threaded

    getters: list[Any] = [dask.threaded.get, dask.multiprocessing.get, dask.local.get_async]
    theirs = {
        name
        for get in getters
        for name, parameter in inspect.signature(get).parameters.items()
        if parameter.default is not parameter.empty
    }
    assert theirs <= OF_OTHERS
    ignored = dict.fromkeys(theirs, 3)
    scheduler = gridengine.InlineScheduler()
    assert gridengine.dask_get({"x": (abs, -1)}, ["x"], scheduler=scheduler, **ignored) == (1,)


def test_the_first_error_ends_the_tasks_that_remain() -> None:
    def run_the_first(dispatcher: FakeDispatcher) -> None:
        if len(dispatcher.entries) == 1:
            dispatcher.run(dispatcher.entries[0])

    dispatcher = FakeDispatcher(on_submit=run_the_first)
    graph = {"x": (fail, 1), "y": (square, 2)}
    with pytest.raises(ValueError, match="no 1"):
        gridengine.dask_get(graph, ["x", "y"], scheduler=FakeScheduler(dispatcher))
    _, remaining = dispatcher.entries
    assert dispatcher.cancelled == {remaining.task.id: signal.SIGKILL}
