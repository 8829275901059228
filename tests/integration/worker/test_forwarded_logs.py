"""What calls log and warn of comes to their caller, from workers of every kind."""

from __future__ import annotations

import logging
import warnings

import pytest

import gridengine
from tests.support.standalone import Standalone


def speak(number: int) -> int:
    logging.getLogger("tests.calls").info("number %d", number)
    logging.getLogger("tests.calls").debug("not wanted")
    warnings.warn("beware", RuntimeWarning, stacklevel=1)
    return number


def speak_inside(number: int) -> list[int]:
    return gridengine.map(speak, [number], forward_logging=True)


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "tests.calls"]


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tests.calls")


@pytest.fixture(scope="module")
def workers() -> gridengine.ProcessScheduler:
    return gridengine.ProcessScheduler(2)


def test_a_map_has_said_all_when_it_returns(
    caplog: pytest.LogCaptureFixture, workers: gridengine.ProcessScheduler
) -> None:
    with pytest.warns(RuntimeWarning, match=r"beware \[call \d of speak on "):
        gridengine.map(speak, range(3), scheduler=workers, forward_logging=True)
    assert sorted(text.partition(" on ")[0] for text in texts(caplog)) == [
        f"number {number} [call {number} of speak" for number in range(3)
    ]


@pytest.mark.filterwarnings("ignore:beware")
def test_an_iterator_an_executor_a_pool_a_graph_and_a_job_have_said_all_at_the_end(
    caplog: pytest.LogCaptureFixture, workers: gridengine.ProcessScheduler
) -> None:
    how = {"scheduler": workers, "forward_logging": True}
    list(gridengine.imap(speak, [1], **how))
    with gridengine.Executor(**how) as executor:
        executor.submit(speak, 2)
        executor.submit_graph({"three": (speak, 3)}, ["three"])
    with gridengine.Pool(**how) as pool:
        pool.map(speak, [4])
        pool.close()
        pool.join()
    job = gridengine.Job(target=speak, args=(5,), name="five", **how)
    job.start()
    job.join()
    assert sorted(text.split(" [")[0] for text in texts(caplog)) == [
        f"number {number}" for number in range(1, 6)
    ]
    assert any("[job five on " in text for text in texts(caplog))


@pytest.mark.filterwarnings("ignore:beware")
def test_log_lines_of_nested_calls_name_both_calls(
    caplog: pytest.LogCaptureFixture, workers: gridengine.ProcessScheduler
) -> None:
    gridengine.map(speak_inside, [7], scheduler=workers, forward_logging=True)
    [text] = texts(caplog)
    assert text.startswith("number 7 [call 0 of speak on ")
    assert "] [call 0 of speak_inside on " in text


@pytest.mark.filterwarnings("ignore:beware")
def test_a_stand_alone_dispatcher_passes_it_on(
    caplog: pytest.LogCaptureFixture, tmp_path_factory: pytest.TempPathFactory
) -> None:
    standalone = Standalone(tmp_path_factory.mktemp("runs"))
    try:
        with gridengine.Client(standalone.path) as client:
            client.map(speak, range(3), forward_logging=True)
            assert len(texts(caplog)) == 3
            client.map(speak, range(3))
            assert len(texts(caplog)) == 3
    finally:
        said = standalone.end()
    assert "Traceback" not in said
