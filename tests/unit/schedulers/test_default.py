"""Which scheduler runs calls that name none."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

import pytest

import gridengine
from gridengine.display import plural
from gridengine.errors import ConfigurationError
from gridengine.schedulers import default
from gridengine.schedulers.default import best_available, default_scheduler, named_scheduler
from gridengine.schedulers.local import ProcessScheduler
from gridengine.schedulers.registry import BY_NAME


@pytest.mark.usefixtures("bare")
def test_without_any_sign_of_a_cluster_this_machine_is_chosen_and_the_reasons_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="gridengine"):
        assert isinstance(best_available(), ProcessScheduler)
    assert (
        "not Grid Engine, because no DRMAA library was found (SGE_ROOT is not set)" in caplog.text
    )
    assert "not Slurm, because sbatch is not installed here, or not on the PATH" in caplog.text


@pytest.mark.usefixtures("bare")
def test_without_any_sign_of_a_cluster_nothing_of_one_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = [
        "gridengine.schedulers.grid_engine.scheduler",
        "gridengine.schedulers.slurm.scheduler",
    ]
    for name in clusters:
        monkeypatch.delitem(sys.modules, name, raising=False)
    best_available()
    assert not sys.modules.keys() & set(clusters)


@pytest.mark.usefixtures("bare")
def test_a_wrong_setting_is_not_taken_for_a_missing_batch_system(
    configure: Callable[..., None],
) -> None:
    configure(drmaa_library="/nosuch", max_workers="none")
    with pytest.raises(ConfigurationError, match="GRIDENGINE_MAX_WORKERS"):
        best_available()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]) -> None:
    """A process that has read no settings, made no scheduler and said nothing."""
    monkeypatch.setattr(default, "_MADE", {})
    monkeypatch.setattr(default, "_ANNOUNCED", set())


@pytest.fixture
def slurm_here(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    """A machine with a Slurm that takes this user's jobs."""
    monkeypatch.setattr(default, "_best", lambda: (BY_NAME["slurm"], "Slurm"))


@pytest.mark.usefixtures("slurm_here")
def test_a_cluster_that_nobody_named_is_told_once_on_standard_error_too(
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    line = (
        "map of 3,000 calls on Slurm, 4 tasks at first, up to 1,000 if calls take long; "
        "GRIDENGINE_SCHEDULER=processes keeps them here"
    )
    with caplog.at_level(logging.INFO, logger="gridengine"):
        first = default_scheduler(3000)
        assert default_scheduler(7) is first
        # Who names it has all workers at once.
        assert named_scheduler("slurm")._first_workers == 0 < first._first_workers
    assert caplog.messages == [line]
    assert capsys.readouterr().err == f"gridengine: {line}\n"


@pytest.mark.usefixtures("bare", "fresh")
def test_this_machine_is_told_in_the_log_alone(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="gridengine"):
        scheduler = default_scheduler()
    assert caplog.messages[-1] == (
        f"calls on this machine, up to {plural(scheduler.slots, 'call')} at a time; "
        "scheduler= or GRIDENGINE_SCHEDULER names another place"
    )
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("slurm_here")
def test_within_a_block_calls_that_name_no_scheduler_run_on_the_block_s() -> None:
    before, meant = default_scheduler(), gridengine.InlineScheduler()
    with default.default_in_block(meant, "inline"):
        assert default.current_scheduler() is meant
        assert isinstance(default.make_scheduler(None, 4), gridengine.InlineScheduler)
    assert default_scheduler() is before
    assert default.default_entry()[0].name == "slurm"
    assert not meant._closed


@pytest.mark.usefixtures("slurm_here")
def test_a_block_has_named_schedulers_of_its_own_and_closes_them() -> None:
    before = named_scheduler("processes")
    with default.default_in_block(gridengine.InlineScheduler(), "inline"):
        own = named_scheduler("processes")
        assert own is not before
    assert own._closed
    assert not before._closed
    assert named_scheduler("processes") is before


@pytest.mark.usefixtures("slurm_here")
def test_a_scheduler_that_a_with_block_closes_and_no_call_uses_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with gridengine.InlineScheduler() as meant:
        default_scheduler()
        default_scheduler()
        assert gridengine.map(abs, [-1], scheduler=meant) == [1]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"not on {meant!r}: `with` only closes" in caplog.text


@pytest.mark.usefixtures("slurm_here")
def test_the_setting_says_where_calls_run_and_needs_not_be_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GRIDENGINE_SCHEDULER", "inline")
    with caplog.at_level(logging.INFO, logger="gridengine"):
        assert gridengine.starmap(os.getpid, [()]) == [os.getpid()]
        assert default_scheduler() is named_scheduler("inline")
        with gridengine.Pool(4) as pool:
            assert pool.apply(os.getpid) == os.getpid()
        job = gridengine.Job(target=os.getpid)
        job.start()
        assert job.result() == os.getpid()
    assert "Slurm" not in caplog.text
