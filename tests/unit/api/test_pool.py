"""`Pool`, on a dispatcher that runs calls here, when a test says so."""

from __future__ import annotations

import pytest

import gridengine
from gridengine.client.map_run import Results
from gridengine.client.outcomes import Outcome
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.held_dispatcher import (
    HeldDispatcher,
    square,
)


def test_a_ctrl_c_while_a_map_is_read_loses_none_of_its_results(
    dispatcher: HeldDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = gridengine.Pool(scheduler=FakeScheduler(dispatcher))
    result = pool.map_async(square, range(4), chunksize=1)
    dispatcher.run_all(until=result.ready)
    interruptions = [KeyboardInterrupt, None, KeyboardInterrupt]

    def put(self: Results, outcome: Outcome) -> None:
        if interruptions and (error := interruptions.pop()) is not None:
            raise error
        really_put(self, outcome)

    really_put = Results.put
    monkeypatch.setattr(Results, "put", put)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            result.get()
    assert result.get() == [0, 1, 4, 9]
    pool.close()
    pool.join()
