"""What notebooks show of things of this package."""

from __future__ import annotations

import pathlib
import re

import pytest

import gridengine
from gridengine.api.named_runs import NamedRun
from gridengine.client.future import CallFuture
from gridengine.display import html_table, plural, printable
from gridengine.journal.run_reader import RunSummary
from gridengine.status.rows import FunctionStatus, Status


def test_words_of_calls_say_nothing_to_a_terminal() -> None:
    assert printable("f\x1b[2J(\x07)\r\u202e\n\ttwo") == "f [2J( )  \n two"
    assert printable("caf\u00e9") == "caf\u00e9"


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_names_of_users_are_escaped() -> None:
    html = html_table("<f>", [("a & b", "<script>"), ("none", None)], [("x", "y"), ("<1>", 2000)])
    assert "<script>" not in html
    assert words(html) == "&lt;f&gt; a &amp; b &lt;script&gt; x y &lt;1&gt; 2,000"


def test_html_has_no_colours_of_its_own() -> None:
    assert "color" not in html_table("f", [("a", 1)], [("x", "y"), (1, 2)])


def test_a_scheduler_shows_the_status_of_its_dispatcher() -> None:
    scheduler = gridengine.InlineScheduler()
    assert words(scheduler._repr_html_()) == "InlineScheduler() state not used yet"
    gridengine.map(abs, [1], scheduler=scheduler)
    assert "slots 1" in words(scheduler._repr_html_())
    scheduler.close()
    assert words(scheduler._repr_html_()) == "InlineScheduler() state closed"


def test_a_status_says_counts_and_functions() -> None:
    train = FunctionStatus("train<1>", done=1200, failed=2, mean_seconds=1.5)
    status = Status(
        done=1200, failed=2, waiting=5, left_seconds=83.0, max_workers=9, functions=[train]
    )
    said = words(status._repr_html_())
    assert "1,200 done, 2 failed, 0 running, 5 waiting" in said
    assert "time left 00:01:23" in said
    assert "train&lt;1&gt; 1,200 2 0 1.5 s -" in said


def fail() -> None:
    raise ValueError("no <such> thing")


def test_a_future_says_its_state_and_is_not_unpickled_for_that() -> None:
    with gridengine.InlineScheduler() as scheduler:
        executor = gridengine.Executor(scheduler=scheduler)
        done, failed = executor.submit(abs, 1), executor.submit(fail)
        for future, state in ((done, "done"), (failed, "failed")):
            before = future.outcome
            assert words(future._repr_html_()) == (
                f"the call of {'abs' if future is done else 'fail'} state {state}"
            )
            assert future.outcome is before
        failed.exception()
        assert "no &lt;such&gt; thing" in failed._repr_html_()
        executor.shutdown()
    assert isinstance(done, CallFuture)


def test_a_job_says_its_attempts() -> None:
    with gridengine.InlineScheduler() as scheduler:
        job = gridengine.Job(target=abs, args=(1,), name="the <dog>", scheduler=scheduler)
        assert "the &lt;dog&gt;" in job._repr_html_()
        assert "initial" in job._repr_html_()
        job.start()
        job.join()
        assert "attempt 1 on " in words(job._repr_html_())
        job.close()
        assert "closed" in job._repr_html_()


@pytest.mark.parametrize(
    ("error", "said"), [("", "3 done, 1 failed, 2 left"), ("it is broken", "it is broken")]
)
def test_a_run_states_its_progress_or_its_fault(error: str, said: str) -> None:
    facts = {"name": "sweep", "path": pathlib.Path("/runs/sweep"), "size": 1, "when": 0.0}
    facts |= {"script": "s.py", "host": "node7", "done": 3, "failed": 1, "left": 2, "error": error}
    summary = RunSummary(**facts)  # type: ignore[arg-type]
    assert said in words(NamedRun(summary)._repr_html_())


def test_a_single_thing_is_no_plural() -> None:
    assert [plural(count, "worker") for count in (0, 1)] == ["0 workers", "1 worker"]
