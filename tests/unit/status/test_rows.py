"""What a dispatcher tells of itself, in a notebook too."""

from __future__ import annotations

import msgspec

from gridengine.status.rows import FunctionStatus, Status


def test_the_most_important_is_told_in_words() -> None:
    status = Status(
        left_seconds=90.0,
        waiting=2_000,
        running=3,
        done=1_000_000,
        failed=1,
        max_workers=20,
        worker_count=4,
        slots=2,
        statuses={"busy": 3, "idle": 1, "silent": 0},
    )
    assert dict(status.facts()) == {
        "calls": "1,000,000 done, 1 failed, 3 running, 2,000 waiting",
        "time left": "00:01:30",
        "workers": "4 of at most 20, 3 busy, 1 idle",
        "slots": 2,
    }


def test_retries_are_told_when_there_were_any() -> None:
    assert "1 retried" in str(Status(retried=1).facts())
    assert "retried" not in str(Status().facts())


def test_before_anything_has_happened_nothing_is_made_up() -> None:
    facts = dict(Status().facts())
    assert facts["time left"] is None
    assert facts["workers"] is None


def test_a_notebook_shows_functions_and_nothing_of_their_names_is_read_as_html() -> None:
    shown = Status(
        functions=[
            FunctionStatus("<lambda>", done=3, mean_seconds=0.001234),
            *(FunctionStatus(f"f{number}") for number in range(20)),
        ]
    )._repr_html_()
    assert "&lt;lambda&gt;" in shown
    assert "<lambda>" not in shown
    assert "0.00123 s" in shown
    assert "f8" in shown
    assert "f9" not in shown  # the first ten


def test_a_status_becomes_json_and_back() -> None:
    status = Status(done=1, functions=[FunctionStatus("f", histogram=[(0.1, 2)])])
    written = msgspec.json.encode(status)
    again = msgspec.json.decode(written, type=Status)
    assert again.functions == [FunctionStatus("f", histogram=[(0.1, 2)])]
    assert msgspec.json.encode(again) == written
